/**
 * One device of an executor: its part of a plan as machine code, its weights and activations in memory, its programs.
 */
import { leadingExtent } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import type { PortData } from '../nativeProgram.js';
import { stageInputs } from '../bindPorts.js';
import type { CallArrays } from '../call.js';
import type { LoadProgress } from '../files.js';
import { nameOf, type RuntimeFunction, type RuntimePlan } from '../runtimePlan.js';
import { stageStates, stageWeights, type PlacedState, type StageRanges } from '../stagePlan.js';
import type { NonFinitePlace, StageCall } from '../stageRunner.js';
import type { TensorSource } from '../tensorSource.js';
import { planWeights, type WeightPlan } from '../weightPlan.js';
import { isOutOfDeviceMemory, type CudaAddon } from './addon.js';
import type { CudaClock, CudaDevice, CudaMemory, CudaModule } from './nativeDevice.js';
import type { CudaProgram, CudaProgramBinding, CudaSlot } from './nativeProgram.js';
import { bindCudaBucket, type PlanKernels } from './bindProgram.js';
import { planLoading, type LoadPlan } from './loadPlan.js';
import { deviceMemoryError, requireDeviceMemory, type CudaMemoryUse, type DeviceRoom } from './memoryUse.js';
import { readsFiles } from './partWeights.js';
import { Search, SearchPlan } from './search.js';
import { isUnshared, loadSharedWeights, SHARED_GRANULARITY, type WeightExchange } from './shareWeights.js';
import { loadDeviceWeights, loadingBytes, weightSlots, type LoadTimes, type PreparedDevice } from './weights.js';

export interface CudaStageOptions {
  readonly addon: CudaAddon;
  readonly ordinal: number;
  readonly plan: RuntimePlan;
  /** The stages of the whole plan, and the index of this one. */
  readonly stages: readonly StageRanges[];
  readonly index: number;
  readonly kernels: PlanKernels;
  /** Machine code by kernel symbol. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** Machine code of packKernels.ts. */
  readonly packCubin: Uint8Array;
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** The device and its pinned memory where they were made before the plan was known. The stage releases both. */
  readonly prepared?: PreparedDevice;
  /** Sets of activations: one for each micro-batch that is on the device. */
  readonly arenas: number;
  /** Whether its programs are run by a CudaPipeline. */
  readonly isPiped: boolean;
  /** Where replicas start together: weights are read from files once for all of them. */
  readonly exchange?: WeightExchange;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once the weights are on the device. */
  readonly onLoaded?: (times: LoadTimes) => void;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: CudaMemoryUse) => void;
}

/** Resources on the device, released together in reverse order. */
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

/** A function on the device. */
interface Bound {
  readonly fn: RuntimeFunction;
  readonly inputs: readonly string[];
  /** [arena][bucket] */
  readonly bindings: readonly (readonly CudaProgramBinding[])[];
  readonly programs: readonly (readonly CudaProgram[])[];
  /** Programs that search, by bucket, made on demand. */
  readonly searches: Map<number, CudaProgram>;
}

interface Parts {
  readonly ranges: StageRanges;
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  readonly resources: Resources;
  readonly bound: ReadonlyMap<string, Bound>;
  readonly search: Search;
  readonly use: CudaMemoryUse;
}

/** Symbols of the kernels that the stage launches. */
function symbolsOf({ plan, kernels }: CudaStageOptions, ranges: StageRanges): ReadonlySet<string> {
  const texts = plan.functions.flatMap((fn) => {
    const { first, end } = ranges[nameOf(fn)]!;
    return kernels[nameOf(fn)]!.flatMap((ofBucket) => ofBucket.slice(first, end));
  });
  return new Set(texts.map(({ symbol }) => symbol));
}

