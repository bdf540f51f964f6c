/** The loop of all methods that search in iterations: draw, score, choose. */
import type { SearchPlan } from '../plan.js';
import type { ProblemResult } from '../result.js';
import type { Drawing, Guess, Round } from './drawing.js';
import { bestOf, type Drawn, type TreeRule } from './drawn.js';
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
  drawing.prepare(rule.first);
  let children = rule.first;
  let completed = 0;
  for (let iteration = 0; iteration < plan.iterations && children.length > 0; iteration += plan.every) {
    const place = placeOf(iteration, plan);
    const isLast = iteration + place.steps >= plan.iterations;
    const [of, count] = [children.length, completed];
    const guess = (known: readonly Drawn[]) => (speculates() ? guessOf(rule, known, count, of) : NOTHING);
    const next = placeOf(iteration + plan.every, plan);
    const drawn = await drawing.round({ children, ...place, ...(isLast ? {} : { guess, next }) });
    const choice = rule.choose(drawn, completed);
    completed += drawn.filter(({ state }) => state === 'completed').length;
    rounds.push({ drawn, choice, isLast: isLast || choice.children.length === 0 });
    onRound(drawn);
    // In the last iteration they say what would be drawn.
    children = isLast ? [] : choice.children;
    drawing.keepOnly(children.flatMap(({ parent }) => parent ?? []));
    drawing.prepare(children);
  }
  return resultOf(plan, rounds, rule.candidates(rounds.map(({ drawn }) => drawn)));
}

/** search-and-learn draws the last step to the end of the text. */
const placeOf = (iteration: number, plan: SearchPlan): Pick<Round, 'iteration' | 'steps' | 'toEnd'> => ({
  iteration,
  steps: Math.min(plan.every, plan.iterations - iteration),
  toEnd: plan.isSal && iteration === plan.iterations - 1,
});

const NOTHING: Guess = { wanted: [], isOpen: () => true };

/**
 * Wanted are children of paths that probably survive, once half of an iteration's paths are drawn: of those that
 * survive among them, as many of the best as of all would. A child is given up when its parent has a score and does not
 * survive among those that are known. This decides what is drawn early, and no result.
 */
function guessOf(rule: TreeRule, known: readonly Drawn[], completed: number, of: number): Guess {
  if (known.length * 2 < of) return NOTHING;
  const { survivors, children } = rule.choose(
    known.toSorted((a, b) => a.place - b.place),
    completed,
  );
  const likely = new Set(bestOf([...survivors], Math.ceil((survivors.size * known.length) / of)));
  const isOut = new Set(
    known.filter((path) => path.scores.length > 0 && !survivors.has(path)).map(({ place }) => place),
  );
  return { wanted: children.filter(({ parent }) => likely.has(parent!)), isOpen: (place) => !isOut.has(place) };
}
