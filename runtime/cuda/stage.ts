/**
 * One device of an executor: its part of a plan as machine code, its weights and activations in memory, its programs.
 */
import type { UserError } from '../../errors.js';
import { RESERVED_ROWS } from '../../ir/function.js';
import { leadingExtent } from '../../ir/plan.js';
import { roundUp } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { stageInputs } from '../bindPorts.js';
import type { CallArrays } from '../call.js';
import type { LoadProgress } from '../files.js';
import type { PortData } from '../native.js';
import { bytesOfRows, bytesOfStates, type DeviceStates, NO_TOKENS, type StateTokens } from '../reservedStates.js';
import {
  nameOf,
  type PlacedState,
  type RuntimeFunction,
  type RuntimePlan,
  type StageRanges,
  stageStates,
  stageWeights,
} from '../runtimePlan.js';
import type { BucketOf, NonFinitePlace, StageCall } from '../stageRunner.js';
import type { TensorSource } from '../tensorSource.js';
import { placeWrites, planWeights, type SlotWrite, type WeightPlan } from '../weightPlan.js';
import { type CudaAddon, isOutOfDeviceMemory } from './addon.js';
import { bindCudaBucket, type PlanKernels } from './bindProgram.js';
import type { Cubins } from './compileQueue.js';
import { type LoadPlan, planLoading } from './loadPlan.js';
import {
  type CudaMemoryUse,
  deviceMemoryError,
  type DeviceRoom,
  requireDeviceMemory,
  roomOnDevice,
} from './memoryUse.js';
import type {
  CudaClock,
  CudaDevice,
  CudaMemory,
  CudaModule,
  CudaProgram,
  CudaProgramBinding,
  CudaSlot,
} from './native.js';
import { NonFiniteSearch, SearchPlan } from './search.js';
import { isUnshared, loadSharedWeights, readsFiles, SHARED_GRANULARITY, type WeightExchange } from './shareWeights.js';
import { loadDeviceWeights, loadingBytes, type LoadTimes, weightSlots } from './weights.js';

export interface CudaStageOptions {
  readonly addon: CudaAddon;
  readonly ordinal: number;
  readonly plan: RuntimePlan;
  /** The stages of the whole plan, and the index of this one. */
  readonly stages: readonly StageRanges[];
  readonly index: number;
  readonly kernels: PlanKernels;
  /** Machine code by kernel symbol. */
  readonly cubins: Cubins;
  /** Machine code of packKernels.ts: loading weights waits for it alone. */
  readonly packCubin: Uint8Array | Promise<Uint8Array>;
  /** What is ready once the stage is loaded. */
  readonly first: readonly BucketOf[];
  readonly tensors: ReadonlyMap<string, TensorSource>;
  /** Sets of activations: one for each micro-batch that is on the device. */
  readonly arenas: number;
  /** Whether its programs are run by a CudaPipeline. */
  readonly isPiped: boolean;
  /** Where replicas start together: weights are read from files once for all of them. */
  readonly exchange?: WeightExchange;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Called once the weights are on the device. */
  readonly onLoaded?: (times: LoadTimes) => void;
  /** Rows of reserved states that there is memory for at first; none by default. */
  readonly tokens?: StateTokens | undefined;
  /** Called once, before anything is allocated. */
  readonly onMemory?: (use: CudaMemoryUse) => void;
}

/** Resources on the device, released together in reverse order. What comes later is refused. */
class OwnedResources {
  private readonly made: { release(): void }[] = [];
  private isReleased = false;

  own<T extends { release(): void }>(resource: T): T {
    if (this.isReleased) {
      resource.release();
      throw new Error('The stage was released.');
    }
    this.made.push(resource);
    return resource;
  }

  release(): void {
    this.isReleased = true;
    for (const resource of this.made.splice(0).reverse()) resource.release();
  }
}

/** What a function's programs of one bucket are made of, by arena. */
interface BoundBucket {
  readonly bindings: readonly CudaProgramBinding[];
  readonly programs: readonly CudaProgram[];
  /** The program that searches, made on demand. */
  search?: CudaProgram;
}

