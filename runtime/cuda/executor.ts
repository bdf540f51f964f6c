/** A CUDA executor: a plan on one device or on a pipeline of several, ready to score micro-batches. */
import { tokensIn, rowsIn } from '../../ir/scoring.js';
import type { Bucket } from '../../ir/plan.js';
import type { Stage } from '../../ir/placement.js';
import { readSettings } from '../../settings.js';
import { checkBatch, chooseBucket, longestTree, sizeOfBatch, vocabOf, type Batch, type BatchLimits } from '../batch.js';
import type { LoadProgress } from '../files.js';
import type { RuntimePlan } from '../ports.js';
import { NonFiniteError, type Diagnosis, type LaunchProfile, type ScoredBatch } from '../scoring.js';
import { isOutOfDeviceMemory, requireCuda, type CudaAddon, type CudaPipeline } from './addon.js';
import { Gate } from './gate.js';
import { OutOfDeviceMemory, type CudaMemoryUse } from './memoryUse.js';
import type { WeightExchange } from './shareWeights.js';
import { CudaStage, pathOf, type CudaStageOptions } from './stage.js';
import {
  OneDevice,
  Pipeline,
  PIPELINE_ARENAS,
  type RunRequest,
  type RunResult,
  type StageRunner,
} from './stageRunner.js';

export interface CudaExecutorOptions extends Omit<
  CudaStageOptions,
  'addon' | 'ordinal' | 'range' | 'arenas' | 'isPiped' | 'exchange'
> {
  /** The device of each stage. */
  readonly ordinals: readonly number[];
  /** Launches of each stage, in order and without a gap; by default one stage has all. */
  readonly stages?: readonly Stage[];
  /** Where replicas start together: the way to the others' devices of a stage. */
  readonly exchangeOf?: (stage: number) => WeightExchange;
  /** Longest tree path (context) of the model, in tokens; by default as many as fit a micro-batch. */
  readonly maxLength?: number;
  /** False: what passes between stages goes through the host. By default as the settings say. */
  readonly usesPeers?: boolean;
  /** How results reach the next device, for each cut. Called once, where there are several stages. */
  readonly onRoutes?: (routes: CudaPipeline['routes']) => void;
  /** The addon's CUDA part with its driver loaded; by default the real one. */
  readonly addon?: CudaAddon;
}

