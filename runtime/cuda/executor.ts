/** A CUDA device: a plan, its machine code and its weights, ready to score micro-batches. */
import type { CudaKernelText } from '../../ir/cuda.js';
import type { Bucket } from '../../ir/plan.js';
import { checkBatch, chooseBucket, longestTree, vocabOf, type Batch, type BatchLimits } from '../batch.js';
import type { LoadProgress } from '../files.js';
import { portsOf, type InputName, type RuntimePlan } from '../ports.js';
import { NonFiniteError, type Diagnosis, type LaunchProfile, type ScoredBatch } from '../scoring.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights } from '../weightPlan.js';
import { isOutOfDeviceMemory, requireCuda, type CudaAddon, type CudaDevice, type CudaMemory, type CudaModule, type CudaProgram, type CudaProgramBinding, type CudaRunRequest, type CudaRunResult } from './addon.js';
import { bindCudaBucket, bindSearch, searchBytes, searchedWrites, searchJobs, type SearchedWrite, type SearchMemory } from './bindProgram.js';
import { Gate } from './gate.js';
import { planLoading } from './loadPlan.js';
import { deviceMemoryError, OutOfDeviceMemory, requireDeviceMemory, type CudaMemoryUse, type DeviceRoom } from './memoryUse.js';
import { loadDeviceWeights, loadingBytes, weightSlots, type LoadTimes } from './weights.js';

export interface CudaExecutorOptions {
  readonly plan: RuntimePlan;
  /** kernels[bucket][launch], each with the launch's own parameters. */
  readonly kernels: readonly (readonly CudaKernelText[])[];
  /** Machine code by kernel symbol. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** Machine code of packKernels.ts. */
  readonly packCubin: Uint8Array;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  readonly ordinal: number;
  /** Longest tree path (context) of the model, in tokens; by default as many as fit a micro-batch. */
  readonly maxLength?: number;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once the weights are on the device. */
  readonly onLoaded?: (times: LoadTimes) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: CudaMemoryUse) => void;
  /** The addon's CUDA part with its driver loaded; by default the real one. */
  readonly addon?: CudaAddon;
}

/** Micro-batches on the device at a time: one is executed while the next one's inputs wait in pinned memory. */
const IN_FLIGHT = 2;

/** What was made on the device, released together, last made first. */
class Resources {
  private readonly made: { release(): void }[] = [];

  own<T extends { release(): void }>(resource: T): T {
    this.made.push(resource);
    return resource;
  }

  release(): void {
    for (const resource of this.made.splice(0).reverse()) resource.release();
  }
}

/** What searching needs, made at the start so that it cannot fail for want of memory. */
interface Search extends SearchMemory {
  readonly writes: readonly SearchedWrite[];
}

interface Parts {
  readonly plan: RuntimePlan;
  readonly addon: CudaAddon;
  readonly resources: Resources;
  readonly bindings: readonly CudaProgramBinding[];
  readonly programs: readonly CudaProgram[];
  readonly search: Search;
  readonly use: CudaMemoryUse;
  readonly maxLength: number;
}

function codeBytesOf({ kernels, cubins, packCubin }: CudaExecutorOptions, writes: number): number {
  const symbols = new Set(kernels.flat().map(({ symbol }) => symbol));
  const search = searchBytes(writes);
  return [...symbols].reduce((sum, symbol) => sum + (cubins.get(symbol)?.length ?? 0), packCubin.length + search.jobs + search.found);
}

function loadModules({ kernels, cubins }: CudaExecutorOptions, addon: CudaAddon, device: CudaDevice, resources: Resources): ReadonlyMap<string, CudaModule> {
  const modules = new Map<string, CudaModule>();
  for (const { symbol } of kernels.flat()) {
    const image = cubins.get(symbol);
    if (image !== undefined && !modules.has(symbol)) modules.set(symbol, resources.own(new addon.Module(device, image)));
  }
  return modules;
}

