/**
 * Rows of states of recurrent layers along a walk. Such layers have one state where attention has a key for each token:
 * a token goes on from the states behind the one before it, which are in the call that computes both, or in a row. When
 * a call ends, the states behind some nodes of the path go to rows: where it ends, and where later paths will leave it.
 */
import { type Path, pathLength } from './tree.js';

/** What states need to know of a token on the walk's path. */
export interface StateNode {
  /** The call that computed it, and its place there. */
  readonly call: number;
  readonly place: number;
  /** The row with the states behind it; −1: there is none. */
  stateRow: number;
}

/** Which rows the call in progress reads, and who has the others. A row is never read and written by one call. */
export class StateRows {
  readonly #count: number;
  readonly #reading = new Set<number>();

  /** `count`: of all rows. Throws RangeError where one cannot be read while another is written. */
  constructor(count: number) {
    if (!(count >= 2)) throw new RangeError(`${count} rows of states, where a walk needs two`);
    this.#count = count;
  }

  /** Whether the call may read this row too: one is left for the states where the call ends. */
  mayRead(row: number): boolean {
    return this.#reading.has(row) || this.#reading.size + 1 < this.#count;
  }

  read(row: number): void {
    this.#reading.add(row);
  }

  /**
   * Ends a call. `depths`, ascending: how many tokens of the path there are where it will be gone on from, all of it
   * among them. The nodes before these keep their rows or get one if the call has computed them, and others have none.
   * Where rows are too few, the depths with the fewest tokens behind the one before them go: what goes on from there
   * computes those again. All of the path always has a row, so that a walk ends. Gives the nodes whose states the call
   * writes, in the order of their places.
   */
  endCall(path: readonly StateNode[], depths: readonly number[], call: number): readonly StateNode[] {
    const nodeAt = (depth: number): StateNode => path[depth - 1]!;
    const isNew = (depth: number): boolean => nodeAt(depth).call === call;
    const wanted = depths.filter((depth) => depth > 0 && (isNew(depth) || nodeAt(depth).stateRow >= 0));
    /** Rows that cannot be written: those that are read, and those of nodes that keep theirs. */
    const taken = (): Set<number> =>
      new Set([...this.#reading, ...wanted.filter((depth) => !isNew(depth)).map((depth) => nodeAt(depth).stateRow)]);
    for (let more = wanted.filter(isNew).length + taken().size - this.#count; more > 0; more--) {
      let [least, gap] = [0, Infinity];
      for (let i = 0; i < wanted.length - 1; i++) {
        const own = wanted[i]! - (wanted[i - 1] ?? 0);
        // A row that is read cannot be written, whoever has it.
        if (own < gap && !this.#reading.has(nodeAt(wanted[i]!).stateRow)) [least, gap] = [i, own];
      }
      wanted.splice(least, 1);
    }
    const kept = new Set(wanted.map(nodeAt));
    for (const node of path) if (!kept.has(node)) node.stateRow = -1;
    const held = taken();
    const written = wanted.filter(isNew).map(nodeAt);
    let row = 0;
    for (const node of written) {
      while (held.has(row)) row++;
      node.stateRow = row++;
    }
    this.#reading.clear();
    return written;
  }
}

/** Where paths that are walked one after another go on: what they leave of the path before. */
export class Continuations {
  /** How many tokens each keeps of the path before it. */
  private readonly kept: readonly number[];
  /** For each path, the next one that keeps less; behind the last where there is none. */
  private readonly nextLess: Int32Array;
  /** Tokens that the paths before each have more than the ones before them. */
  private readonly before: Float64Array;

  /** `shared`: leading tokens that each has in common with the one before. */
  constructor(paths: readonly Path[], shared: readonly number[]) {
    // A scored token that is not of the call in progress is computed again.
    this.kept = paths.map(({ context }, i) => Math.min(shared[i]!, context.length - 1));
    this.nextLess = new Int32Array(paths.length).fill(paths.length);
    this.before = new Float64Array(paths.length + 1);
    paths.forEach((path, i) => (this.before[i + 1] = this.before[i]! + pathLength(path) - this.kept[i]!));
    const waiting: number[] = [];
    this.kept.forEach((kept, i) => {
      while (waiting.length > 0 && this.kept[waiting.at(-1)!]! > kept) this.nextLess[waiting.pop()!] = i;
      waiting.push(i);
    });
  }

  /** Where path `index`, of which `length` tokens are computed, and those behind it go on from: depths, ascending. */
  depths(index: number, length: number): readonly number[] {
    const depths = [length];
    for (let i = index + 1; i < this.kept.length && depths.at(-1)! > 0; i = this.nextLess[i]!)
      if (this.kept[i]! < depths.at(-1)!) depths.push(this.kept[i]!);
    return depths.reverse();
  }

  /** Tokens of path `index` and those behind it until one keeps fewer than `depth`. */
  tokensBehind(index: number, depth: number): number {
    let end = index + 1;
    while (end < this.kept.length && this.kept[end]! >= depth) end = this.nextLess[end]!;
    return this.before[end]! - this.before[index]!;
  }
}