const codeBytesOf = (
  { cubins, packCubin }: CudaStageOptions,
  symbols: ReadonlySet<string>,
  search: SearchPlan,
): number =>
  [...symbols].reduce(
    (sum, symbol) => sum + (cubins.get(symbol)?.length ?? 0),
    packCubin.length + search.jobBytes + search.foundBytes,
  );

function loadModules(
  { addon, cubins }: CudaStageOptions,
  symbols: ReadonlySet<string>,
  device: CudaDevice,
  resources: Resources,
): ReadonlyMap<string, CudaModule> {
  const modules = new Map<string, CudaModule>();
  for (const symbol of symbols) {
    const image = cubins.get(symbol);
    if (image !== undefined) modules.set(symbol, resources.own(new addon.Module(device, image)));
  }
  return modules;
}

/** The memory of all weights, once they are in it; none where the plan has none. */
async function loadWeights(
  { addon, exchange, prepared, onProgress, onLoaded }: CudaStageOptions,
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
    ...(prepared === undefined ? {} : { upload: prepared.upload }),
    ...(onProgress === undefined ? {} : { onProgress }),
  };
  const times = await (isShared ? loadSharedWeights(request, exchange) : loadDeviceWeights(request));
  prepared?.upload.release();
  onLoaded?.(times);
  return weights;
}

/** Memory of the states, zeroed. */
function allocateStates(
  states: readonly PlacedState[],
  allocate: (bytes: number) => CudaMemory,
): ReadonlyMap<string, CudaSlot> {
  return new Map(
    states.map(({ name, bytes }): [string, CudaSlot] => {
      const memory = allocate(bytes);
      memory.fill(0);
      return [name, { memory, offset: 0, bytes }];
    }),
  );
}

export class CudaStage {
  readonly ranges: StageRanges;
  readonly use: CudaMemoryUse;
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  private readonly addon: CudaAddon;
  private readonly exchange: WeightExchange | undefined;
  private readonly parts: Parts;

  private constructor({ addon, exchange }: CudaStageOptions, parts: Parts) {
    this.addon = addon;
    this.exchange = exchange;
    this.parts = parts;
    ({ ranges: this.ranges, use: this.use, device: this.device, clock: this.clock, arenas: this.arenas } = parts);
  }

