/** The CPU device: a plan, its kernels and its weights, ready to score micro-batches. */
import { tokensIn, rowsIn } from '../../ir/scoring.js';
import type { Stage } from '../../ir/placement.js';
import type { Bucket, LinkedFunction } from '../../ir/plan.js';
import { loadAddon, type NativeLibrary, type RunRequest, type RunResult } from '../addon.js';
import { scratchOf, type LaunchSymbol } from './bindPlan.js';
import { bytesToPack } from './loadWeights.js';
import { requireMemory, type MemoryUse } from './memoryUse.js';
import { CpuStage, planCpuStage, type CpuStagePlan } from './stage.js';
import { StageFlow } from './stageFlow.js';
import { checkBatch, chooseBucket, longestTree, sizeOfBatch, vocabOf, type Batch, type BatchLimits } from '../batch.js';
import { sizesOf } from '../extents.js';
import { FileMappings, type LoadProgress } from '../files.js';
import { floatWrites, portsOf, type InputName } from '../ports.js';
import { NonFiniteError, type DeviceSpan, type Diagnosis, type LaunchProfile, type ScoredBatch } from '../scoring.js';
import type { TensorSource } from '../tensorSource.js';

export interface CpuExecutorOptions {
  readonly plan: LinkedFunction;
  /** symbols[bucket][launch]: where generated code is. */
  readonly symbols: readonly (readonly LaunchSymbol[])[];
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Of all stages together; each has at least one. */
  readonly threads: number;
  /**
   * Ranges of the plan's launches that work at once, on threads and activations of their own; by default one with all.
   */
  readonly stages?: readonly Stage[];
  /** Longest tree path (context) of the model, in tokens; by default as many as fit a micro-batch. */
  readonly maxLength?: number;
  /** One thread a processor, and there it stays: for measuring on a machine of one's own. */
  readonly isPinned?: boolean;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: MemoryUse) => void;
}

/** Native objects of an executor, released together. */
interface Resources {
  readonly files: FileMappings;
  readonly libraries: Map<string, NativeLibrary>;
  readonly stages: CpuStage[];
}

function release({ stages, libraries, files }: Resources): void {
  for (const stage of stages) stage.release();
  for (const library of libraries.values()) library.release();
  files.release();
}

/** Micro-batches that one stage keeps busy: another waits while one is computed. */
const IN_FLIGHT = 2;

/** Stages one after another from the first launch to the last. */
function requireStages(stages: readonly Stage[], launches: number): void {
  const isChain = stages.every(({ first, end }, i) => first === (stages[i - 1]?.end ?? 0) && end > first);
  if (!isChain || stages.at(-1)?.end !== launches)
    throw new Error(`Stages ${JSON.stringify(stages)} do not cover ${launches} launches one after another.`);
}

/** As even as whole threads can be, at least one each. */
const threadsOf = (stage: number, stages: number, threads: number): number =>
  Math.max(1, Math.floor((threads * (stage + 1)) / stages) - Math.floor((threads * stage) / stages));

const now = (): number => performance.timeOrigin + performance.now();

export class CpuExecutor {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly buckets: readonly Bucket[];
  /** Micro-batches that keep every stage busy. */
  readonly inFlight: number;
  private readonly plan: LinkedFunction;
  private readonly resources: Resources;
  private readonly use: MemoryUse;
  private readonly limits: BatchLimits;
  private readonly inputs: readonly InputName[];
  private readonly flow: StageFlow;
  private isClosed = false;
  private readonly onExit = (): void => {
    for (const stage of this.resources.stages) stage.stop();
  };

  private constructor(plan: LinkedFunction, resources: Resources, arenas: number, use: MemoryUse, maxLength: number) {
    this.plan = plan;
    this.resources = resources;
    this.use = use;
    this.buckets = plan.buckets;
    this.inFlight = IN_FLIGHT * resources.stages.length;
    this.maxTokens = Math.max(...plan.buckets.map(tokensIn));
    this.maxRows = Math.max(...plan.buckets.map(rowsIn));
    this.maxLength = maxLength;
    this.limits = { vocab: vocabOf(plan), maxLength: this.maxLength };
    this.inputs = portsOf(plan).inputs;
    this.flow = new StageFlow(resources.stages.length, arenas);
    process.once('exit', this.onExit);
  }

