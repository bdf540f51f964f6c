/** Cuts an order of paths into runs, where neighbours have little in common. */

/**
 * Cuts between paths that have little in common cost at most this part of all tokens. They let questions be scored in
 * shuffled order, so that running accuracy and time left describe all of them.
 */
const CHEAP_CUTS = 0.005;
/** Entries [from, to) of an order. */
export interface Run {
  readonly from: number;
  readonly to: number;
}

/** Cuts a list of paths, or of groups of them, each of which has a beginning in common with the one before. */
export class Cutter {
  /** i32[n] */
  private readonly shared: Int32Array;
  /** f64[n + 1] tokens of all entries before each, common beginnings once. */
  private readonly before: Float64Array;

  /** `sizes`: tokens of each entry; `shared`: those that it has in common with the one before, 0 for the first. */
  constructor(sizes: readonly number[], shared: Int32Array) {
    this.shared = shared;
    this.before = new Float64Array(sizes.length + 1);
    sizes.forEach((size, i) => (this.before[i + 1] = this.before[i]! + size - shared[i]!));
  }

  get tokens(): number {
    return this.before.at(-1)!;
  }

  tokensOf({ from, to }: Run): number {
    return this.before[to]! - this.before[from]! + (this.shared[from] ?? 0);
  }

  /** The order in runs, cut where neighbours have the least in common. */
  cheapRuns(): Run[] {
    const { shared } = this;
    const gaps = Array.from({ length: Math.max(0, shared.length - 1) }, (_, i) => i + 1);
    let left = CHEAP_CUTS * this.tokens;
    const cuts = gaps
      .sort((a, b) => shared[a]! - shared[b]!)
      .filter((gap) => (left -= shared[gap]!) >= 0)
      .sort((a, b) => a - b);
    return [0, ...cuts].map((from, i) => ({ from, to: cuts[i] ?? shared.length })).filter(({ from, to }) => to > from);
  }

  /** Halves what is longer than `most`, each time where the least is lost in its middle half. */
  *halved(run: Run, most: number): Generator<Run> {
    const { shared } = this;
    const tokens = this.tokensOf(run);
    const start = this.before[run.from]!;
    let cut: number | undefined;
    for (let gap = run.from + 1; gap < run.to; gap++) {
      const at = (this.before[gap]! - start) / tokens;
      if (at < 0.25 || at > 0.75) continue;
      if (cut === undefined || shared[gap]! < shared[cut]!) cut = gap;
    }
    // A cut that computes much again saves no time.
    if (tokens <= most || cut === undefined || shared[cut]! * 4 > tokens) return yield run;
    yield* this.halved({ from: run.from, to: cut }, most);
    yield* this.halved({ from: cut, to: run.to }, most);
  }
}
