/** Cuts all paths, in lexicographic order, into subtrees that can be walked in any order and on any device. */
import { shuffled } from './pack.js';
import { orderPaths, type OrderedPaths } from './pathOrder.js';
import { pathLength, type Path } from './tree.js';

/** Paths that are walked one after another. Its first one is computed from its first token. */
export interface Subtree {
  readonly paths: readonly Path[];
  /** Tokens where every common beginning within is computed once. */
  readonly tokens: number;
}

/**
 * Cuts between paths that have little in common cost at most this part of all tokens. They let questions be scored in
 * shuffled order, so that running accuracy and time left describe all of them.
 */
const CHEAP_CUTS = 0.005;
/** Devices that share the work take the largest subtree first, and finish together if there are a few for each. */
const SUBTREES_PER_LANE = 4;

/** Paths [from, to) of an order. */
interface Run {
  readonly from: number;
  readonly to: number;
}

class Cutter {
  private readonly ordered: OrderedPaths;
  /** f64[n + 1] tokens of all paths before each, common beginnings once. */
  private readonly before: Float64Array;

  constructor(ordered: OrderedPaths) {
    this.ordered = ordered;
    const { paths, shared } = ordered;
    this.before = new Float64Array(paths.length + 1);
    paths.forEach((path, i) => (this.before[i + 1] = this.before[i]! + pathLength(path) - shared[i]!));
  }

  get tokens(): number {
    return this.before.at(-1)!;
  }

  tokensOf({ from, to }: Run): number {
    return this.before[to]! - this.before[from]! + (this.ordered.shared[from] ?? 0);
  }

  /** The order in runs, cut where neighbours have the least in common. */
  cheapRuns(): Run[] {
    const { shared, paths } = this.ordered;
    const gaps = Array.from({ length: Math.max(0, paths.length - 1) }, (_, i) => i + 1);
    let left = CHEAP_CUTS * this.tokens;
    const cuts = gaps
      .sort((a, b) => shared[a]! - shared[b]!)
      .filter((gap) => (left -= shared[gap]!) >= 0)
      .sort((a, b) => a - b);
    return [0, ...cuts].map((from, i) => ({ from, to: cuts[i] ?? paths.length })).filter(({ from, to }) => to > from);
  }

  /** Halves what is longer than `most`, each time where the least is lost in its middle half. */
  *halved(run: Run, most: number): Generator<Run> {
    const { shared } = this.ordered;
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

/** Subtrees in the order in which devices take them: several take the largest first, one takes them shuffled. */
export function cutSubtrees(unordered: readonly Path[], lanes = 1): Subtree[] {
  const ordered = orderPaths(unordered);
  const cutter = new Cutter(ordered);
  const most = lanes === 1 ? Infinity : cutter.tokens / (lanes * SUBTREES_PER_LANE);
  const subtrees = cutter
    .cheapRuns()
    .flatMap((run) => [...cutter.halved(run, most)])
    .map((run): Subtree => ({ paths: ordered.paths.slice(run.from, run.to), tokens: cutter.tokensOf(run) }));
  return lanes === 1 ? shuffled(subtrees) : subtrees.sort((a, b) => b.tokens - a.tokens);
}