export class CudaExecutor {
  readonly maxTokens: number;
  readonly maxRows: number;
  readonly maxLength: number;
  readonly buckets: readonly Bucket[];
  private readonly parts: Parts;
  private readonly limits: BatchLimits;
  private readonly inputs: readonly InputName[];
  private readonly gate = new Gate(IN_FLIGHT);
  private readonly searches = new Map<number, CudaProgram>();
  private lastSearch: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  private constructor(parts: Parts) {
    const { plan, maxLength } = parts;
    this.parts = parts;
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
    const { plan, kernels } = options;
    if (kernels.length !== plan.buckets.length || kernels.length === 0) throw new Error(`${kernels.length} sets of kernels for ${plan.buckets.length} buckets.`);
    const addon = options.addon ?? requireCuda();
    const weightPlan = planWeights(plan.weights, plan.constants, options.tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan);
    const writes = searchedWrites(plan);
    const use: CudaMemoryUse = {
      weightBytes: weightPlan.packedBytes, arenaBytes: plan.arenaBytes, stagingBytes: loadingBytes(loadPlan), codeBytes: codeBytesOf(options, writes.length),
    };
    const resources = new Resources();
    let room: DeviceRoom | undefined;
    try {
      const device = resources.own(new addon.Device(options.ordinal));
      options.onMemory?.(use);
      room = { name: device.info.name, ...device.memory() };
      requireDeviceMemory(use, room, plan.capacity);
      const allocate = (bytes: number): CudaMemory => resources.own(new addon.Memory(device, bytes));
      const pack = resources.own(new addon.Module(device, options.packCubin));
      const modules = loadModules(options, addon, device, resources);
      const weights = weightPlan.packedBytes > 0 ? allocate(weightPlan.packedBytes) : undefined;
      if (weights !== undefined) {
        const times = await loadDeviceWeights({ addon, device, pack, weightPlan, loadPlan, weights, ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }) });
        options.onLoaded?.(times);
      }
      const arena = allocate(plan.arenaBytes);
      const slots = weights === undefined ? new Map<string, never>() : weightSlots(weightPlan, weights);
      const bindings = kernels.map((texts, bucket) => bindCudaBucket({ plan, bucket, kernels: texts, device, modules, weights: slots, arena }));
      const programs = bindings.map((binding) => resources.own(new addon.Program(binding)));
      const bytes = searchBytes(writes.length);
      const search: Search = { writes, pack, jobs: allocate(Math.max(1, bytes.jobs)), found: allocate(Math.max(1, bytes.found)) };
      if (writes.length > 0) await search.jobs.writeAsync(0, searchJobs(plan, writes));
      return new CudaExecutor({ plan, addon, resources, bindings, programs, search, use, maxLength: options.maxLength ?? plan.capacity.tokens });
    } catch (error) {
      resources.release();
      // Another process may have taken what was free a moment ago.
      if (room !== undefined && isOutOfDeviceMemory(error)) throw deviceMemoryError(use, room, plan.capacity, { cause: error });
      throw error;
    }
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
    const launches = this.parts.plan.launches.map(({ kernel }, i) => ({ kernel, path: this.pathOf(i), nanoseconds: (launchMilliseconds?.[i] ?? NaN) * 1e6 }));
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
    return this.parts.use;
  }

  /** Waits for what is on the device, then gives everything back. Later calls reject. */
  async close(): Promise<void> {
    if (this.isClosed) return;
    this.isClosed = true;
    await this.lastSearch;
    await this.gate.drain();
    this.parts.resources.release();
  }

  private pathOf(launch: number): string {
    const { plan } = this.parts;
    const name = plan.launches[launch]!.kernel;
    return plan.kernels.find((kernel) => kernel.name === name)?.path ?? name;
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
    const program = this.parts.programs[this.bucketOf(batch)]!;
    return this.enqueue(batch, () => program.run(request));
  }

  private searchProgram(bucket: number): CudaProgram {
    const { addon, bindings, plan, resources, search } = this.parts;
    const known = this.searches.get(bucket);
    if (known !== undefined) return known;
    const made = resources.own(new addon.Program(bindSearch(bindings[bucket]!, plan, search.writes, search)));
    this.searches.set(bucket, made);
    return made;
  }

  private async search(batch: Batch): Promise<Diagnosis | undefined> {
    const request = this.requestOf(batch);
    const { writes, found } = this.parts.search;
    const bucket = this.bucketOf(batch);
    if (writes.length === 0) return undefined;
    const answers = await this.enqueue(batch, async () => {
      const program = this.searchProgram(bucket);
      found.fill(0xff);
      await program.run(request);
      return new BigUint64Array(await found.readAsync(0, writes.length * 8));
    });
    const first = writes.find(({ index }) => answers[index] !== 2n ** 64n - 1n);
    if (first === undefined) return undefined;
    const { launch, buffer, columns } = first;
    const width = BigInt(columns === 'T' ? request.tokens : columns === 'R' ? request.rows : columns);
    return { path: this.pathOf(launch), buffer, row: Number(answers[first.index]! / width), column: Number(answers[first.index]! % width) };
  }
}
