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

  /** Gives rows back, each of which is in use. */
  giveBack(rows: readonly number[]): void {
    for (const row of rows) this.#isUsed[row] = 0;
    this.#free += rows.length;
  }
}