/** A function on the device. */
interface CudaFunction {
  readonly inputs: readonly string[];
  /** By bucket, as far as they are ready. */
  readonly buckets: Map<number, BoundBucket>;
}

interface StageParts {
  readonly ranges: StageRanges;
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  readonly resources: OwnedResources;
  readonly code: StageCode;
  readonly shared: readonly ReadonlyMap<string, CudaSlot>[];
  readonly weightPlan: WeightPlan;
  /** The memory of all weights, if there are any. */
  readonly weights: CudaMemory | undefined;
  readonly search: NonFiniteSearch;
  readonly use: CudaMemoryUse;
  readonly states: DeviceStates;
  readonly room: DeviceRoom;
}

/** The machine code of a stage: modules of the kernels that it launches, loaded as they are asked for. */
class StageCode {
  readonly modules = new Map<string, CudaModule>();
  private readonly options: CudaStageOptions;
  private readonly ranges: StageRanges;
  private readonly device: CudaDevice;
  private readonly resources: OwnedResources;

  constructor(options: CudaStageOptions, ranges: StageRanges, device: CudaDevice, resources: OwnedResources) {
    this.options = options;
    this.ranges = ranges;
    this.device = device;
    this.resources = resources;
  }

  /** Loads what a bucket launches, once its machine code is there. Rejects where a kernel does not compile. */
  async load(of: BucketOf): Promise<void> {
    const { addon, cubins } = this.options;
    const symbols = [...symbolsOf(this.options.kernels, this.ranges, of)];
    const images = await Promise.all(symbols.map((symbol) => cubins.get(symbol)));
    symbols.forEach((symbol, i) => {
      if (!this.modules.has(symbol))
        this.modules.set(symbol, this.resources.own(new addon.Module(this.device, images[i]!)));
    });
  }
}

/** Symbols of the kernels that a stage launches for a bucket. */
function symbolsOf(kernels: PlanKernels, ranges: StageRanges, { fn, bucket }: BucketOf): ReadonlySet<string> {
  const { first, end } = ranges[nameOf(fn)]!;
  return new Set(kernels[nameOf(fn)]![bucket]!.slice(first, end).map(({ symbol }) => symbol));
}

/**
 * What the machine code of a kernel takes that is still being compiled. The largest of the models that are measured
 * are half as large.
 */
const UNKNOWN_CODE_BYTES = 512 << 10;

function codeBytesOf(
  { cubins, kernels, plan }: CudaStageOptions,
  packBytes: number,
  ranges: StageRanges,
  search: SearchPlan,
): number {
  const symbols = new Set(
    plan.functions.flatMap((fn) => fn.buckets.flatMap((_, bucket) => [...symbolsOf(kernels, ranges, { fn, bucket })])),
  );
  return [...symbols].reduce(
    (sum, symbol) => sum + (cubins.known(symbol)?.length ?? UNKNOWN_CODE_BYTES),
    packBytes + search.jobBytes + search.foundBytes,
  );
}

/** The memory of all weights, once they are in it; none where the plan has none. */
async function loadWeights(
  { addon, exchange, onProgress, onLoaded }: CudaStageOptions,
  device: CudaDevice,
  pack: CudaModule,
  weightPlan: WeightPlan,
  loadPlan: LoadPlan,
  resources: OwnedResources,
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
    ...defined({ onProgress }),
  };
  const times = await (isShared ? loadSharedWeights(request, exchange) : loadDeviceWeights(request));
  onLoaded?.(times);
  return weights;
}

/** The states of a stage: memory that is zero, or addresses for it. */
function allocateStates(
  states: readonly PlacedState[],
  device: CudaDevice,
  allocate: (bytes: number, most?: number) => CudaMemory,
  { most }: StateTokens,
): { readonly slots: ReadonlyMap<string, CudaSlot>; readonly reserved: DeviceStates } {
  const slots = new Map<string, CudaSlot>();
  const reserved: DeviceStates['states'][number][] = [];
  for (const { name, bytes, rowBytes, isReserved } of states) {
    const memory = isReserved
      ? allocate(bytesOfRows(RESERVED_ROWS, rowBytes), bytesOfRows(most, rowBytes))
      : allocate(bytes);
    slots.set(name, { memory, offset: 0, bytes });
    if (isReserved) reserved.push({ rowBytes, memory });
    else memory.fill(0);
  }
  return { slots, reserved: { states: reserved, room: () => roomOnDevice(device) } };
}

