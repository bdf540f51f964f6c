/** The CPU device: a plan, its kernels and its weights, ready to score micro-batches. */
import type { Bucket, Plan } from '../../ir/plan.js';
import { loadAddon, type NativeLibrary, type NativeMemory, type NativePool, type NativeProgram, type RunRequest, type RunResult } from './addon.js';
import { bindBucket, scratchOf, type LaunchSymbol } from './bindPlan.js';
import { loadWeights } from './loadWeights.js';
import { requireMemory, type MemoryUse } from './memoryUse.js';
import { checkBatch, chooseBucket, longestTree, vocabOf, type Batch, type BatchLimits } from '../batch.js';
import { FileMappings, type LoadProgress } from '../files.js';
import { floatWrites, portsOf, type InputName } from '../ports.js';
import { NonFiniteError, type Diagnosis, type LaunchProfile, type ScoredBatch } from '../scoring.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights } from '../weightPlan.js';

export interface CpuExecutorOptions {
  readonly plan: Plan;
  /** symbols[bucket][launch]: where generated code is. */
  readonly symbols: readonly (readonly LaunchSymbol[])[];
  readonly tensors: ReadonlyMap<string, TensorSource>;
  readonly threads: number;
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
  readonly pool: NativePool;
  readonly files: FileMappings;
  readonly libraries: Map<string, NativeLibrary>;
  readonly memories: NativeMemory[];
  readonly programs: NativeProgram[];
}

function release({ programs, libraries, memories, files, pool }: Resources): void {
  for (const program of programs) program.release();
  for (const library of libraries.values()) library.release();
  for (const memory of memories) memory.release();
  files.release();
  pool.release();
}

export class CpuExecutor {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly buckets: readonly Bucket[];
  private readonly plan: Plan;
  private readonly resources: Resources;
  private readonly use: MemoryUse;
  private readonly limits: BatchLimits;
  private readonly inputs: readonly InputName[];
  private isClosed = false;
  /** Settles when the last job that was asked for is over: jobs of one device run one after another. */
  private last: Promise<unknown> = Promise.resolve();
  private readonly onExit = (): void => this.resources.pool.stop();

  private constructor(plan: Plan, resources: Resources, use: MemoryUse, maxLength: number) {
    this.plan = plan;
    this.resources = resources;
    this.use = use;
    this.buckets = plan.buckets;
    this.maxTokens = Math.max(...plan.buckets.map((bucket) => bucket.tokens));
    this.maxRows = Math.max(...plan.buckets.map((bucket) => bucket.rows));
    this.maxLength = maxLength;
    this.limits = { vocab: vocabOf(plan), maxLength: this.maxLength };
    this.inputs = portsOf(plan).inputs;
    process.once('exit', this.onExit);
  }

  /**
   * Loads the weights and binds every bucket. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little memory.
   */
  static async create(options: CpuExecutorOptions): Promise<CpuExecutor> {
    const { plan, symbols, threads } = options;
    if (symbols.length !== plan.buckets.length || symbols.length === 0) throw new Error(`${symbols.length} sets of symbols for ${plan.buckets.length} buckets.`);
    const addon = loadAddon();
    const weightPlan = planWeights(plan.weights, plan.constants, options.tensors);
    const scratchBytes = scratchOf(symbols);
    const use: MemoryUse = {
      mappedBytes: weightPlan.mappedBytes, packedBytes: weightPlan.packedBytes, arenaBytes: plan.arenaBytes, scratchBytes: scratchBytes * threads,
    };
    options.onMemory?.(use);
    requireMemory(use);
    const resources: Resources = { pool: new addon.Pool(threads, options.isPinned ?? false), files: new FileMappings(), libraries: new Map(), memories: [], programs: [] };
    const allocate = (bytes: number): NativeMemory => {
      const memory = new addon.Memory(bytes);
      resources.memories.push(memory);
      return memory;
    };
    try {
      for (const { library } of symbols.flat()) if (!resources.libraries.has(library)) resources.libraries.set(library, new addon.Library(library));
      const packed = weightPlan.packedBytes > 0 ? allocate(weightPlan.packedBytes) : undefined;
      const weights = await loadWeights(weightPlan, resources.pool, resources.files, packed, options.onProgress);
      const arena = allocate(plan.arenaBytes);
      const scratch = scratchBytes > 0 ? { memory: allocate(use.scratchBytes), offset: 0, bytes: use.scratchBytes } : undefined;
      symbols.forEach((bucketSymbols, bucket) => {
        resources.programs.push(new addon.Program(bindBucket({
          plan, bucket, symbols: bucketSymbols, pool: resources.pool, libraries: resources.libraries, weights, arena, scratch, scratchBytes,
        })));
      });
      return new CpuExecutor(plan, resources, use, options.maxLength ?? plan.capacity.tokens);
    } catch (error) {
      release(resources);
      throw error;
    }
  }

