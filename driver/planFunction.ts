/** A lowered function as part of a plan: its memory, its launches, and the default schedule of each kernel. */
import type { Scheduling } from '../codegen/scheduling.js';
import type { KernelModule } from '../ir/kernel.js';
import type { Bucket, FunctionPlan } from '../ir/plan.js';
import { verifyIndices } from '../ir/verifyIndices.js';
import { planMemory } from '../passes/planMemory.js';
import { deriveLaunches } from './checkPlan.js';

/** `capacity`: the largest call. Throws if an index of the function could be out of range. */
export function planFunction<S, F>(
  module: KernelModule,
  capacity: Bucket,
  buckets: readonly Bucket[],
  scheduling: Pick<Scheduling<S, F>, 'default'>,
  facts: F,
): FunctionPlan<S> {
  verifyIndices(module);
  const { arenaBytes, placements } = planMemory(module, capacity.extents);
  const launches = deriveLaunches(module, capacity.extents);
  const schedules = buckets.map((bucket) => {
    const chosen: Record<string, S> = {};
    module.kernels.forEach((kernel, i) => {
      chosen[launches[i]!.signature] ??= scheduling.default(kernel, module, facts, bucket);
    });
    return chosen;
  });
  const { interface: own, buffers, kernels } = module;
  return { interface: own, buffers, kernels, launches, capacity, arenaBytes, placements, buckets, schedules };
}
