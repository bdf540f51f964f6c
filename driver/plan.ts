/** Plans: made of lowered functions, and checked against their own graph when they are read from a file. */
import { isDeepStrictEqual } from 'node:util';
import type { Scheduling } from '../codegen/scheduling.js';
import { kernelSignature, parametersOf } from '../codegen/signature.js';
import { extentIn, type Extents, printExtents } from '../ir/extents.js';
import { sizeNames } from '../ir/function.js';
import type { GraphModule } from '../ir/graph/graph.js';
import { verifyModule } from '../ir/graph/verify.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import {
  type Bucket,
  type FunctionPlan,
  type Launch,
  type LinkedFunction,
  linkFunction,
  type Plan,
} from '../ir/plan.js';
import { KEYS_PER_TOKEN, LISTED_KEYS } from '../ir/scoring.js';
import { ENTRIES, MAX_KEYS } from '../ir/stepping.js';
import { verifyIndices } from '../ir/verifyIndices.js';
import { verifyKernels } from '../ir/verifyKernel.js';
import type { Numerics } from '../passes/numerics.js';
import { planMemory } from '../passes/planMemory.js';
import { lowerModule } from '../passes/runPasses.js';
import { at } from '../system/at.js';
import { defined } from '../system/defined.js';

/** `capacity`: the largest call. Throws if an index of the function could be out of range. */
export function planFunction<S, F>(
  module: KernelModule,
  capacity: Bucket,
  buckets: readonly Bucket[],
  scheduling: Pick<Scheduling<S, F>, 'default' | 'settle'>,
  facts: F,
): FunctionPlan<S> {
  verifyIndices(module);
  const { arenaBytes, placements } = planMemory(module, capacity.extents);
  const launches = deriveLaunches(module, capacity.extents);
  const schedules = buckets.map((bucket) => {
    const chosen: Record<string, S> = {};
    module.kernels.forEach((kernel, i) => {
      chosen[at(launches, i).signature] ??= scheduling.default(kernel, module, facts, bucket);
    });
    return scheduling.settle?.(module, launches, chosen, bucket) ?? chosen;
  });
  const { interface: own, buffers, kernels } = module;
  return { interface: own, buffers, kernels, launches, capacity, arenaBytes, placements, buckets, schedules };
}

/** One launch per kernel, in order. Kernels that differ only in names have equal signatures. */
export function deriveLaunches(module: KernelModule, capacity: Extents): readonly Launch[] {
  return module.kernels.map((kernel) => ({
    kernel: kernel.name,
    signature: kernelSignature(kernel, module, capacity),
    parameters: parametersOf(kernel, module),
  }));
}

/** Largest extent that a plan may have, except for lists of keys and entries. */
export const MAX_CAPACITY = 1 << 16;
const MAX_LISTED_KEYS = Math.max(KEYS_PER_TOKEN * MAX_CAPACITY, MAX_KEYS);

const SHARED = ['weights', 'constants', 'states'] as const;
const OWN = ['interface', 'buffers', 'kernels'] as const;

/** Throws an Error if the plan's functions, weights or states differ from those of the module it was made from. */
export function checkAgainstGraph(plan: Plan<unknown>, module: GraphModule, numerics: Numerics): void {
  verifyModule(module, 'graph.tw');
  const lowered = lowerModule(module, numerics);
  const differ = (what: string): never => {
    throw new Error(`its ${what} are not those of graph.tw`);
  };
  if (plan.functions.length !== lowered.functions.length) differ('functions');
  for (const part of SHARED) if (!isDeepStrictEqual(plan[part], lowered[part])) differ(part);
  lowered.functions.forEach((own, i) => {
    for (const part of OWN) if (!isDeepStrictEqual(at(plan.functions, i)[part], own[part])) differ(part);
  });
}

/** Whether schedules may be used on this machine: each for its kernel, or why not; and those of a bucket together. */
export interface Legality<S> {
  readonly isLegal: (kernel: Kernel, module: KernelModule, schedule: S) => true | string;
  readonly settle?: Scheduling<S, never>['settle'];
}