export class CudaStage {
  readonly ranges: StageRanges;
  readonly use: CudaMemoryUse;
  /** Those that are reserved. */
  readonly states: DeviceStates;
  readonly device: CudaDevice;
  readonly clock: CudaClock;
  readonly arenas: readonly CudaMemory[];
  private readonly options: CudaStageOptions;
  private readonly parts: StageParts;
  private readonly bound: ReadonlyMap<string, CudaFunction>;

  private constructor(options: CudaStageOptions, parts: StageParts) {
    this.options = options;
    this.parts = parts;
    ({
      ranges: this.ranges,
      use: this.use,
      states: this.states,
      device: this.device,
      clock: this.clock,
      arenas: this.arenas,
    } = parts);
    this.bound = new Map(
      options.plan.functions.map((fn): [string, CudaFunction] => [
        nameOf(fn),
        { inputs: stageInputs(fn, this.ranges[nameOf(fn)]!).map(({ name }) => name), buckets: new Map() },
      ]),
    );
  }

  /**
   * Loads weights, and meanwhile the machine code of the first buckets, which it then binds. Memory is reported and
   * checked before it is taken; kernels that are still being compiled count as UNKNOWN_CODE_BYTES each.
   * Throws UserError for tensors that are missing, of the wrong shape or cut off, for kernels that do not compile, and
   * for too little device memory.
   */
  static async load(options: CudaStageOptions): Promise<CudaStage> {
    const { addon, plan, stages, index, kernels, first } = options;
    const ranges = stages[index]!;
    for (const fn of plan.functions) {
      const count = kernels[nameOf(fn)]?.length ?? 0;
      if (count !== fn.buckets.length || count === 0)
        throw new Error(`${count} sets of kernels for ${fn.buckets.length} buckets of ${nameOf(fn)}.`);
    }
    const weightPlan = planWeights(stageWeights(plan, ranges), plan.constants, options.tensors, { isMapping: false });
    const loadPlan = planLoading(weightPlan);
    const states = stageStates(plan, stages, index);
    const tokens = options.tokens ?? NO_TOKENS;
    const searchPlan = new SearchPlan(plan.functions.map((fn) => [fn, ranges[nameOf(fn)]!]));
    const packCubin = await options.packCubin;
    // Functions use it in turn.
    const largest = plan.functions.reduce((a, b) => (b.arenaBytes > a.arenaBytes ? b : a));
    const use: CudaMemoryUse = {
      weightBytes: weightPlan.packedBytes,
      arenaBytes: options.arenas * largest.arenaBytes,
      stateBytes: bytesOfStates(states, tokens.first),
      stagingBytes: loadingBytes(loadPlan),
      codeBytes: codeBytesOf(options, packCubin.length, ranges, searchPlan),
    };
    const resources = new OwnedResources();
    let room: DeviceRoom | undefined;
    let loading: Promise<CudaMemory | undefined> | undefined;
    try {
      const device = resources.own(new addon.Device(options.ordinal));
      options.onMemory?.(use);
      room = { name: device.info.name, ...device.memory() };
      requireDeviceMemory(use, room, leadingExtent(largest).most);
      const allocate = (bytes: number, most?: number): CudaMemory =>
        resources.own(new addon.Memory(device, bytes, most));
      const pack = resources.own(new addon.Module(device, packCubin));
      loading = loadWeights(options, device, pack, weightPlan, loadPlan, resources);
      // While weights are streamed by other threads.
      const code = new StageCode(options, ranges, device, resources);
      const [weights] = await Promise.all([loading, ...first.map((of) => code.load(of))]);
      const slots = weights === undefined ? new Map<string, never>() : weightSlots(weightPlan, weights);
      const { slots: stateSlots, reserved } = allocateStates(states, device, allocate, tokens);
      const shared = [slots, stateSlots];
      const clock = resources.own(new addon.Clock(device));
      const arenas = Array.from({ length: options.arenas }, () => allocate(largest.arenaBytes));
      const search = await NonFiniteSearch.create(searchPlan, plan.functions, pack, allocate);
      const stage = new CudaStage(options, {
        ranges,
        clock,
        arenas,
        device,
        resources,
        code,
        shared,
        weightPlan,
        weights,
        search,
        use,
        states: reserved,
        room,
      });
      for (const of of first) stage.bind(of);
      return stage;
    } catch (error) {
      await loading?.catch(() => undefined);
      if (await isUnshared(options.exchange)) resources.release();
      // Another process may have taken memory that was free a moment ago.
      if (room !== undefined && isOutOfDeviceMemory(error))
        throw deviceMemoryError(use, room, leadingExtent(largest).most, { cause: error });
      throw error;
    }
  }

