/** The loop of all methods that search in iterations: draw, score, choose. */
import type { SearchPlan } from '../plan.js';
import type { ProblemResult } from '../result.js';
import type { Drawing, Round } from './drawing.js';
import type { Drawn, TreeRule } from './drawn.js';
import { type DrawnRound, resultOf } from './tree.js';

export interface TreeProgress {
  /** Whether children of leading paths are to be drawn while scores are pending. */
  readonly speculates: () => boolean;
  readonly onRound: (drawn: readonly Drawn[]) => void;
}

export async function searchTree(
  drawing: Drawing,
  plan: SearchPlan,
  rule: TreeRule,
  { speculates, onRound }: TreeProgress,
): Promise<ProblemResult> {
  const rounds: DrawnRound[] = [];
  let children = rule.first;
  let completed = 0;
  for (let iteration = 0; iteration < plan.iterations && children.length > 0; iteration += plan.every) {
    const place = placeOf(iteration, plan);
    const isLast = iteration + place.steps >= plan.iterations;
    const before = completed;
    const guess = (known: readonly Drawn[]) => (speculates() ? rule.choose(known, before).children : []);
    const next = placeOf(iteration + plan.every, plan);
    const drawn = await drawing.round({ children, ...place, ...(isLast ? {} : { guess, next }) });
    const choice = rule.choose(drawn, completed);
    completed += drawn.filter(({ state }) => state === 'completed').length;
    rounds.push({ drawn, choice, isLast: isLast || choice.children.length === 0 });
    onRound(drawn);
    children = choice.children;
  }
  return resultOf(plan, rounds, rule.candidates(rounds.map(({ drawn }) => drawn)));
}

/** search-and-learn draws the last step to the end of the text. */
const placeOf = (iteration: number, plan: SearchPlan): Pick<Round, 'iteration' | 'steps' | 'toEnd'> => ({
  iteration,
  steps: Math.min(plan.every, plan.iterations - iteration),
  toEnd: plan.isSal && iteration === plan.iterations - 1,
});