/** What a target's schedules have to be on a device. */
export const legalityOf = <S, F>({ legality, settle }: Scheduling<S, F>, device: F): Legality<S> => ({
  isLegal: (kernel, module, schedule) => legality(kernel, module, schedule, device),
  ...defined({ settle }),
});

/**
 * Throws an Error that names the mismatch. Without `legality` schedules are taken as they are,
 * because code comes with them.
 */
export function checkPlan<S>(plan: Plan<S>, legality?: Legality<S>): void {
  const names = plan.functions.map((each) => each.interface.name);
  if (names.length === 0) throw new Error('it has no function');
  if (new Set(names).size < names.length) throw new Error('two functions have one name');
  for (const name of names) checkFunction(linkFunction(plan, name), legality);
  const known = new Set([
    ...plan.weights.flatMap((w) => w.sources.map((s) => s.tensor)),
    ...plan.weights.flatMap((w) => w.columnScale ?? []),
  ]);
  const stray = plan.constants.find((c) => !known.has(c.name));
  if (stray !== undefined) throw new Error(`the constant ${stray.name} is not read by any weight`);
}

function checkFunction<S>(plan: LinkedFunction<S>, legality: Legality<S> | undefined): void {
  verifyKernels(plan);
  verifyIndices(plan);
  const extents = sizeNames(plan.interface);
  const { capacity } = plan;
  for (const bucket of [capacity, ...plan.buckets, ...(plan.bucketSeconds ?? [])]) {
    if (!isDeepStrictEqual(Object.keys(bucket.extents), extents))
      throw new Error(
        `a bucket of ${printExtents(bucket.extents)}, but the extents are ${extents.join(', ')}, in this order`,
      );
  }
  for (const extent of extents) {
    const most = extentIn(extent, capacity.extents);
    const limit = extent === LISTED_KEYS || extent === ENTRIES ? MAX_LISTED_KEYS : MAX_CAPACITY;
    if (most > limit) throw new Error(`a capacity of ${most} ${extent} is more than ${limit}`);
    if (Math.max(...plan.buckets.map((bucket) => extentIn(extent, bucket.extents))) !== most)
      throw new Error(`its largest bucket is not its capacity of ${most} ${extent}`);
  }
  // A call of any size has a bucket, then.
  const holdsAll = ({ extents: own, withoutAdapters }: Bucket): boolean =>
    withoutAdapters !== true && isDeepStrictEqual(own, capacity.extents);
  if (!plan.buckets.some(holdsAll))
    throw new Error(`none of its buckets has its capacity of ${printExtents(capacity.extents)}`);
  const memory = planMemory(plan, capacity.extents);
  if (memory.arenaBytes !== plan.arenaBytes || !isDeepStrictEqual(memory.placements, plan.placements))
    throw new Error('the memory placements are not those of its kernels');
  const launches = deriveLaunches(plan, capacity.extents);
  if (!isDeepStrictEqual(launches, plan.launches)) throw new Error('the launches are not those of its kernels');
  if (plan.schedules.length !== plan.buckets.length)
    throw new Error(`${plan.buckets.length} buckets, but schedules for ${plan.schedules.length}`);
  if (legality !== undefined) checkSchedules(plan, legality);
}

/** Schedules decide sizes in generated code, so each must be one that the tuner could have chosen. */
function checkSchedules<S>(plan: LinkedFunction<S>, { isLegal, settle }: Legality<S>): void {
  plan.schedules.forEach((schedules, bucket) => {
    plan.launches.forEach((launch, i) => {
      const schedule = schedules[launch.signature];
      if (schedule === undefined) throw new Error(`bucket ${bucket} has no schedule for kernel ${launch.kernel}`);
      const legal = isLegal(at(plan.kernels, i), plan, schedule);
      if (legal !== true)
        throw new Error(`bucket ${bucket}, kernel ${launch.kernel}: the schedule is not legal: ${legal}`);
    });
    const settled = settle?.(plan, plan.launches, schedules, at(plan.buckets, bucket)) ?? schedules;
    if (!isDeepStrictEqual(settled, schedules))
      throw new Error(`bucket ${bucket}: its schedules differ in which kernels compute what adapters add`);
  });
}
