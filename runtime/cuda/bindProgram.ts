/** Binds the launches of a plan to device memory: one program for each bucket, and one that searches its results. */
import type { CudaKernelText, TensorMapDecl } from '../../ir/cuda.js';
import type { BufferDecl, Kernel } from '../../ir/kernel.js';
import { rowStride } from '../../ir/plan.js';
import { DTYPE_BYTES, isFloat } from '../../ir/types.js';
import { extentOfInput, floatWrites, INPUT_BUFFERS, vectorPort, type Ports, type RuntimePlan } from '../ports.js';
import { mostOf, programExtents } from '../extents.js';
import type {
  CudaClock,
  CudaDevice,
  CudaLaunchBinding,
  CudaMemory,
  CudaModule,
  CudaProgramBinding,
  CudaSlot,
  CudaTensorMapBinding,
} from './addon.js';
import { findJob, JOB_BYTES, type FindRange } from './packJob.js';
import { PACK_ENTRIES } from './packKernels.js';

/** Buffers and weights start at multiples of this many bytes: tensor maps ask for 16, whole L2 lines for 128. */
export const DEVICE_ALIGNMENT = 256;

export interface CudaBindRequest {
  readonly plan: RuntimePlan;
  /** The inputs that it takes, and what it gives, if anything. */
  readonly ports: Pick<Ports, 'inputs'> & { readonly outputs?: Omit<Ports, 'inputs'> };
  readonly bucket: number;
  /** One a launch, with the launch's own parameters. */
  readonly kernels: readonly CudaKernelText[];
  readonly device: CudaDevice;
  /** By kernel symbol. */
  readonly modules: ReadonlyMap<string, CudaModule>;
  readonly weights: ReadonlyMap<string, CudaSlot>;
  readonly arena: CudaMemory;
  readonly clock: CudaClock;
  /** See CudaProgramBinding. */
  readonly isPiped: boolean;
}

/** The slots of a plan, by index and by name of buffer or weight. Throws where one is misaligned or missing. */
class Slots {
  readonly list: CudaSlot[] = [];
  private readonly index = new Map<string, number>();

  constructor({ plan, arena, weights }: CudaBindRequest) {
    for (const { buffer, offset, sizeBytes } of plan.placements)
      this.add(buffer, { memory: arena, offset, bytes: sizeBytes });
    for (const [name, slot] of weights) this.add(name, slot);
  }

  of(name: string): number {
    const index = this.index.get(name);
    if (index === undefined) throw new Error(`The plan places neither a buffer nor a weight ${name}.`);
    return index;
  }

  private add(name: string, slot: CudaSlot): void {
    if (slot.offset % DEVICE_ALIGNMENT !== 0)
      throw new Error(`${name} lies at ${slot.offset}, which is no multiple of ${DEVICE_ALIGNMENT} bytes.`);
    this.index.set(name, this.list.length);
    this.list.push(slot);
  }
}

/**
 * One launch of a kernel on the buffers and weights that it names; `slotOf` gives their indices. A kernel that waits for
 * its predecessor is launched before that one has ended. Throws where a tensor map is of no parameter.
 */
export function bindKernel(
  name: string,
  text: CudaKernelText,
  module: CudaModule,
  slotOf: (parameter: string) => number,
): CudaLaunchBinding {
  const bindMap = ({
    parameter: index,
    dtype,
    rows,
    columns,
    stride,
    boxRows,
    boxColumns,
    swizzle,
  }: TensorMapDecl): CudaTensorMapBinding => {
    const parameter = text.parameters[index];
    if (parameter === undefined)
      throw new Error(
        `${text.symbol} has a tensor map of parameter ${index}, but ${text.parameters.length} parameters.`,
      );
    return { slot: slotOf(parameter), dtype, rows, columns, stride, boxRows, boxColumns, swizzle };
  };
  return {
    name,
    module,
    symbol: text.symbol,
    launch: text.launch,
    usesProgrammaticLaunch: text.waitsForPredecessor,
    slots: text.parameters.map(slotOf),
    tensorMaps: text.tensorMaps.map(bindMap),
  };
}

function bindLaunches(request: CudaBindRequest, slots: Slots): CudaLaunchBinding[] {
  const { plan, bucket, kernels, modules } = request;
  if (kernels.length !== plan.launches.length)
    throw new Error(`Bucket ${bucket}: ${kernels.length} kernels for ${plan.launches.length} launches.`);
  const paths = new Map(plan.kernels.map((kernel) => [kernel.name, kernel.path]));
  return plan.launches.map(({ kernel: name, parameters }, i): CudaLaunchBinding => {
    const text = kernels[i]!;
    const module = modules.get(text.symbol);
    if (module === undefined) throw new Error(`There is no machine code of ${text.symbol} (${name}).`);
    if (parameters.join() !== text.parameters.join())
      throw new Error(
        `${text.symbol} takes ${text.parameters.join(', ')}; launch ${i} (${name}) gives ${parameters.join(', ')}.`,
      );
    return bindKernel(paths.get(name) ?? name, text, module, (parameter) => slots.of(parameter));
  });
}