/** Throws where the stages are not the whole plan, in order, with a device each. */
function checkStages(plan: RuntimePlan, stages: readonly Stage[], ordinals: readonly number[]): void {
  const isWhole =
    stages.every(({ first, end }, i) => first === (i === 0 ? 0 : stages[i - 1]!.end) && first < end) &&
    stages.at(-1)?.end === plan.launches.length;
  if (!isWhole)
    throw new RangeError(
      `Stages ${stages.map(({ first, end }) => `${first}–${end - 1}`).join(', ')} are not the ${plan.launches.length} launches of the plan in order.`,
    );
  if (ordinals.length !== stages.length) throw new RangeError(`${stages.length} stages on ${ordinals.length} devices.`);
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

/** What another process still reads stays until this one ends. */
async function releaseAll(stages: readonly CudaStage[]): Promise<void> {
  for (const stage of stages) if (await stage.isUnshared()) stage.release();
}

/** Every stage, loaded at the same time; none where one fails. */
async function loadStages(
  addon: CudaAddon,
  options: CudaExecutorOptions,
  ranges: readonly Stage[],
): Promise<readonly CudaStage[]> {
  const isPiped = ranges.length > 1;
  const progressOf = options.onProgress === undefined ? undefined : together(ranges.length, options.onProgress);
  const loads = await Promise.allSettled(
    ranges.map((range, i) =>
      CudaStage.load({
        ...options,
        addon,
        range,
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

export class CudaExecutor {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly buckets: readonly Bucket[];
  /** Micro-batches that keep every device busy; more wait. */
  readonly inFlight: number;
  private readonly plan: RuntimePlan;
  private readonly stages: readonly CudaStage[];
  private readonly runner: StageRunner;
  private readonly limits: BatchLimits;
  private readonly gate: Gate;
  private lastSearch: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  private constructor(
    stages: readonly CudaStage[],
    runner: StageRunner,
    { plan, maxLength = tokensIn(plan.capacity) }: CudaExecutorOptions,
  ) {
    this.plan = plan;
    this.stages = stages;
    this.runner = runner;
    this.inFlight = runner.inFlight;
    this.gate = new Gate(runner.inFlight);
    this.buckets = plan.buckets;
    this.maxTokens = Math.max(...plan.buckets.map(tokensIn));
    this.maxRows = Math.max(...plan.buckets.map(rowsIn));
    this.maxLength = maxLength;
    this.limits = { vocab: vocabOf(plan), maxLength };
  }

  /**
   * Loads machine code and weights and binds every bucket, on all devices at the same time. Memory is reported and
   * checked before it is taken. Throws UserError for tensors that are missing, of the wrong shape or cut off, and for
   * too little device memory; RangeError for stages that are not the plan.
   */
  static async create(options: CudaExecutorOptions): Promise<CudaExecutor> {
    const { plan, ordinals } = options;
    const ranges = options.stages ?? [{ first: 0, end: plan.launches.length }];
    checkStages(plan, ranges, ordinals);
    const addon = options.addon ?? requireCuda();
    const stages = await loadStages(addon, options, ranges);
    try {
      if (stages.length === 1) return new CudaExecutor(stages, new OneDevice(stages[0]!), options);
      const pipeline = new Pipeline(addon, plan, stages, options.usesPeers ?? readSettings().usesPeers);
      options.onRoutes?.(pipeline.routes);
      return new CudaExecutor(stages, pipeline, options);
    } catch (error) {
      await releaseAll(stages);
      throw error;
    }
  }

  /**
   * Scores a micro-batch; `inFlight` calls may be on the devices at once. Rejects with NonFiniteError, with RangeError
   * for indices outside the model or the plan, with OutOfDeviceMemory where a smaller micro-batch may do.
   */
  async score(batch: Batch): Promise<ScoredBatch> {
    if (batch.row.length === 0) return { logProb: new Float32Array(0), isArgmax: new Int32Array(0) };
    const { outputs, spans } = await this.run(batch, 'score');
    const logProb = new Float32Array(outputs[0]!);
    const bad = [...logProb.keys()].filter((i) => !Number.isFinite(logProb[i]));
    if (bad.length > 0) throw new NonFiniteError((await this.diagnose(batch))?.path, bad);
    return { logProb, isArgmax: new Int32Array(outputs[1]!), spans };
  }

  /** Runs a micro-batch once, measuring each launch on its device. */
  async profile(batch: Batch): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const { launchMilliseconds } = await this.run(batch, 'profile');
    const launches = this.plan.launches.map(({ kernel }, i) => ({
      kernel,
      path: pathOf(this.plan, i),
      nanoseconds: (launchMilliseconds[i] ?? NaN) * 1e6,
    }));
    return { bucket: this.buckets[this.bucketOf(batch)]!, launches };
  }

  /** Runs a micro-batch, searching every launch's results: the first value that is not finite, or undefined. */
  diagnose(batch: Batch): Promise<Diagnosis | undefined> {
    // One at a time: they share the memory of answers.
    const job = this.lastSearch.then(() => this.search(batch));
    this.lastSearch = job.catch(() => undefined);
    return job;
  }

  /** Of each device. */
  memory(): readonly CudaMemoryUse[] {
    return this.stages.map(({ use }) => use);
  }

  /** Most by which times of spans were wrong by the host's clock when the devices were opened, milliseconds. */
  get clockErrorMilliseconds(): number {
    return Math.max(...this.stages.map(({ clock }) => clock.errorMilliseconds));
  }

  /** Waits for what is on the devices, then gives everything back. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    await this.lastSearch;
    await this.gate.drain();
    this.runner.release();
    await releaseAll(this.stages);
  }

  private bucketOf(batch: Batch): number {
    return chooseBucket(this.buckets, sizeOfBatch(batch), longestTree(batch));
  }

  private requestOf(batch: Batch, kind: RunRequest['kind']): RunRequest {
    if (this.isClosed) throw new Error('This executor was closed.');
    checkBatch(batch, this.limits);
    return { batch, kind, bucket: this.bucketOf(batch) };
  }

  /** On the devices as soon as there is room. */
  private async enqueue<T>(batch: Batch, work: () => Promise<T>): Promise<T> {
    return this.gate.pass(async () => {
      try {
        return await work();
      } catch (error) {
        if (isOutOfDeviceMemory(error))
          throw new OutOfDeviceMemory(batch.tokens.length, batch.row.length, { cause: error });
        throw error;
      }
    });
  }

  private async run(batch: Batch, kind: RunRequest['kind']): Promise<RunResult> {
    const request = this.requestOf(batch, kind);
    return this.enqueue(batch, () => this.runner.run(request));
  }

  private async search(batch: Batch): Promise<Diagnosis | undefined> {
    const request = this.requestOf(batch, 'search');
    const found = await this.enqueue(batch, async () => {
      for (const stage of this.stages) stage.clearSearch();
      await this.runner.run(request);
      return Promise.all(this.stages.map((stage) => stage.found(batch.tokens.length, batch.row.length)));
    });
    return found.find((diagnosis) => diagnosis !== undefined);
  }
}
