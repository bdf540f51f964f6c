/** Counts values by their size, as histograms of metrics do: some 20 ns a value, and no memory. */

/** What was counted. It can be sent to another thread. */
export interface Tally {
  /** Ascending. */
  readonly bounds: readonly number[];
  /** How many values were at most a bound and above the one before it; the last count is of those above all. */
  readonly counts: Float64Array;
  /** Of all values. */
  readonly sum: number;
}

export class Buckets implements Tally {
  readonly bounds: readonly number[];
  readonly counts: Float64Array;
  sum = 0;

  /** `bounds`: ascending. */
  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  /** Counts a value, that many times. */
  add(value: number, times = 1): void {
    const { bounds } = this;
    let [low, high] = [0, bounds.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (value <= bounds[middle]!) high = middle;
      else low = middle + 1;
    }
    this.counts[low]! += times;
    this.sum += value * times;
  }

  /** A copy that later values do not change. */
  tally(): Tally {
    return { bounds: this.bounds, counts: this.counts.slice(), sum: this.sum };
  }
}

/** How many values a tally has. */
export const countOf = ({ counts }: Tally): number => counts.reduce((sum, count) => sum + count, 0);
