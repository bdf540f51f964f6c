/** The CUDA target's way to an executor: a plan on one device or on a pipeline of several. */
import { readSettings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { Executor } from '../executor.js';
import type { LoadProgress } from '../files.js';
import { NO_TOKENS, ReservedStates } from '../reservedStates.js';
import { type PlanStages, stageRanges, type StageRanges } from '../runtimePlan.js';
import type { BucketOf, FirstCall } from '../stageRunner.js';
import { type CudaAddon, requireCuda } from './addon.js';
import { type Background, BucketLoader, bucketOrder, firstBuckets } from './bucketLoader.js';
import { type Cubins, knownCubins } from './compileQueue.js';
import { type CudaMemoryUse, heldBytesOf } from './memoryUse.js';
import type { CudaPipeline } from './native.js';
import type { WeightExchange } from './shareWeights.js';
import { CudaStage, type CudaStageOptions } from './stage.js';
import { OneDevice, Pipeline, PIPELINE_ARENAS } from './stageRunner.js';

/** What drivers map memory in. */
const PIECE_BYTES = 2 << 20;

export interface CudaExecutorOptions extends Omit<
  CudaStageOptions,
  'addon' | 'ordinal' | 'stages' | 'index' | 'arenas' | 'isPiped' | 'exchange' | 'cubins' | 'first'
> {
  /** Machine code by kernel symbol: all of it, or some of it still on its way. */
  readonly cubins: ReadonlyMap<string, Uint8Array> | Cubins;
  /** The calls that come first: their buckets are waited for. By default the largest of every function. */
  readonly first?: readonly FirstCall[] | undefined;
  /** When buckets that nobody waits for become ready; for tests. */
  readonly background?: Background | undefined;
  /** Told why a bucket could not be made ready where no call has been told when the executor is closed. */
  readonly onUnseen?: (error: Error) => void;
  /** The device of each stage. */
  readonly ordinals: readonly number[];
  /** Launches of each stage, in order and without a gap; by default one stage has all. */
  readonly stages?: PlanStages;
  /** Where replicas start together: the way to the others' devices of a stage. */
  readonly exchangeOf?: (stage: number) => WeightExchange;
  /** Longest tree path (context) of the model, in tokens; by default as many as fit a call. */
  readonly maxLength?: number;
  /** False: what passes between stages goes through the host. By default as the settings say. */
  readonly usesPeers?: boolean;
  /** How results reach the next device, for each cut. Called once, where there are several stages. */
  readonly onRoutes?: (routes: CudaPipeline['routes']) => void;
  /** The addon's CUDA part with its driver loaded; by default the real one. */
  readonly addon?: CudaAddon;
}

/** One report of several loads that go on at the same time. */
function together(
  count: number,
  report: (progress: LoadProgress) => void,
): (part: number) => (progress: LoadProgress) => void {
  const parts: (LoadProgress | undefined)[] = Array.from({ length: count });
  return (part) => (progress) => {
    parts[part] = progress;
    const known = parts.filter((one) => one !== undefined);
    // Until every load has told its size, the whole is taken for as large as what is known would have it.
    const sum = (of: (one: LoadProgress) => number): number => known.reduce((total, one) => total + of(one), 0);
    report({
      doneBytes: sum((one) => one.doneBytes),
      totalBytes: Math.ceil((sum((one) => one.totalBytes) * count) / known.length),
      weight: progress.weight,
    });
  };
}

async function releaseAll(stages: readonly CudaStage[]): Promise<void> {
  for (const stage of stages) await stage.release();
}

/** Every stage, loaded at the same time; none where one fails. */
async function loadStages(
  addon: CudaAddon,
  options: CudaExecutorOptions & { readonly cubins: Cubins },
  ranges: readonly StageRanges[],
  first: readonly BucketOf[],
): Promise<readonly CudaStage[]> {
  const isPiped = ranges.length > 1;
  const progressOf = options.onProgress === undefined ? undefined : together(ranges.length, options.onProgress);
  let failure: { readonly error: unknown } | undefined;
  const loads = await Promise.all(
    ranges.map((_, i) =>
      CudaStage.load({
        ...options,
        addon,
        first,
        stages: ranges,
        index: i,
        ordinal: options.ordinals[i]!,
        isPiped,
        arenas: isPiped ? PIPELINE_ARENAS : 1,
        ...defined({ onProgress: progressOf && progressOf(i) }),
        ...defined({ exchange: options.exchangeOf && options.exchangeOf(i) }),
      }).catch((error: unknown) => {
        failure ??= { error };
        // The others need not wait for their kernels.
        void options.cubins.stop();
        return undefined;
      }),
    ),
  );
  const stages = loads.filter((stage) => stage !== undefined);
  if (failure === undefined) return stages;
  await releaseAll(stages);
  throw failure.error;
}

/**
 * Loads weights and the machine code of the first buckets, on all devices at the same time; other buckets become ready
 * in the background, and a call that needs one waits for it. Memory is reported and checked before it is taken.
 * Throws UserError for tensors that are missing, of the wrong shape or cut off, for kernels that do not compile, and
 * for too little device memory; RangeError for stages that are not the plan. Its `memory` is each device's. `cubins`
 * are stopped where it throws, and when it is closed.
 */
export async function openCudaExecutor(given: CudaExecutorOptions): Promise<Executor<readonly CudaMemoryUse[]>> {
  const { plan, kernels, maxLength, onUnseen, background } = given;
  const cubins = 'stop' in given.cubins ? given.cubins : knownCubins(given.cubins);
  let stages: readonly CudaStage[] = [];
  let loader: BucketLoader | undefined;
  try {
    const ranges = stageRanges(plan, given.stages);
    if (given.ordinals.length !== ranges.length)
      throw new RangeError(`${ranges.length} stages on ${given.ordinals.length} devices.`);
    const addon = given.addon ?? requireCuda();
    const first = firstBuckets(plan, given.first ?? [], ranges.length);
    stages = await loadStages(addon, { ...given, cubins }, ranges, first);
    const memory = stages.map(({ use }) => use);
    const states = new ReservedStates(
      stages.map((stage) => stage.states),
      PIECE_BYTES,
    );
    const { first: tokens } = given.tokens ?? NO_TOKENS;
    if ((await states.resize(tokens)) < tokens) throw stages[0]!.memoryError();
    loader = new BucketLoader({
      plan,
      kernels,
      cubins,
      stages,
      background,
      ...defined({ onUnseen }),
    });
    const runner =
      stages.length === 1
        ? new OneDevice(stages[0]!, states, loader)
        : new Pipeline(addon, plan, stages, states, loader, given.usesPeers ?? readSettings().usesPeers);
    if (runner instanceof Pipeline) given.onRoutes?.(runner.routes);
    const heldBytes = memory.reduce((sum, use) => sum + heldBytesOf(use), 0);
    const executor = new Executor({ plan, runner, memory, heldBytes, maxLength });
    loader.start(bucketOrder(plan, first));
    return executor;
  } catch (error) {
    await (loader?.release() ?? cubins.stop());
    await releaseAll(stages);
    throw error;
  }
}
