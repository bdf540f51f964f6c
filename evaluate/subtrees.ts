/** Cuts all paths, in lexicographic order, into subtrees that can be walked in any order and on any device. */
import { Cutter } from './cutter.js';
import { shuffled } from './pack.js';
import type { OrderedPaths } from './pathOrder.js';
import { type Path, pathLength } from './tree.js';

/** Paths that are walked one after another. Its first one is computed from its first token. */
export interface Subtree {
  readonly paths: readonly Path[];
  /** Tokens where every common beginning within is computed once. */
  readonly tokens: number;
}

/** Devices that share the work take the largest subtree first, and finish together if there are a few for each. */
const SUBTREES_PER_LANE = 4;

/** Subtrees in the order in which devices take them: several take the largest first, one takes them shuffled. */
export function cutSubtrees(ordered: OrderedPaths, lanes = 1): Subtree[] {
  const cutter = new Cutter(ordered.paths.map(pathLength), ordered.shared);
  const most = lanes === 1 ? Infinity : cutter.tokens / (lanes * SUBTREES_PER_LANE);
  const subtrees = cutter
    .cheapRuns()
    .flatMap((run) => [...cutter.halved(run, most)])
    .map((run): Subtree => ({ paths: ordered.paths.slice(run.from, run.to), tokens: cutter.tokensOf(run) }));
  return lanes === 1 ? shuffled(subtrees) : subtrees.sort((a, b) => b.tokens - a.tokens);
}
