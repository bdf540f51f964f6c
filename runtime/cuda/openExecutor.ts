/** The CUDA target's way to an executor: a plan on one device or on a pipeline of several. */
import { readSettings } from '../../settings.js';
import { Executor } from '../executor.js';
import type { LoadProgress } from '../files.js';
import { stageRanges, type PlanStages, type StageRanges } from '../stagePlan.js';
import { requireCuda, type CudaAddon } from './addon.js';
import type { CudaPipeline } from './nativePipeline.js';
import type { CudaMemoryUse } from './memoryUse.js';
import type { WeightExchange } from './shareWeights.js';
import { CudaStage, type CudaStageOptions } from './stage.js';
import type { PreparedDevice } from './weights.js';
import { OneDevice, Pipeline, PIPELINE_ARENAS } from './stageRunner.js';

export interface CudaExecutorOptions extends Omit<
  CudaStageOptions,
  'addon' | 'ordinal' | 'stages' | 'index' | 'arenas' | 'isPiped' | 'exchange' | 'prepared'
> {
  /** The device of each stage. */
  readonly ordinals: readonly number[];
  /** Of each stage, devices that were made before the plan was known (prepareDevice). They are released with it. */
  readonly prepared?: readonly PreparedDevice[];
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
  options: CudaExecutorOptions,
  ranges: readonly StageRanges[],
): Promise<readonly CudaStage[]> {
  const isPiped = ranges.length > 1;
  const { prepared, ...rest } = options;
  const progressOf = options.onProgress === undefined ? undefined : together(ranges.length, options.onProgress);
  const loads = await Promise.allSettled(
    ranges.map((_, i) =>
      CudaStage.load({
        ...rest,
        ...(prepared === undefined ? {} : { prepared: prepared[i]! }),
        addon,
        stages: ranges,
        index: i,
        ordinal: options.ordinals[i]!,
        isPiped,
        arenas: isPiped ? PIPELINE_ARENAS : 1,
        ...(progressOf === undefined ? {} : { onProgress: progressOf(i) }),
        ...(options.exchangeOf === undefined ? {} : { exchange: options.exchangeOf(i) }),
      }),
    ),
  );
  const stages = loads.flatMap((load) => (load.status === 'fulfilled' ? [load.value] : []));
  const failed = loads.find((load) => load.status === 'rejected');
  if (failed === undefined) return stages;
  await releaseAll(stages);
  throw failed.reason;
}

/**
 * Loads machine code and weights and binds every bucket of every function, on all devices at the same time. Memory is
 * reported and checked before it is taken. Throws UserError for tensors that are missing, of the wrong shape or cut
 * off, and for too little device memory; RangeError for stages that are not the plan. Its `memory` is each device's.
 */
export async function openCudaExecutor(options: CudaExecutorOptions): Promise<Executor<readonly CudaMemoryUse[]>> {
  const { plan, ordinals, maxLength } = options;
  const ranges = stageRanges(plan, options.stages);
  if (ordinals.length !== ranges.length) throw new RangeError(`${ranges.length} stages on ${ordinals.length} devices.`);
  const addon = options.addon ?? requireCuda();
  const stages = await loadStages(addon, options, ranges);
  const memory = stages.map(({ use }) => use);
  try {
    if (stages.length === 1) return new Executor({ plan, runner: new OneDevice(stages[0]!), memory, maxLength });
    const runner = new Pipeline(addon, plan, stages, options.usesPeers ?? readSettings().usesPeers);
    options.onRoutes?.(runner.routes);
    return new Executor({ plan, runner, memory, maxLength });
  } catch (error) {
    await releaseAll(stages);
    throw error;
  }
}
