/** REBASE: how many children a path gets follows from its score, by a softmax over all paths of the iteration. */
import type { SearchPlan } from '../plan.js';
import { completedOrBest } from './beam.js';
import { type Child, type Drawn, rootChildren, type TreeRule, withoutDuplicates } from './drawn.js';

/** The budget shrinks as paths complete. */
export function rebaseRule(plan: SearchPlan): TreeRule {
  const { n, rebaseTemperature } = plan;
  return {
    first: rootChildren(n),
    choose(drawn, completedBefore) {
      const completed = completedBefore + drawn.filter(({ state }) => state === 'completed').length;
      const { kept: open, duplicates } = withoutDuplicates(drawn, plan);
      const counts = divide(open, Math.max(0, n - completed), rebaseTemperature);
      const children = open.flatMap((parent): Child[] =>
        Array.from({ length: counts.get(parent)! }, (_, index) => ({ parent, index })),
      );
      return { survivors: new Set(children.map(({ parent }) => parent!)), duplicates, children };
    },
    candidates: (rounds) => completedOrBest(rounds, plan),
  };
}

/**
 * Best first, each path gets its share of what is left, rounded: the counts add up to the budget. Of equal ones the
 * lower place comes first.
 */
function divide(open: readonly Drawn[], budget: number, temperature: number): ReadonlyMap<Drawn, number> {
  const ranked = open.toSorted((a, b) => b.aggregate - a.aggregate || a.place - b.place);
  const weights = ranked.map(({ aggregate }) => Math.exp((aggregate - ranked[0]!.aggregate) / temperature));
  // Weights behind each, summed from the least: the last path's share is then all that is left.
  const behind = weights.slice();
  for (let i = behind.length - 2; i >= 0; i--) behind[i]! += behind[i + 1]!;
  const counts = new Map<Drawn, number>();
  let left = budget;
  for (const [index, path] of ranked.entries()) {
    const count = behind[index] === 0 ? 0 : Math.min(left, Math.round((left * weights[index]!) / behind[index]!));
    counts.set(path, count);
    left -= count;
  }
  return counts;
}