  /**
   * Loads the weights and binds every bucket of every stage. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little memory.
   */
  static async create(options: CpuExecutorOptions): Promise<CpuExecutor> {
    const { plan, symbols, threads, tensors } = options;
    const stages = options.stages ?? [{ first: 0, end: plan.launches.length }];
    requireStages(stages, plan.launches.length);
    if (symbols.length !== plan.buckets.length || symbols.length === 0)
      throw new Error(`${symbols.length} sets of symbols for ${plan.buckets.length} buckets.`);
    const addon = loadAddon();
    const scratchBytes = scratchOf(symbols);
    const arenas = stages.length === 1 ? 1 : 2;
    const planned = stages.map((stage, i): CpuStagePlan =>
      planCpuStage(plan, stage, scratchBytes, { tensors, threads: threadsOf(i, stages.length, threads), arenas }),
    );
    const sum = (of: (use: MemoryUse) => number): number => planned.reduce((total, { use }) => total + of(use), 0);
    const use: MemoryUse = {
      mappedBytes: sum((u) => u.mappedBytes),
      packedBytes: sum((u) => u.packedBytes),
      arenaBytes: sum((u) => u.arenaBytes),
      scratchBytes: sum((u) => u.scratchBytes),
    };
    options.onMemory?.(use);
    requireMemory(use);
    const resources: Resources = { files: new FileMappings(), libraries: new Map(), stages: [] };
    const totalBytes = planned.reduce((total, { weightPlan }) => total + bytesToPack(weightPlan), 0);
    const done = planned.map(() => 0);
    try {
      for (const { library } of symbols.flat())
        if (!resources.libraries.has(library)) resources.libraries.set(library, new addon.Library(library));
      const loaded = await Promise.allSettled(
        planned.map((each, i) =>
          CpuStage.load(
            {
              plan,
              symbols,
              libraries: resources.libraries,
              files: resources.files,
              scratchBytes,
              isPinned: options.isPinned ?? false,
              onProgress: ({ doneBytes, weight }) => {
                done[i] = doneBytes;
                options.onProgress?.({ doneBytes: done.reduce((a, b) => a + b, 0), totalBytes, weight });
              },
            },
            each,
          ),
        ),
      );
      for (const stage of loaded) if (stage.status === 'fulfilled') resources.stages.push(stage.value);
      const failed = loaded.find((stage) => stage.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
      return new CpuExecutor(plan, resources, arenas, use, options.maxLength ?? tokensIn(plan.capacity));
    } catch (error) {
      release(resources);
      throw error;
    }
  }

  /** Scores a micro-batch. Rejects with NonFiniteError, or RangeError for indices outside the model or the plan. */
  async score(batch: Batch): Promise<ScoredBatch> {
    if (batch.row.length === 0) return { logProb: new Float32Array(0), isArgmax: new Int32Array(0) };
    const { results, spans } = await this.run(batch, {});
    const { outputs } = results.at(-1)!;
    const logProb = new Float32Array(outputs[0]!);
    const bad = [...logProb.keys()].filter((i) => !Number.isFinite(logProb[i]));
    if (bad.length > 0) throw new NonFiniteError((await this.diagnose(batch))?.path, bad);
    return { logProb, isArgmax: new Int32Array(outputs[1]!), spans };
  }

  /** Runs a micro-batch once, measuring each launch. */
  async profile(batch: Batch): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const { results } = await this.run(batch, { isTimed: true });
    const launchNs = results.flatMap((result) => [...(result.launchNs ?? [])]);
    const launches = this.plan.launches.map((launch, i) => ({
      kernel: launch.kernel,
      path: this.pathOf(i),
      nanoseconds: launchNs[i] ?? NaN,
    }));
    return { bucket: this.buckets[this.bucketOf(batch)]!, launches };
  }

  /** Runs a micro-batch, searching every launch's results: the first value that is not finite, or undefined. */
  async diagnose(batch: Batch): Promise<Diagnosis | undefined> {
    const { results } = await this.run(batch, { isChecked: true });
    const stage = results.findIndex(({ nonFinite }) => nonFinite !== undefined);
    const nonFinite = results[stage]?.nonFinite;
    if (nonFinite === undefined) return undefined;
    const launch = this.resources.stages[stage]!.stage.first + nonFinite.launch;
    return {
      path: this.pathOf(launch),
      buffer: this.bufferOf(launch, nonFinite.write),
      row: nonFinite.row,
      column: nonFinite.column,
    };
  }

  memory(): MemoryUse {
    return this.use;
  }

  /** Waits for running jobs, then gives up threads, memory and files. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    process.removeListener('exit', this.onExit);
    await this.flow.idle();
    release(this.resources);
  }

  private pathOf(launch: number): string {
    const name = this.plan.launches[launch]!.kernel;
    return this.plan.kernels.find((kernel) => kernel.name === name)?.path ?? name;
  }

  private bufferOf(launch: number, write: number): string {
    const name = this.plan.launches[launch]!.kernel;
    const kernel = this.plan.kernels.find((candidate) => candidate.name === name);
    return kernel === undefined ? name : (floatWrites(this.plan, kernel)[write] ?? name);
  }

  private bucketOf(batch: Batch): number {
    return chooseBucket(this.buckets, sizeOfBatch(batch), longestTree(batch));
  }

  /** What each stage answered, and when each worked. */
  private async run(
    batch: Batch,
    options: Pick<RunRequest, 'isTimed' | 'isChecked'>,
  ): Promise<{ readonly results: readonly RunResult[]; readonly spans: readonly DeviceSpan[] }> {
    if (this.isClosed) throw new Error('This executor was closed.');
    checkBatch(batch, this.limits);
    const bucket = this.bucketOf(batch);
    const { stages } = this.resources;
    const size = { tokens: batch.tokens.length, rows: batch.row.length };
    const request = {
      extents: sizesOf({ extents: sizeOfBatch(batch) }),
      inputs: this.inputs.map((name) => batch[name]),
      ...options,
    };
    const results: RunResult[] = [];
    const spans: DeviceSpan[] = [];
    await this.flow.run({
      compute: async (device, arena) => {
        const begin = now();
        results.push(await stages[device]!.run(arena, bucket, request));
        spans.push({ device, kind: 'compute', begin, end: now() });
      },
      send: (device, arena) => {
        const begin = now();
        stages[device]!.sendTo(stages[device + 1]!, arena, size);
        spans.push({ device, kind: 'copy', begin, end: now() });
      },
    });
    return { results, spans };
  }
}
