/** One device of an executor: its part of a plan as machine code, its weights and activations in memory, its programs. */
import type { CudaKernelText } from '../../ir/cuda.js';
import type { LoadProgress } from '../files.js';
import type { RuntimePlan } from '../ports.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights, type WeightPlan } from '../weightPlan.js';
import { isOutOfDeviceMemory, type CudaAddon, type CudaDevice, type CudaMemory, type CudaModule, type CudaProgram, type CudaProgramBinding } from './addon.js';
import { bindCudaBucket, bindSearch, searchBytes, searchedWrites, searchJobs, type SearchedWrite, type SearchMemory } from './bindProgram.js';
import { planLoading, type LoadPlan } from './loadPlan.js';
import { deviceMemoryError, requireDeviceMemory, type CudaMemoryUse, type DeviceRoom } from './memoryUse.js';
import { loadDeviceWeights, loadingBytes, weightSlots, type LoadTimes } from './weights.js';

export interface CudaStageOptions {
  readonly addon: CudaAddon;
  readonly ordinal: number;
  /** What this device runs: a whole plan, or stagePlan.ts's part of one. */
  readonly plan: RuntimePlan;
  /** kernels[bucket][launch], each with the launch's own parameters. */
  readonly kernels: readonly (readonly CudaKernelText[])[];
  /** Machine code by kernel symbol. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** Machine code of packKernels.ts. */
  readonly packCubin: Uint8Array;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Sets of activations: micro-batches that have a place on the device. */
  readonly arenas: number;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once the weights are on the device. */
  readonly onLoaded?: (times: LoadTimes) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: CudaMemoryUse) => void;
}

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
export interface Search extends SearchMemory {
  readonly writes: readonly SearchedWrite[];
}

interface Parts {
  readonly device: CudaDevice;
  readonly resources: Resources;
  /** [arena][bucket] */
  readonly bindings: readonly (readonly CudaProgramBinding[])[];
  readonly programs: readonly (readonly CudaProgram[])[];
  readonly search: Search;
  readonly use: CudaMemoryUse;
}

function codeBytesOf({ kernels, cubins, packCubin }: CudaStageOptions, writes: number): number {
  const symbols = new Set(kernels.flat().map(({ symbol }) => symbol));
  const search = searchBytes(writes);
  return [...symbols].reduce((sum, symbol) => sum + (cubins.get(symbol)?.length ?? 0), packCubin.length + search.jobs + search.found);
}

function loadModules({ addon, kernels, cubins }: CudaStageOptions, device: CudaDevice, resources: Resources): ReadonlyMap<string, CudaModule> {
  const modules = new Map<string, CudaModule>();
  for (const { symbol } of kernels.flat()) {
    const image = cubins.get(symbol);
    if (image !== undefined && !modules.has(symbol)) modules.set(symbol, resources.own(new addon.Module(device, image)));
  }
  return modules;
}

/** The memory of all weights, once they are in it; none where the plan has none. */
async function loadWeights({ addon, onProgress, onLoaded }: CudaStageOptions, device: CudaDevice, pack: CudaModule, weightPlan: WeightPlan, loadPlan: LoadPlan, resources: Resources): Promise<CudaMemory | undefined> {
  if (weightPlan.packedBytes === 0) return undefined;
  const weights = resources.own(new addon.Memory(device, weightPlan.packedBytes));
  const times = await loadDeviceWeights({ addon, device, pack, weightPlan, loadPlan, weights, ...(onProgress === undefined ? {} : { onProgress }) });
  onLoaded?.(times);
  return weights;
}

export class CudaStage {
  readonly plan: RuntimePlan;
  readonly use: CudaMemoryUse;
  readonly device: CudaDevice;
  readonly search: Search;
  private readonly addon: CudaAddon;
  private readonly parts: Parts;
  private readonly searches = new Map<number, CudaProgram>();

  private constructor({ addon, plan }: CudaStageOptions, parts: Parts) {
    this.addon = addon;
    this.plan = plan;
    this.parts = parts;
    ({ use: this.use, device: this.device, search: this.search } = parts);
  }

  /**
   * Loads machine code and weights and binds every bucket. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little device memory.
   */
  static async load(options: CudaStageOptions): Promise<CudaStage> {
    const { addon, plan, kernels } = options;
    if (kernels.length !== plan.buckets.length || kernels.length === 0) throw new Error(`${kernels.length} sets of kernels for ${plan.buckets.length} buckets.`);
    const weightPlan = planWeights(plan.weights, plan.constants, options.tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan);
    const writes = searchedWrites(plan);
    const use: CudaMemoryUse = {
      weightBytes: weightPlan.packedBytes, arenaBytes: options.arenas * plan.arenaBytes, stagingBytes: loadingBytes(loadPlan), codeBytes: codeBytesOf(options, writes.length),
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
      const modules = loadModules(options, device, resources);
      const weights = await loadWeights(options, device, pack, weightPlan, loadPlan, resources);
      const slots = weights === undefined ? new Map<string, never>() : weightSlots(weightPlan, weights);
      const arenas = Array.from({ length: options.arenas }, () => allocate(plan.arenaBytes));
      const bindings = arenas.map((arena) => kernels.map((texts, bucket) => bindCudaBucket({ plan, bucket, kernels: texts, device, modules, weights: slots, arena })));
      const programs = bindings.map((ofArena) => ofArena.map((binding) => resources.own(new addon.Program(binding))));
      const bytes = searchBytes(writes.length);
      const search: Search = { writes, pack, jobs: allocate(Math.max(1, bytes.jobs)), found: allocate(Math.max(1, bytes.found)) };
      if (writes.length > 0) await search.jobs.writeAsync(0, searchJobs(plan, writes));
      return new CudaStage(options, { device, resources, bindings, programs, search, use });
    } catch (error) {
      resources.release();
      // Another process may have taken what was free a moment ago.
      if (room !== undefined && isOutOfDeviceMemory(error)) throw deviceMemoryError(use, room, plan.capacity, { cause: error });
      throw error;
    }
  }

  /** The program of a bucket on one of the sets of activations. */
  program(bucket: number, arena = 0): CudaProgram {
    return this.parts.programs[arena]![bucket]!;
  }

  /** The same, on the first set, with a search of each launch's results. Kept once made. */
  searchProgram(bucket: number): CudaProgram {
    const { bindings, resources, search } = this.parts;
    const known = this.searches.get(bucket);
    if (known !== undefined) return known;
    const made = resources.own(new this.addon.Program(bindSearch(bindings[0]![bucket]!, this.plan, search.writes, search)));
    this.searches.set(bucket, made);
    return made;
  }

  /** Model path of a launch. */
  pathOf(launch: number): string {
    const name = this.plan.launches[launch]!.kernel;
    return this.plan.kernels.find((kernel) => kernel.name === name)?.path ?? name;
  }

  /** Once nothing runs on it. */
  release(): void {
    this.parts.resources.release();
  }
}
