/** Best-of-n and votes: whole texts are drawn, each scored once. */
import type { SearchPlan } from '../plan.js';
import type { ProblemResult } from '../result.js';
import type { Drawing } from './drawing.js';
import { type Drawn, rootChildren } from './drawn.js';
import { bestScored, resultOf } from './tree.js';

export async function searchSamples(
  drawing: Drawing,
  plan: SearchPlan,
  onRound: (drawn: readonly Drawn[]) => void,
): Promise<ProblemResult> {
  const drawn = await drawing.round({ children: rootChildren(plan.n), iteration: 0, steps: 1, toEnd: true });
  onRound(drawn);
  const texts = drawn.filter(({ state }) => state !== 'failed');
  return resultOf(plan, [{ drawn, isLast: true }], texts, bestScored);
}
