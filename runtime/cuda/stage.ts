/**
 * One device of an executor: its part of a plan as machine code, its weights and activations in memory, its programs.
 */
import { scoringExtents } from '../../ir/scoring.js';
import { extentIn } from '../../ir/extents.js';
import type { CudaKernelText } from '../../ir/cuda.js';
import type { Stage } from '../../ir/placement.js';
import { roundUp } from '../../ir/types.js';
import type { Batch } from '../batch.js';
import type { LoadProgress } from '../files.js';
import { INPUT_BUFFERS, masksOf, portsOf, type InputName, type RuntimePlan } from '../ports.js';
import type { Diagnosis } from '../scoring.js';
import { stagePlan } from '../stagePlan.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights, type WeightPlan } from '../weightPlan.js';
import {
  isOutOfDeviceMemory,
  type CudaAddon,
  type CudaClock,
  type CudaDevice,
  type CudaMemory,
  type CudaModule,
  type CudaProgram,
  type CudaProgramBinding,
} from './addon.js';
import {
  bindCudaBucket,
  bindSearch,
  searchBytes,
  type CudaBindRequest,
  searchedWrites,
  searchJobs,
  type SearchedWrite,
  type SearchMemory,
} from './bindProgram.js';
import { planLoading, type LoadPlan } from './loadPlan.js';
import { deviceMemoryError, requireDeviceMemory, type CudaMemoryUse, type DeviceRoom } from './memoryUse.js';
import { readsFiles } from './partWeights.js';
import { isUnshared, loadSharedWeights, SHARED_GRANULARITY, type WeightExchange } from './shareWeights.js';
import { loadDeviceWeights, loadingBytes, weightSlots, type LoadTimes } from './weights.js';

export interface CudaStageOptions {
  readonly addon: CudaAddon;
  readonly ordinal: number;
  /** The whole plan. */
  readonly plan: RuntimePlan;
  /** The launches that this device runs. */
  readonly range: Stage;
  /** kernels[bucket][launch], each with the launch's own parameters, of the whole plan. */
  readonly kernels: readonly (readonly CudaKernelText[])[];
  /** Machine code by kernel symbol. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** Machine code of packKernels.ts. */
  readonly packCubin: Uint8Array;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Sets of activations: micro-batches that have a place on the device. */
  readonly arenas: number;
  /** Its programs are run by a CudaPipeline. */
  readonly isPiped: boolean;
  /** Where replicas start together: weights are read from files once for all of them. */
  readonly exchange?: WeightExchange;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once the weights are on the device. */
  readonly onLoaded?: (times: LoadTimes) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: CudaMemoryUse) => void;
}