  /** Scores a micro-batch. Rejects with NonFiniteError, or RangeError for indices outside the model or the plan. */
  async score(batch: Batch): Promise<ScoredBatch> {
    if (batch.row.length === 0) return { logProb: new Float32Array(0), isArgmax: new Int32Array(0) };
    const { outputs } = await this.run(batch, {});
    const logProb = new Float32Array(outputs[0]!);
    const bad = [...logProb.keys()].filter((i) => !Number.isFinite(logProb[i]));
    if (bad.length > 0) throw new NonFiniteError((await this.diagnose(batch))?.path, bad);
    return { logProb, isArgmax: new Int32Array(outputs[1]!) };
  }

  /** Runs a micro-batch once, measuring each launch. */
  async profile(batch: Batch): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const { launchNs } = await this.run(batch, { isTimed: true });
    const launches = this.plan.launches.map((launch, i) => ({ kernel: launch.kernel, path: this.pathOf(i), nanoseconds: launchNs?.[i] ?? NaN }));
    return { bucket: this.buckets[this.bucketOf(batch)]!, launches };
  }

  /** Runs a micro-batch, searching every launch's results: the first value that is not finite, or undefined. */
  async diagnose(batch: Batch): Promise<Diagnosis | undefined> {
    const { nonFinite } = await this.run(batch, { isChecked: true });
    if (nonFinite === undefined) return undefined;
    return { path: this.pathOf(nonFinite.launch), buffer: this.bufferOf(nonFinite.launch, nonFinite.write), row: nonFinite.row, column: nonFinite.column };
  }

  memory(): MemoryUse {
    return this.use;
  }

  /** Waits for running jobs, then gives up threads, memory and files. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    process.removeListener('exit', this.onExit);
    await this.last.catch(() => undefined);
    release(this.resources);
  }

  private pathOf(launch: number): string {
    const name = this.plan.launches[launch]!.kernel;
    return this.plan.kernels.find((kernel) => kernel.name === name)?.path ?? name;
  }

  private bufferOf(launch: number, write: number): string {
    const name = this.plan.launches[launch]!.kernel;
    const kernel = this.plan.kernels.find((candidate) => candidate.name === name);
    return kernel === undefined ? name : floatWrites(this.plan, kernel)[write] ?? name;
  }

  private bucketOf(batch: Batch): number {
    return chooseBucket(this.buckets, batch.tokens.length, batch.row.length, longestTree(batch));
  }

  private async run(batch: Batch, options: Pick<RunRequest, 'isTimed' | 'isChecked'>): Promise<RunResult> {
    if (this.isClosed) throw new Error('This executor was closed.');
    checkBatch(batch, this.limits);
    const program = this.resources.programs[this.bucketOf(batch)]!;
    const request = { tokens: batch.tokens.length, rows: batch.row.length, inputs: this.inputs.map((name) => batch[name]), ...options };
    const start = (): Promise<RunResult> => program.run(request);
    const job = this.last.then(start, start);
    this.last = job;
    return job;
  }
}
