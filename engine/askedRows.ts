/** The rows that are asked for of given tokens: pairs of a position and a target, several at a position if need be. */

export interface AskOptions {
  /** The row stands after the token at this position, counted from 0. */
  readonly position: number;
  /** The token whose log-probability is asked for. */
  readonly target?: number | undefined;
  /** So many of the most likely tokens; 0: none. */
  readonly top?: number | undefined;
}

/** Rows in the order of their positions. They are answered in this order, those of a step together. */
export class AskedRows {
  /** i32[N], ascending. */
  readonly positions: Int32Array;
  /** i32[N]: −1 where there is none. */
  readonly targets: Int32Array;
  readonly tops: Int32Array;
  /** Rows before this one have been answered. */
  answered = 0;
  /** How many of the rows before each, and of all, ask for most likely tokens. */
  private readonly topsBefore: Int32Array;

  /** `rows`: in the order of their positions. */
  constructor(rows: readonly AskOptions[]) {
    this.positions = Int32Array.from(rows, ({ position }) => position);
    this.targets = Int32Array.from(rows, ({ target = -1 }) => target);
    this.tops = Int32Array.from(rows, ({ top = 0 }) => top);
    this.topsBefore = new Int32Array(rows.length + 1);
    for (let i = 0; i < rows.length; i++) {
      if (i > 0 && this.positions[i]! < this.positions[i - 1]!) throw new RangeError('Rows are not in order.');
      this.topsBefore[i + 1] = this.topsBefore[i]! + (this.tops[i]! > 0 ? 1 : 0);
    }
  }

  /** Each token of a prompt from place `from` on, at least 1, as the target of the row before it. */
  static following(prompt: readonly number[], from: number): AskedRows {
    const rows: AskOptions[] = [];
    for (let at = Math.max(1, from); at < prompt.length; at++) rows.push({ position: at - 1, target: prompt[at]! });
    return new AskedRows(rows);
  }

  get length(): number {
    return this.positions.length;
  }

  /** Position of the first that is not answered; Infinity where all are. */
  get next(): number {
    return this.positions[this.answered] ?? Infinity;
  }

  /** Index of the first row at a position of at least `position` that is not answered. */
  from(position: number): number {
    let [low, high] = [this.answered, this.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.positions[middle]! < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** How many of the rows [first, end) ask for most likely tokens. */
  topsIn(first: number, end: number): number {
    return this.topsBefore[end]! - this.topsBefore[first]!;
  }
}