/** Model path of a launch of a plan. */
export function pathOf(plan: RuntimePlan, launch: number): string {
  const name = plan.launches[launch]!.kernel;
  return plan.kernels.find((kernel) => kernel.name === name)?.path ?? name;
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
interface Search extends SearchMemory {
  readonly writes: readonly SearchedWrite[];
}

interface Parts {
  readonly plan: RuntimePlan;
  readonly inputs: readonly InputName[];
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  readonly resources: Resources;
  /** [arena][bucket] */
  readonly bindings: readonly (readonly CudaProgramBinding[])[];
  readonly programs: readonly (readonly CudaProgram[])[];
  readonly search: Search;
  readonly use: CudaMemoryUse;
  readonly exchange: WeightExchange | undefined;
}

function codeBytesOf({ kernels, cubins, packCubin }: CudaStageOptions, writes: number): number {
  const symbols = new Set(kernels.flat().map(({ symbol }) => symbol));
  const search = searchBytes(writes);
  return [...symbols].reduce(
    (sum, symbol) => sum + (cubins.get(symbol)?.length ?? 0),
    packCubin.length + search.jobs + search.found,
  );
}

function loadModules(
  { addon, kernels, cubins }: CudaStageOptions,
  device: CudaDevice,
  resources: Resources,
): ReadonlyMap<string, CudaModule> {
  const modules = new Map<string, CudaModule>();
  for (const { symbol } of kernels.flat()) {
    const image = cubins.get(symbol);
    if (image !== undefined && !modules.has(symbol))
      modules.set(symbol, resources.own(new addon.Module(device, image)));
  }
  return modules;
}

/** The memory of all weights, once they are in it; none where the plan has none. */
async function loadWeights(
  { addon, exchange, onProgress, onLoaded }: CudaStageOptions,
  device: CudaDevice,
  pack: CudaModule,
  weightPlan: WeightPlan,
  loadPlan: LoadPlan,
  resources: Resources,
): Promise<CudaMemory | undefined> {
  if (weightPlan.packedBytes === 0) return undefined;
  const isShared = exchange !== undefined && readsFiles(weightPlan);
  const weights = resources.own(
    new addon.Memory(device, isShared ? roundUp(weightPlan.packedBytes, SHARED_GRANULARITY) : weightPlan.packedBytes),
  );
  const request = {
    addon,
    device,
    pack,
    weightPlan,
    loadPlan,
    weights,
    ...(onProgress === undefined ? {} : { onProgress }),
  };
  const times = await (isShared ? loadSharedWeights(request, exchange) : loadDeviceWeights(request));
  onLoaded?.(times);
  return weights;
}

/** The inputs that a stage reads: another's place may hold something else there. Only the last one has results. */
function stagePorts(whole: RuntimePlan, plan: RuntimePlan, { first, end }: Stage): CudaBindRequest['ports'] {
  const { inputs, ...outputs } = portsOf(whole);
  const read = new Set(plan.launches.flatMap(({ parameters }) => parameters));
  return {
    inputs:
      first === 0 && end === whole.launches.length ? inputs : inputs.filter((name) => read.has(INPUT_BUFFERS[name])),
    ...(end === whole.launches.length ? { outputs } : {}),
  };
}

/** All ones: a launch's results hold nothing that is not finite. */
const NOTHING = 2n ** 64n - 1n;

export class CudaStage {
  readonly range: Stage;
  readonly use: CudaMemoryUse;
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  /** Its part. */
  private readonly plan: RuntimePlan;
  private readonly addon: CudaAddon;
  private readonly parts: Parts;
  private readonly searches = new Map<number, CudaProgram>();

  private constructor({ addon, range }: CudaStageOptions, parts: Parts) {
    this.addon = addon;
    this.range = range;
    this.parts = parts;
    ({ plan: this.plan, use: this.use, device: this.device, clock: this.clock, arenas: this.arenas } = parts);
  }

  /**
   * Loads machine code and weights and binds every bucket. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little device memory.
   */
  static async load(whole: CudaStageOptions): Promise<CudaStage> {
    const { addon, range, isPiped } = whole;
    if (whole.kernels.length !== whole.plan.buckets.length || whole.kernels.length === 0)
      throw new Error(`${whole.kernels.length} sets of kernels for ${whole.plan.buckets.length} buckets.`);
    const plan = stagePlan(whole.plan, range);
    const kernels = whole.kernels.map((texts) => texts.slice(range.first, range.end));
    const options = { ...whole, plan, kernels };
    const ports = stagePorts(whole.plan, plan, range);
    const weightPlan = planWeights(plan.weights, plan.constants, options.tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan);
    const writes = searchedWrites(plan, masksOf(whole.plan));
    const use: CudaMemoryUse = {
      weightBytes: weightPlan.packedBytes,
      arenaBytes: options.arenas * plan.arenaBytes,
      stagingBytes: loadingBytes(loadPlan),
      codeBytes: codeBytesOf(options, writes.length),
    };
    const resources = new Resources();
    let room: DeviceRoom | undefined;
    let loading: Promise<CudaMemory | undefined> | undefined;
    try {
      const device = resources.own(new addon.Device(options.ordinal));
      options.onMemory?.(use);
      room = { name: device.info.name, ...device.memory() };
      requireDeviceMemory(use, room, plan.capacity);
      const allocate = (bytes: number): CudaMemory => resources.own(new addon.Memory(device, bytes));
      const pack = resources.own(new addon.Module(device, options.packCubin));
      loading = loadWeights(options, device, pack, weightPlan, loadPlan, resources);
      // Awaited below; a failure before that must not count as unhandled.
      loading.catch(() => undefined);
      // While weights stream, on threads of their own.
      const modules = loadModules(options, device, resources);
      const weights = await loading;
      const slots = weights === undefined ? new Map<string, never>() : weightSlots(weightPlan, weights);
      const clock = resources.own(new addon.Clock(device));
      const arenas = Array.from({ length: options.arenas }, () => allocate(plan.arenaBytes));
      const bindings = arenas.map((arena) =>
        kernels.map((texts, bucket) =>
          bindCudaBucket({
            plan,
            ports,
            bucket,
            kernels: texts,
            device,
            clock,
            modules,
            weights: slots,
            arena,
            isPiped,
          }),
        ),
      );
      const programs = bindings.map((ofArena) => ofArena.map((binding) => resources.own(new addon.Program(binding))));
      const bytes = searchBytes(writes.length);
      const search: Search = {
        writes,
        pack,
        jobs: allocate(Math.max(1, bytes.jobs)),
        found: allocate(Math.max(1, bytes.found)),
      };
      if (writes.length > 0) await search.jobs.writeAsync(0, searchJobs(plan, writes));
      return new CudaStage(options, {
        plan,
        inputs: ports.inputs,
        clock,
        arenas,
        device,
        resources,
        bindings,
        programs,
        search,
        use,
        exchange: options.exchange,
      });
    } catch (error) {
      await loading?.catch(() => undefined);
      if (await isUnshared(options.exchange)) resources.release();
      // Another process may have taken what was free a moment ago.
      if (room !== undefined && isOutOfDeviceMemory(error))
        throw deviceMemoryError(use, room, plan.capacity, { cause: error });
      throw error;
    }
  }

  /** All but those that search. */
  get programs(): readonly CudaProgram[] {
    return this.parts.programs.flat();
  }

  /** The inputs that its programs take, in order. */
  inputsOf(batch: Batch): readonly Int32Array[] {
    return this.parts.inputs.map((name) => batch[name]);
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
    const made = resources.own(
      new this.addon.Program(bindSearch(bindings[0]![bucket]!, this.plan, search.writes, search)),
    );
    this.searches.set(bucket, made);
    return made;
  }

  /** Forgets what was found by the last search, behind all that the device was asked to do. */
  clearSearch(): void {
    this.parts.search.found.fill(0xff);
  }

  /** The first value that is not finite which the last search found in a micro-batch of such a size. */
  async found(tokens: number, rows: number): Promise<Diagnosis | undefined> {
    const { found, writes } = this.parts.search;
    if (writes.length === 0) return undefined;
    const answers = new BigUint64Array(await found.readAsync(0, writes.length * 8));
    const first = writes.find(({ index }) => answers[index] !== NOTHING);
    if (first === undefined) return undefined;
    const { launch, buffer, columns, index } = first;
    const width = BigInt(extentIn(columns, scoringExtents({ tokens, rows })));
    return {
      path: pathOf(this.plan, launch),
      buffer,
      row: Number(answers[index]! / width),
      column: Number(answers[index]! % width),
    };
  }

  /**
   * Whether no other process reads this device's memory any more, as soon as that is so; false where one never ends.
   */
  isUnshared(): Promise<boolean> {
    return isUnshared(this.parts.exchange);
  }

  /** Once nothing runs on it, here or elsewhere. */
  release(): void {
    this.parts.resources.release();
  }
}
