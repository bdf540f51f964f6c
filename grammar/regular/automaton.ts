/**
 * Deterministic automata of regular expressions, made as they are walked. A state is an expression: what may still
 * come. Its derivative by a byte (Brzozowski 1964) is the next one; bytes with the same derivative are one class.
 */
import type { Work } from '../work.js';
import { hasByte } from './byteSet.js';
import { EMPTY, Nodes, NOTHING } from './nodes.js';

interface Partition {
  readonly id: number;
  /** One byte of each class. */
  readonly representatives: readonly number[];
}

const UNKNOWN = 0;
const ALIVE = 1;
const DEAD = 2;
const WHOLE = 0;

export class Automaton extends Nodes {
  /** Next states by class, for a state from `rowOf` on. */
  table = new Int32Array(4096);
  /** Classes of bytes by partition: byte b of partition p has the class at 256·p + b. */
  classes = new Uint8Array(16 * 256);
  /** Where the row of a state begins in `table`; -1 before `prepare`. States beyond its end have none either. */
  rowOf = new Int32Array(1024).fill(-1);
  /** Where the classes of a state begin. */
  classesOf = new Int32Array(1024);
  /** The same before states from which no text can end were taken out. */
  #rawOf = new Int32Array(1024).fill(-1);
  #tableEnd = 0;
  readonly #partitions: Partition[] = [];
  readonly #partitionIds = new Map<string, number>();
  readonly #meets = new Map<number, number>();
  readonly #partitionOf = new Map<number, number>();
  readonly #derivatives = new Map<number, number>();
  readonly #life = new Map<number, number>();

  constructor(work: Work) {
    super(work);
    this.#partitionId(new Uint8Array(256));
  }

  /** The state behind a byte; NOTHING where no text goes on so. */
  next(state: number, byte: number): number {
    if (!(this.rowOf[state]! >= 0)) this.prepare(state);
    return this.table[this.rowOf[state]! + this.classes[this.classesOf[state]! + byte]!]!;
  }

  /** Makes the row of a state, without states from which no text can end. `table` and its companions may move. */
  prepare(state: number): void {
    this.#row(state);
    const row = this.#rawOf[state]!;
    if (!this.isPlain[state]!) {
      const end = row + this.#classCount(state);
      for (let at = row; at < end; at++) if (!this.isAlive(this.table[at]!)) this.table[at] = NOTHING;
    }
    this.rowOf[state] = row;
  }

  /** The states behind one byte; NOTHING may be among them. */
  nexts(state: number): Int32Array {
    if (!(this.rowOf[state]! >= 0)) this.prepare(state);
    const row = this.rowOf[state]!;
    return this.table.subarray(row, row + this.#classCount(state));
  }

  /** Whether any text is one of the expression's. */
  isAlive(state: number): boolean {
    if (state === NOTHING || this.isPlain[state]!) return state !== NOTHING;
    const known = this.#life.get(state) ?? UNKNOWN;
    return known === UNKNOWN ? this.#search(state) : known === ALIVE;
  }

  /**
   * Looks for a state that accepts, first where an end seems to be near. What leads there is alive; where there is
   * none, all that was seen is dead.
   */
  #search(start: number): boolean {
    const from = new Map([[start, -1]]);
    const waiting = new Buckets();
    for (let state: number | undefined = start; state !== undefined; state = waiting.take()) {
      const life = this.#life.get(state);
      if (this.isNullable[state]! || life === ALIVE || (state !== NOTHING && this.isPlain[state]!)) {
        for (let at = state; at >= 0; at = from.get(at)!) this.#life.set(at, ALIVE);
        return true;
      }
      if (state === NOTHING || life === DEAD) continue;
      this.#row(state);
      const begin = this.#rawOf[state]!;
      const end = begin + this.#classCount(state);
      for (let at = begin; at < end; at++) {
        const next = this.table[at]!;
        if (from.has(next)) continue;
        from.set(next, state);
        waiting.add(next, this.leastBytes[next]!);
      }
    }
    for (const state of from.keys()) this.#life.set(state, DEAD);
    return false;
  }

