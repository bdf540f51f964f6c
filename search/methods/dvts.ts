/** Diverse verifier tree search: n / width subtrees by themselves, the best of whose `width` candidates goes on. */
import type { SearchPlan } from '../plan.js';
import { firstLargest } from './aggregate.js';
import { type Child, type Drawn, type TreeRule } from './drawn.js';

/**
 * A subtree ends with the text of its best candidate. search-and-learn also ends it at a box. Its texts are the last
 * `width` candidates, of which some may not have ended: those come last, but for search-and-learn.
 */
export function dvtsRule({ n, width, isSal }: SearchPlan): TreeRule {
  const childrenOf = (parent: Drawn | undefined, subtree: number): readonly Child[] =>
    Array.from({ length: width }, (_, index) => ({
      parent,
      index: parent === undefined ? subtree * width + index : index,
      subtree,
    }));
  const hasEnded = ({ state, path }: Drawn): boolean => state !== 'open' || (isSal && path.text.includes('boxed{'));
  return {
    first: Array.from({ length: n / width }, (_, subtree) => childrenOf(undefined, subtree)).flat(),
    choose(drawn) {
      const best = [...bySubtree(drawn).values()].flatMap((paths) => bestOfSubtree(paths));
      const children = best.filter((path) => !hasEnded(path)).flatMap((path) => childrenOf(path, path.subtree!));
      return { survivors: new Set(best), children };
    },
    candidates(rounds) {
      const last = rounds.reduce((trees, round) => new Map([...trees, ...bySubtree(round)]), bySubtree([]));
      const usable = [...last.entries()].toSorted(([a], [b]) => a - b).flatMap(([, paths]) => usableOf(paths));
      if (isSal) return usable;
      return [...usable.filter(isCompleted), ...usable.filter((path) => !isCompleted(path))];
    },
  };
}

const isCompleted = ({ state }: Drawn): boolean => state === 'completed';

function bySubtree(drawn: readonly Drawn[]): ReadonlyMap<number, readonly Drawn[]> {
  const trees = new Map<number, Drawn[]>();
  for (const path of drawn) {
    const tree = trees.get(path.subtree!);
    if (tree === undefined) trees.set(path.subtree!, [path]);
    else tree.push(path);
  }
  return trees;
}

/** Texts of a subtree's last candidates; where all have failed, the one that they were to extend. */
function usableOf(paths: readonly Drawn[]): readonly Drawn[] {
  const usable = paths.filter(({ state }) => state !== 'failed');
  const parent = paths[0]?.parent;
  return usable.length > 0 || parent === undefined ? usable : [parent];
}

/** None where all have failed. One whose tokens were used up comes behind all others. */
function bestOfSubtree(paths: readonly Drawn[]): readonly Drawn[] {
  const whole = paths.filter(({ state }) => state === 'open' || state === 'completed');
  const usable = whole.length > 0 ? whole : paths.filter(({ state }) => state === 'unfinished');
  const best = firstLargest(usable.map(({ aggregate }) => aggregate));
  return best === -1 ? [] : [usable[best]!];
}
