/** Whether a plan that was read is the one its own graph implies. Nothing derived is taken on trust. */
import { isDeepStrictEqual } from 'node:util';
import { kernelSignature, parametersOf } from '../codegen/signature.js';
import type { Graph } from '../ir/graph.js';
import type { Launch, Plan } from '../ir/plan.js';
import { verifyGraph } from '../ir/verify.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import { lower, type Numerics } from '../passes/pipeline.js';
import { planMemory } from '../passes/planMemory.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';

/** One launch a kernel, in order. Signatures are equal where only names differ. */
export function deriveLaunches(module: KernelModule, capacityTokens: number): readonly Launch[] {
  return module.kernels.map((kernel) => ({
    kernel: kernel.name,
    signature: kernelSignature(kernel, module, capacityTokens),
    parameters: parametersOf(kernel, module),
  }));
}

/** Largest micro-batch that a plan may be made for, tokens. */
export const MAX_CAPACITY = 1 << 16;

const PARTS = ['buffers', 'weights', 'constants', 'kernels'] as const;

/** Throws an Error where the kernels or weights of the plan are not those of the graph it says it was made from. */
export function checkAgainstGraph(plan: Plan<unknown>, graph: Graph, numerics: Numerics): void {
  verifyGraph(graph, 'graph.tw');
  const module = lower(graph, numerics);
  for (const part of PARTS) {
    if (!isDeepStrictEqual(plan[part], module[part])) throw new Error(`its ${part} are not those of graph.tw`);
  }
}

/** Whether a schedule may be used for a kernel here; if not, why. */
export type Legality<S> = (kernel: Kernel, module: KernelModule, schedule: S) => true | string;

/** Throws an Error that says what does not fit. */
export function checkPlan<S>(plan: Plan<S>, isLegal: Legality<S>): void {
  verifyKernels(plan);
  if (plan.capacity.tokens > MAX_CAPACITY || plan.capacity.rows > MAX_CAPACITY)
    throw new Error(`a micro-batch of ${plan.capacity.tokens} tokens is more than ${MAX_CAPACITY}`);
  const memory = planMemory(plan, plan.capacity);
  if (memory.arenaBytes !== plan.arenaBytes || !isDeepStrictEqual(memory.placements, plan.placements))
    throw new Error('the memory placements are not those of its kernels');
  const launches = deriveLaunches(plan, plan.capacity.tokens);
  if (!isDeepStrictEqual(launches, plan.launches)) throw new Error('the launches are not those of its kernels');
  if (plan.schedules.length !== plan.buckets.length)
    throw new Error(`${plan.buckets.length} buckets, but schedules for ${plan.schedules.length}`);
  for (const extent of ['tokens', 'rows'] as const) {
    if (Math.max(...plan.buckets.map((bucket) => bucket[extent])) !== plan.capacity[extent])
      throw new Error(`its largest bucket is not its capacity of ${plan.capacity[extent]} ${extent}`);
  }
  checkSchedules(plan, isLegal);
  const known = new Set([
    ...plan.weights.flatMap((w) => w.sources.map((s) => s.tensor)),
    ...plan.weights.flatMap((w) => w.columnScale ?? []),
  ]);
  const stray = plan.constants.find((c) => !known.has(c.name));
  if (stray !== undefined) throw new Error(`the constant ${stray.name} is not read by any weight`);
}

/** Schedules decide sizes in generated code: each must be one that the tuner could have chosen. */
function checkSchedules<S>(plan: Plan<S>, isLegal: Legality<S>): void {
  plan.schedules.forEach((schedules, bucket) => {
    plan.launches.forEach((launch, i) => {
      const schedule = schedules[launch.signature];
      if (schedule === undefined) throw new Error(`bucket ${bucket} has no schedule for kernel ${launch.kernel}`);
      const legal = isLegal(plan.kernels[i]!, plan, schedule);
      if (legal !== true)
        throw new Error(`bucket ${bucket}, kernel ${launch.kernel}: the schedule is not legal: ${legal}`);
    });
  });
}