/** Binds one bucket. Throws where plan and kernels do not fit each other; the addon checks every range again. */
export function bindCudaBucket(request: CudaBindRequest): CudaProgramBinding {
  const {
    plan,
    ports: { inputs, outputs },
    device,
    clock,
    isPiped,
  } = request;
  const slots = new Slots(request);
  const bucket = plan.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`The plan has no bucket ${request.bucket}.`);
  return {
    device,
    clock,
    isPiped,
    extents: programExtents(bucket),
    slots: slots.list,
    launches: bindLaunches(request, slots),
    inputs: inputs.map((name) => vectorPort(slots.of(INPUT_BUFFERS[name]), extentOfInput(name), 'i32')),
    outputs:
      outputs === undefined
        ? []
        : [vectorPort(slots.of(outputs.logProb), 'R', 'f32'), vectorPort(slots.of(outputs.isArgmax), 'R', 'i32')],
  };
}

/** A floating buffer that a launch writes. */
export interface SearchedWrite extends FindRange {
  readonly launch: number;
  readonly buffer: string;
}

/** Every floating buffer that every launch writes, in order. `masks`: buffers in which −∞ is an answer. */
export function searchedWrites(plan: RuntimePlan, masks: ReadonlySet<string>): readonly SearchedWrite[] {
  const buffers = new Map<string, BufferDecl>(plan.buffers.map((buffer) => [buffer.name, buffer]));
  const kernels = new Map<string, Kernel>(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const found: SearchedWrite[] = [];
  plan.launches.forEach(({ kernel: name }, launch) => {
    const kernel = kernels.get(name);
    if (kernel === undefined) throw new Error(`Launch ${launch} runs ${name}, which the plan does not have.`);
    for (const buffer of floatWrites(plan, kernel)) {
      const declared = buffers.get(buffer)!;
      const { dtype, rows, columns } = declared;
      if (!isFloat(dtype)) continue;
      const stride = rowStride(declared, plan.capacity.extents, DTYPE_BYTES[dtype]);
      found.push({
        index: found.length,
        launch,
        buffer,
        dtype,
        rows,
        columns,
        stride,
        allowsNegativeInfinity: masks.has(buffer),
      });
    }
  });
  return found;
}

/** Bytes that bindSearch needs: a job and an answer for each write. */
export const searchBytes = (writes: number): { readonly jobs: number; readonly found: number } => ({
  jobs: writes * JOB_BYTES,
  found: Math.ceil((writes * 8) / DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT,
});

export interface SearchMemory {
  readonly jobs: CudaMemory;
  /** u64 a write, all ones before a run. */
  readonly found: CudaMemory;
  readonly pack: CudaModule;
}

/** The bytes of all search jobs, for SearchMemory.jobs. */
export function searchJobs(plan: RuntimePlan, writes: readonly SearchedWrite[]): Uint8Array {
  const bytes = new Uint8Array(writes.length * JOB_BYTES);
  const most = programExtents(plan.capacity);
  for (const write of writes)
    bytes.set(findJob(write, (extent) => mostOf(extent, most)).bytes, write.index * JOB_BYTES);
  return bytes;
}

/** The program of a bucket, with a search of each launch's results before the next launch may overwrite them. */
export function bindSearch(
  binding: CudaProgramBinding,
  plan: RuntimePlan,
  writes: readonly SearchedWrite[],
  { jobs, found, pack }: SearchMemory,
): CudaProgramBinding {
  const slots = [...binding.slots, { memory: found, offset: 0, bytes: found.sizeBytes }];
  const foundSlot = slots.length - 1;
  const slotOfBuffer = new Map(plan.placements.map(({ buffer }, i) => [buffer, i]));
  const launches = binding.launches.flatMap((launch, i): CudaLaunchBinding[] => [
    launch,
    ...writes
      .filter((write) => write.launch === i)
      .map((write): CudaLaunchBinding => {
        slots.push({ memory: jobs, offset: write.index * JOB_BYTES, bytes: JOB_BYTES });
        return {
          name: `search of ${write.buffer}`,
          module: pack,
          symbol: PACK_ENTRIES.find,
          tensorMaps: [],
          usesProgrammaticLaunch: false,
          sizes: [write.rows, write.columns],
          slots: [slots.length - 1, slotOfBuffer.get(write.buffer)!, foundSlot],
          launch: findJob(write, (extent) => mostOf(extent, binding.extents)).launch,
        };
      }),
  ]);
  return { ...binding, slots, launches };
}
