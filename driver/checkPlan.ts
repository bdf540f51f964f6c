/** Whether a plan that was read is the one its own kernels imply. Nothing derived is taken on trust. */
import { isDeepStrictEqual } from 'node:util';
import { kernelSignature, parametersOf } from '../codegen/cpu/index.js';
import type { Launch, Plan } from '../ir/plan.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import { planMemory } from '../passes/planMemory.js';
import type { KernelModule } from '../ir/kernel.js';

/** One launch a kernel, in order. Signatures are equal where only names differ. */
export function deriveLaunches(module: KernelModule, capacityTokens: number): readonly Launch[] {
  return module.kernels.map((kernel) => ({
    kernel: kernel.name, signature: kernelSignature(kernel, module, capacityTokens), parameters: parametersOf(kernel, module),
  }));
}

/** Throws an Error that says what does not fit. */
export function checkPlan(plan: Plan): void {
  verifyKernels(plan);
  const memory = planMemory(plan, plan.capacity);
  if (memory.arenaBytes !== plan.arenaBytes || !isDeepStrictEqual(memory.placements, plan.placements)) throw new Error('the memory placements are not those of its kernels');
  const launches = deriveLaunches(plan, plan.capacity.tokens);
  if (!isDeepStrictEqual(launches, plan.launches)) throw new Error('the launches are not those of its kernels');
  if (plan.schedules.length !== plan.buckets.length) throw new Error(`${plan.buckets.length} buckets, but schedules for ${plan.schedules.length}`);
  plan.schedules.forEach((schedules, i) => {
    const missing = launches.find((launch) => schedules[launch.signature] === undefined);
    if (missing !== undefined) throw new Error(`bucket ${i} has no schedule for kernel ${missing.kernel}`);
  });
  const known = new Set([...plan.weights.flatMap((w) => w.sources.map((s) => s.tensor)), ...plan.weights.flatMap((w) => w.columnScale ?? [])]);
  const stray = plan.constants.find((c) => !known.has(c.name));
  if (stray !== undefined) throw new Error(`the constant ${stray.name} is not read by any weight`);
}
