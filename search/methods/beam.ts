/** Beam search: of all paths the best are extended, `width` times each. */
import type { SearchPlan } from '../plan.js';
import { bestOf, type Drawn, inTurn, rootChildren, type TreeRule, withoutDuplicates } from './drawn.js';

/** Completed paths keep their places: what is drawn, and who survives, shrinks as paths complete. */
export function beamRule(plan: SearchPlan): TreeRule {
  const { n, width } = plan;
  return {
    first: rootChildren(n),
    choose(drawn, completedBefore) {
      const completed = completedBefore + drawn.filter(({ state }) => state === 'completed').length;
      const { kept, duplicates } = withoutDuplicates(drawn, plan);
      const room = Math.max(0, n - completed);
      const survivors = bestOf(kept, Math.ceil(room / width));
      return { survivors: new Set(survivors), duplicates, children: inTurn(survivors, room) };
    },
    candidates: (rounds) => completedOrBest(rounds, plan),
  };
}

/**
 * As search-and-learn has it: n paths are drawn in every iteration, whatever has completed. Its way to take the best
 * n / width keeps all where that is 0.
 */
export function salBeamRule(plan: SearchPlan): TreeRule {
  const { n, width } = plan;
  return {
    first: rootChildren(n),
    choose(drawn) {
      const { kept, duplicates } = withoutDuplicates(drawn, plan);
      const survivors = bestOf(kept, Math.floor(n / width) || kept.length);
      return { survivors: new Set(survivors), duplicates, children: inTurn(survivors, n) };
    },
    candidates(rounds) {
      const completed = inOrder(rounds, plan).slice(0, n);
      return completed.length === 0 ? [] : Array.from({ length: n }, (_, i) => completed[i % completed.length]!);
    },
  };
}

function inOrder(rounds: readonly (readonly Drawn[])[], { sortCompleted }: SearchPlan): readonly Drawn[] {
  const completed = rounds.flat().filter(({ state }) => state === 'completed');
  return sortCompleted ? completed.toSorted((a, b) => b.aggregate - a.aggregate) : completed;
}

/** Completed paths. Without any: those that were cut short; without any: those that could not be extended. */
export function completedOrBest(rounds: readonly (readonly Drawn[])[], plan: SearchPlan): readonly Drawn[] {
  const completed = inOrder(rounds, plan);
  if (completed.length > 0) return completed;
  const last = rounds.at(-1) ?? [];
  const { duplicates } = withoutDuplicates(last, plan);
  const cut = [
    ...rounds.slice(0, -1).flatMap((round) => round.filter(({ state }) => state === 'unfinished')),
    ...last.filter((path) => path.state === 'unfinished' || (path.state === 'open' && !duplicates.has(path))),
  ];
  if (cut.length > 0) return cut;
  const parents = last.flatMap(({ parent }) => (parent === undefined ? [] : [parent]));
  return [...new Set(parents)];
}