  /** The error for a device that has no room for what the stage needs. */
  memoryError(): UserError {
    const { plan } = this.options;
    const largest = plan.functions.reduce((a, b) => (b.arenaBytes > a.arenaBytes ? b : a));
    return deviceMemoryError(this.use, this.parts.room, leadingExtent(largest).most);
  }

  /** All that are ready, but those that search. */
  get programs(): readonly CudaProgram[] {
    return [...this.bound.values()].flatMap(({ buckets }) => [...buckets.values()].flatMap(({ programs }) => programs));
  }

  isReady({ fn, bucket }: BucketOf): boolean {
    return this.boundOf(fn).buckets.has(bucket);
  }

  /** Makes a bucket ready once its machine code is there. Rejects where a kernel of it does not compile. */
  async prepare(of: BucketOf): Promise<void> {
    if (this.isReady(of)) return;
    await this.parts.code.load(of);
    this.bind(of);
  }

  /** The inputs that a function's programs take, in order. */
  inputsOf(fn: RuntimeFunction, inputs: CallArrays): readonly PortData[] {
    return this.boundOf(fn).inputs.map((name) => inputs[name]!);
  }

  /** The program for a call, on one of the sets of activations; one that searches is on the first. */
  program(call: StageCall, arena: number): CudaProgram {
    const { fn, bucket, kind } = call;
    const bound = this.boundOf(fn).buckets.get(bucket);
    if (bound === undefined) throw new Error(`Bucket ${bucket} of ${nameOf(fn)} is not ready.`);
    return kind === 'search' ? (bound.search ??= this.searchProgram(call, bound)) : bound.programs[arena]!;
  }

  /** Writes slots whose weights it has. */
  async writeSlots(writes: readonly SlotWrite[]): Promise<void> {
    const { weights, weightPlan } = this.parts;
    const placed = placeWrites(weightPlan, writes);
    if (placed.length > 0) await weights!.writeBeside(placed);
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
    if (await isUnshared(this.options.exchange)) this.parts.resources.release();
  }

  private boundOf(fn: RuntimeFunction): CudaFunction {
    return this.bound.get(nameOf(fn))!;
  }

  /** One program for each arena. Its modules are loaded. */
  private bind({ fn, bucket }: BucketOf): void {
    const { buckets } = this.boundOf(fn);
    if (buckets.has(bucket)) return;
    const { addon, isPiped, kernels } = this.options;
    const { resources, device, clock, shared, code } = this.parts;
    const bindings = this.arenas.map((arena) =>
      bindCudaBucket({
        fn,
        range: this.ranges[nameOf(fn)]!,
        bucket,
        kernels: kernels[nameOf(fn)]![bucket]!,
        device,
        clock,
        modules: code.modules,
        shared,
        arena,
        isPiped,
      }),
    );
    const programs = bindings.map((binding) => resources.own(new addon.Program(binding)));
    buckets.set(bucket, { bindings, programs });
  }

  private searchProgram({ fn, bucket }: StageCall, { bindings }: BoundBucket): CudaProgram {
    const { search, resources } = this.parts;
    const binding = search.bind(bindings[0]!, fn, this.ranges[nameOf(fn)]!, fn.buckets[bucket]!.extents);
    return resources.own(new this.options.addon.Program(binding));
  }
}
