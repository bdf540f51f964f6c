/** The part of a plan that one stage of a pipeline executes, and what it hands to the next. */
import type { BufferDecl, Kernel } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import type { Stage } from '../ir/placement.js';
import type { RuntimePlan } from './ports.js';

/**
 * The plan of a stage: its launches, their kernels, and the weights that they name. Buffers, their places in the arena
 * and buckets stay those of the whole plan, so that every stage finds a buffer at the same offset. What depends on
 * kernels of other stages (portsOf, masksOf, vocabOf) is asked of the whole plan.
 * Throws RangeError for a range that is empty or not of the plan.
 */
export function stagePlan<P extends RuntimePlan>(plan: P, { first, end }: Stage): P {
  const isRange =
    Number.isInteger(first) && Number.isInteger(end) && first >= 0 && first < end && end <= plan.launches.length;
  if (!isRange)
    throw new RangeError(
      `A stage of launches ${first} to ${end - 1} is no part of a plan of ${plan.launches.length} launches.`,
    );
  if (first === 0 && end === plan.launches.length) return plan;
  const launches = plan.launches.slice(first, end);
  const run = new Set(launches.map(({ kernel }) => kernel));
  const named = new Set(launches.flatMap(({ parameters }) => parameters));
  return {
    ...plan,
    launches,
    kernels: plan.kernels.filter(({ name }) => run.has(name)),
    weights: plan.weights.filter(({ name }) => named.has(name)),
  };
}

/**
 * What crosses a cut before launch `end`: the buffers that earlier launches write and later ones read, and outputs that
 * earlier ones write. In the order of the plan's buffers; inputs, which every stage is given, are not among them.
 */
export function boundaryOf(plan: RuntimePlan, end: number): readonly BufferDecl[] {
  const kernels = new Map<string, Kernel>(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const written = new Set<string>();
  const read = new Set<string>();
  plan.launches.forEach(({ kernel: name }, i) => {
    const kernel = kernels.get(name);
    if (kernel === undefined) throw new Error(`Launch ${i} runs ${name}, which the plan does not have.`);
    for (const buffer of i < end ? kernelWrites(kernel) : kernelReads(kernel)) (i < end ? written : read).add(buffer);
  });
  return plan.buffers.filter(
    ({ name, space }) =>
      (space === 'arena' && written.has(name) && read.has(name)) || (space === 'output' && written.has(name)),
  );
}
