/** What a plan says of its slots for adapters. */
import type { AdapterSlots } from '../../ir/adapterRows.js';
import type { Plan } from '../../ir/plan.js';
import { at } from '../../system/at.js';

/** The slots of a plan, and the rank of each; undefined where it was compiled without. */
export function slotsOf(plan: Pick<Plan<unknown>, 'weights'>): AdapterSlots | undefined {
  const first = plan.weights.find(({ slots }) => slots?.holds === 'a');
  return first && { slots: first.slots!.count, rank: at(first.sources, 0).rows };
}