  #row(state: number): void {
    if (this.rowOf.length <= state) this.#growStates();
    if (this.#rawOf[state]! >= 0) return;
    const partition = this.#partitions[this.#classesOf(state)]!;
    const next = partition.representatives.map((byte) => this.#derivative(state, byte));
    this.work.spend(8 * next.length);
    if (this.#tableEnd + next.length > this.table.length) this.table = grown(this.table, this.#tableEnd + next.length);
    this.table.set(next, this.#tableEnd);
    this.classesOf[state] = partition.id * 256;
    this.#rawOf[state] = this.#tableEnd;
    this.#tableEnd += next.length;
  }

  #classCount(state: number): number {
    return this.#partitions[this.classesOf[state]! / 256]!.representatives.length;
  }

  #growStates(): void {
    const before = this.rowOf.length;
    this.rowOf = grown(this.rowOf, this.size);
    this.rowOf.fill(-1, before);
    this.#rawOf = grown(this.#rawOf, this.size);
    this.#rawOf.fill(-1, before);
    this.classesOf = grown(this.classesOf, this.size);
  }

  #derivative(id: number, byte: number): number {
    const node = this.nodes[id]!;
    if (node.kind === 'nothing' || node.kind === 'empty') return NOTHING;
    if (node.kind === 'bytes') return hasByte(node.set, byte) ? EMPTY : NOTHING;
    this.work.spend(8);
    if (node.kind === 'then') {
      const behind = this.then(this.#derivative(node.first, byte), node.rest);
      return this.isNullable[node.first]! ? this.either([behind, this.#derivative(node.rest, byte)]) : behind;
    }
    const key = id * 256 + byte;
    const known = this.#derivatives.get(key);
    if (known !== undefined) return known;
    let found: number;
    if (node.kind === 'either') found = this.either(node.of.map((part) => this.#derivative(part, byte)));
    else if (node.kind === 'both') found = this.both(node.of.map((part) => this.#derivative(part, byte)));
    else if (node.kind === 'not') found = this.not(this.#derivative(node.of, byte));
    else {
      const others = this.repeat(node.of, Math.max(0, node.min - 1), node.max - 1);
      found = this.then(this.#derivative(node.of, byte), others);
    }
    if (this.#derivatives.size >= 2 ** 17) this.#derivatives.clear();
    this.#derivatives.set(key, found);
    return found;
  }

  /** A partition of bytes into classes with the same derivative, at least as fine as needed (Owens et al. 2009). */
  #classesOf(id: number): number {
    const known = this.#partitionOf.get(id);
    if (known !== undefined) return known;
    const node = this.nodes[id]!;
    let found: number;
    if (node.kind === 'nothing' || node.kind === 'empty') found = WHOLE;
    else if (node.kind === 'bytes') {
      found = this.#partitionId(Uint8Array.from({ length: 256 }, (_, byte) => (hasByte(node.set, byte) ? 1 : 0)));
    } else if (node.kind === 'then') {
      found = this.#classesOf(node.first);
      if (this.isNullable[node.first]!) found = this.#meet(found, this.#classesOf(node.rest));
    } else if (node.kind === 'repeat' || node.kind === 'not') found = this.#classesOf(node.of);
    else found = node.of.reduce((all, part) => this.#meet(all, this.#classesOf(part)), WHOLE);
    this.#partitionOf.set(id, found);
    return found;
  }

  #meet(one: number, other: number): number {
    if (one === other || other === WHOLE) return one;
    if (one === WHOLE) return other;
    const key = Math.min(one, other) * 2 ** 26 + Math.max(one, other);
    const known = this.#meets.get(key);
    if (known !== undefined) return known;
    this.work.spend(512);
    const map = new Uint8Array(256);
    const ids = new Map<number, number>();
    for (let byte = 0; byte < 256; byte++) {
      const pair = this.classes[one * 256 + byte]! * 256 + this.classes[other * 256 + byte]!;
      let id = ids.get(pair);
      if (id === undefined) ids.set(pair, (id = ids.size));
      map[byte] = id;
    }
    const found = this.#partitionId(map);
    this.#meets.set(key, found);
    return found;
  }

  #partitionId(map: Uint8Array): number {
    // Classes are numbered by their first bytes, so that equal partitions are equal arrays.
    const order = new Map<number, number>();
    const representatives: number[] = [];
    const canonical = map.map((each, byte) => {
      let id = order.get(each);
      if (id === undefined) {
        order.set(each, (id = order.size));
        representatives.push(byte);
      }
      return id;
    });
    const key = Buffer.from(canonical).toString('latin1');
    const known = this.#partitionIds.get(key);
    if (known !== undefined) return known;
    this.work.spend(512);
    const id = this.#partitions.length;
    if ((id + 1) * 256 > this.classes.length) this.classes = grown(this.classes, (id + 1) * 256);
    this.classes.set(canonical, id * 256);
    this.#partitions.push({ id, representatives });
    this.#partitionIds.set(key, id);
    return id;
  }
}

/** Values by a small number, the lowest first. */
class Buckets {
  readonly #buckets: number[][] = [];
  #lowest = 0;

  add(value: number, by: number): void {
    const place = Math.min(by, 1023);
    (this.#buckets[place] ??= []).push(value);
    this.#lowest = Math.min(this.#lowest, place);
  }

  take(): number | undefined {
    for (; this.#lowest < this.#buckets.length; this.#lowest++) {
      const value = this.#buckets[this.#lowest]?.pop();
      if (value !== undefined) return value;
    }
    return undefined;
  }
}

const grown = <T extends Int32Array | Uint8Array>(array: T, size: number): T => {
  const larger = new (array.constructor as new (length: number) => T)(Math.max(size, array.length * 2));
  larger.set(array);
  return larger;
};
