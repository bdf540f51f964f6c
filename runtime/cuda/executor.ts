/** A CUDA device: a plan, its machine code and its weights, ready to score micro-batches. */
import type { Bucket } from '../../ir/plan.js';
import { checkBatch, chooseBucket, longestTree, vocabOf, type Batch, type BatchLimits } from '../batch.js';
import { portsOf, type InputName } from '../ports.js';
import { NonFiniteError, type Diagnosis, type LaunchProfile, type ScoredBatch } from '../scoring.js';
import { isOutOfDeviceMemory, requireCuda, type CudaAddon, type CudaRunRequest, type CudaRunResult } from './addon.js';
import { Gate } from './gate.js';
import { OutOfDeviceMemory, type CudaMemoryUse } from './memoryUse.js';
import { CudaStage, type CudaStageOptions } from './stage.js';

export interface CudaExecutorOptions extends Omit<CudaStageOptions, 'addon' | 'arenas'> {
  /** Longest tree path (context) of the model, in tokens; by default as many as fit a micro-batch. */
  readonly maxLength?: number;
  /** The addon's CUDA part with its driver loaded; by default the real one. */
  readonly addon?: CudaAddon;
}

/** Micro-batches on the device at a time: one is executed while the next one's inputs wait in pinned memory. */
const IN_FLIGHT = 2;

export class CudaExecutor {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly buckets: readonly Bucket[];
  private readonly stage: CudaStage;
  private readonly limits: BatchLimits;
  private readonly inputs: readonly InputName[];
  private readonly gate = new Gate(IN_FLIGHT);
  private lastSearch: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  private constructor(stage: CudaStage, { plan, maxLength = plan.capacity.tokens }: CudaExecutorOptions) {
    this.stage = stage;
    this.buckets = plan.buckets;
    this.maxTokens = Math.max(...plan.buckets.map((bucket) => bucket.tokens));
    this.maxRows = Math.max(...plan.buckets.map((bucket) => bucket.rows));
    this.maxLength = maxLength;
    this.limits = { vocab: vocabOf(plan), maxLength };
    this.inputs = portsOf(plan).inputs;
  }

  /**
   * Loads machine code and weights and binds every bucket. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little device memory.
   */
  static async create(options: CudaExecutorOptions): Promise<CudaExecutor> {
    return new CudaExecutor(await CudaStage.load({ ...options, addon: options.addon ?? requireCuda(), arenas: 1 }), options);
  }

  /**
   * Scores a micro-batch; two calls may be on the device at once. Rejects with NonFiniteError, with RangeError for
   * indices outside the model or the plan, with OutOfDeviceMemory where a smaller micro-batch may do.
   */
  async score(batch: Batch): Promise<ScoredBatch> {
    if (batch.row.length === 0) return { logProb: new Float32Array(0), isArgmax: new Int32Array(0) };
    const { outputs } = await this.run(batch, {});
    const logProb = new Float32Array(outputs[0]!);
    const bad = [...logProb.keys()].filter((i) => !Number.isFinite(logProb[i]));
    if (bad.length > 0) throw new NonFiniteError((await this.diagnose(batch))?.path, bad);
    return { logProb, isArgmax: new Int32Array(outputs[1]!) };
  }

  /** Runs a micro-batch once, measuring each launch on the device. */
  async profile(batch: Batch): Promise<{ readonly bucket: Bucket; readonly launches: readonly LaunchProfile[] }> {
    const { launchMilliseconds } = await this.run(batch, { isTimed: true });
    const launches = this.stage.plan.launches.map(({ kernel }, i) => ({ kernel, path: this.stage.pathOf(i), nanoseconds: (launchMilliseconds?.[i] ?? NaN) * 1e6 }));
    return { bucket: this.buckets[this.bucketOf(batch)]!, launches };
  }

  /** Runs a micro-batch, searching every launch's results: the first value that is not finite, or undefined. */
  diagnose(batch: Batch): Promise<Diagnosis | undefined> {
    // One at a time: they share the memory of answers.
    const job = this.lastSearch.then(() => this.search(batch));
    this.lastSearch = job.catch(() => undefined);
    return job;
  }

  memory(): CudaMemoryUse {
    return this.stage.use;
  }

  /** Waits for what is on the device, then gives everything back. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    await this.lastSearch;
    await this.gate.drain();
    this.stage.release();
  }

  private bucketOf(batch: Batch): number {
    return chooseBucket(this.buckets, batch.tokens.length, batch.row.length, longestTree(batch));
  }

  private requestOf(batch: Batch): CudaRunRequest {
    if (this.isClosed) throw new Error('This executor was closed.');
    checkBatch(batch, this.limits);
    return { tokens: batch.tokens.length, rows: batch.row.length, inputs: this.inputs.map((name) => batch[name]) };
  }

  /** On the device as soon as there is room. */
  private async enqueue<T>(batch: Batch, work: () => Promise<T>): Promise<T> {
    return this.gate.pass(async () => {
      try {
        return await work();
      } catch (error) {
        if (isOutOfDeviceMemory(error)) throw new OutOfDeviceMemory(batch.tokens.length, batch.row.length, { cause: error });
        throw error;
      }
    });
  }

  private async run(batch: Batch, options: Pick<CudaRunRequest, 'isTimed'>): Promise<CudaRunResult> {
    const request = { ...this.requestOf(batch), ...options };
    const program = this.stage.program(this.bucketOf(batch));
    return this.enqueue(batch, () => program.run(request));
  }

  private async search(batch: Batch): Promise<Diagnosis | undefined> {
    const request = this.requestOf(batch);
    const { writes, found } = this.stage.search;
    const bucket = this.bucketOf(batch);
    if (writes.length === 0) return undefined;
    const answers = await this.enqueue(batch, async () => {
      const program = this.stage.searchProgram(bucket);
      found.fill(0xff);
      await program.run(request);
      return new BigUint64Array(await found.readAsync(0, writes.length * 8));
    });
    const first = writes.find(({ index }) => answers[index] !== 2n ** 64n - 1n);
    if (first === undefined) return undefined;
    const { launch, buffer, columns } = first;
    const width = BigInt(columns === 'T' ? request.tokens : columns === 'R' ? request.rows : columns);
    return { path: this.stage.pathOf(launch), buffer, row: Number(answers[first.index]! / width), column: Number(answers[first.index]! % width) };
  }
}
