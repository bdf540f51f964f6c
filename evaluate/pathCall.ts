/** What calls that continue paths are made of: their inputs as they grow, and rows of the cache that they write. */
import type { WalkedBatch } from './scorer.js';
import type { ScoredToken } from './tree.js';

/** The token of a call that another one goes on from, or the row of states; −1: none. */
export interface Before {
  readonly parent: number;
  readonly from: number;
}
/** Of the first token of a path. */
export const NOTHING: Before = { parent: -1, from: -1 };

/** A call that is being put together. */
export class PathCall {
  readonly tokens: number[] = [];
  readonly begin: number[] = [];
  readonly key: number[] = [];
  readonly row: number[] = [];
  readonly target: number[] = [];
  readonly scored: ScoredToken[] = [];
  private readonly position: number[] = [];
  private readonly slot: number[] = [];
  private readonly states: Readonly<Record<'parent' | 'from' | 'token' | 'to', number[]>> | undefined;

  /** `hasStates`: the model has recurrent layers. */
  constructor(hasStates: boolean) {
    if (hasStates) this.states = { parent: [], from: [], token: [], to: [] };
  }

  /** A token, its depth on its path, the row of the cache for its key and value, and what its states go on from. */
  add(token: number, position: number, slot: number, { parent, from }: Before): void {
    this.tokens.push(token);
    this.position.push(position);
    this.slot.push(slot);
    this.states?.parent.push(parent);
    this.states?.from.push(from);
  }

  /** The states behind the token at `place` go to row `to`. */
  keepStates(place: number, to: number): void {
    this.states?.token.push(place);
    this.states?.to.push(to);
  }

  batch(): WalkedBatch {
    const batch = {
      tokens: Int32Array.from(this.tokens),
      position: Int32Array.from(this.position),
      slot: Int32Array.from(this.slot),
      begin: Int32Array.from(this.begin),
      key: Int32Array.from(this.key),
      row: Int32Array.from(this.row),
      target: Int32Array.from(this.target),
    };
    const { states, scored } = this;
    if (states === undefined) return { batch, scored };
    const trees = {
      parent: Int32Array.from(states.parent),
      from: Int32Array.from(states.from),
      token: Int32Array.from(states.token),
      to: Int32Array.from(states.to),
    };
    return { batch: { ...batch, states: trees }, scored };
  }
}

/**
 * Rows of a cache of keys and values. They are handed out in order, round and round, past those that are in use: tokens
 * that follow each other then lie behind each other, and a GPU loads them together.
 */
export class CacheRows {
  readonly #isUsed: Uint8Array;
  #next = 0;
  #free: number;

  constructor(count: number) {
    this.#isUsed = new Uint8Array(count);
    this.#free = count;
  }

  get free(): number {
    return this.#free;
  }

  /** Undefined where all rows are in use. */
  take(): number | undefined {
    if (this.#free === 0) return undefined;
    while (this.#isUsed[this.#next] === 1) this.#next = (this.#next + 1) % this.#isUsed.length;
    const row = this.#next;
    this.#isUsed[row] = 1;
    this.#free--;
    this.#next = (row + 1) % this.#isUsed.length;
    return row;
  }

  /** Throws RangeError where there are not so many. */
  takeAll(count: number): number[] {
    return Array.from({ length: count }, () => {
      const row = this.take();
      if (row === undefined) throw new RangeError(`${count} rows of a cache are asked for, and fewer are free`);
      return row;
    });
  }

  /** Gives rows back, each of which is in use. */
  giveBack(rows: readonly number[]): void {
    for (const row of rows) this.#isUsed[row] = 0;
    this.#free += rows.length;
  }
}