  /**
   * Loads machine code and weights and binds every bucket. Memory is reported and checked before it is taken.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, and for too little device memory.
   */
  static async load(options: CudaStageOptions): Promise<CudaStage> {
    const { addon, plan, stages, index, isPiped, kernels } = options;
    const ranges = stages[index]!;
    for (const fn of plan.functions) {
      const count = kernels[nameOf(fn)]?.length ?? 0;
      if (count !== fn.buckets.length || count === 0)
        throw new Error(`${count} sets of kernels for ${fn.buckets.length} buckets of ${nameOf(fn)}.`);
    }
    const weightPlan = planWeights(stageWeights(plan, ranges), plan.constants, options.tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan);
    const states = stageStates(plan, stages, index);
    const searchPlan = new SearchPlan(plan.functions.map((fn) => [fn, ranges[nameOf(fn)]!]));
    const symbols = symbolsOf(options, ranges);
    // Functions use it in turn.
    const largest = plan.functions.reduce((a, b) => (b.arenaBytes > a.arenaBytes ? b : a));
    const use: CudaMemoryUse = {
      weightBytes: weightPlan.packedBytes,
      arenaBytes: options.arenas * largest.arenaBytes,
      stateBytes: states.reduce((sum, { bytes }) => sum + bytes, 0),
      stagingBytes: loadingBytes(loadPlan),
      codeBytes: codeBytesOf(options, symbols, searchPlan),
    };
    const resources = new Resources();
    let room: DeviceRoom | undefined;
    let loading: Promise<CudaMemory | undefined> | undefined;
    try {
      const { device } = options.prepared ?? { device: new addon.Device(options.ordinal) };
      resources.own(device);
      if (options.prepared !== undefined) resources.own(options.prepared.upload);
      options.onMemory?.(use);
      room = { name: device.info.name, ...device.memory() };
      requireDeviceMemory(use, room, leadingExtent(largest).most);
      const allocate = (bytes: number): CudaMemory => resources.own(new addon.Memory(device, bytes));
      const pack = resources.own(new addon.Module(device, options.packCubin));
      loading = loadWeights(options, device, pack, weightPlan, loadPlan, resources);
      // Awaited below. A failure before that must not count as an unhandled rejection.
      loading.catch(() => undefined);
      // While weights are streamed by other threads.
      const modules = loadModules(options, symbols, device, resources);
      const weights = await loading;
      const slots = weights === undefined ? new Map<string, never>() : weightSlots(weightPlan, weights);
      const shared = [slots, allocateStates(states, allocate)];
      const clock = resources.own(new addon.Clock(device));
      const arenas = Array.from({ length: options.arenas }, () => allocate(largest.arenaBytes));
      const bound = new Map(
        plan.functions.map((fn): [string, Bound] => {
          const range = ranges[nameOf(fn)]!;
          const bindings = arenas.map((arena) =>
            kernels[nameOf(fn)]!.map((texts, bucket) =>
              bindCudaBucket({ fn, range, bucket, kernels: texts, device, clock, modules, shared, arena, isPiped }),
            ),
          );
          const programs = bindings.map((ofArena) =>
            ofArena.map((binding) => resources.own(new addon.Program(binding))),
          );
          const inputs = stageInputs(fn, range).map(({ name }) => name);
          return [nameOf(fn), { fn, inputs, bindings, programs, searches: new Map() }];
        }),
      );
      const search = await Search.create(searchPlan, plan.functions, pack, allocate);
      return new CudaStage(options, { ranges, clock, arenas, device, resources, bound, search, use });
    } catch (error) {
      await loading?.catch(() => undefined);
      if (await isUnshared(options.exchange)) resources.release();
      // Another process may have taken memory that was free a moment ago.
      if (room !== undefined && isOutOfDeviceMemory(error))
        throw deviceMemoryError(use, room, leadingExtent(largest).most, { cause: error });
      throw error;
    }
  }

  /** All but those that search. */
  get programs(): readonly CudaProgram[] {
    return [...this.parts.bound.values()].flatMap(({ programs }) => programs.flat());
  }

  /** The inputs that a function's programs take, in order. */
  inputsOf(fn: RuntimeFunction, inputs: CallArrays): readonly PortData[] {
    return this.boundOf(fn).inputs.map((name) => inputs[name]!);
  }

  /** The program for a call, on one of the sets of activations; one that searches is on the first. */
  program({ fn, bucket, kind }: StageCall, arena: number): CudaProgram {
    const bound = this.boundOf(fn);
    return kind === 'search' ? this.searchProgram(bound, bucket) : bound.programs[arena]![bucket]!;
  }

  /** Clears the answers of the last search. */
  clearSearch(): void {
    this.parts.search.clear();
  }

  found({ fn, extents }: StageCall): Promise<NonFinitePlace | undefined> {
    return this.parts.search.first(fn, extents);
  }

  /** Once nothing runs on it. What another process still reads stays until this one ends. */
  async release(): Promise<void> {
    if (await isUnshared(this.exchange)) this.parts.resources.release();
  }

  private boundOf(fn: RuntimeFunction): Bound {
    return this.parts.bound.get(nameOf(fn))!;
  }

  /** Cached once made. */
  private searchProgram({ fn, bindings, searches }: Bound, bucket: number): CudaProgram {
    const known = searches.get(bucket);
    if (known !== undefined) return known;
    const range = this.ranges[nameOf(fn)]!;
    const binding = this.parts.search.bind(bindings[0]![bucket]!, fn, range, fn.buckets[bucket]!.extents);
    const made = this.parts.resources.own(new this.addon.Program(binding));
    searches.set(bucket, made);
    return made;
  }
}
