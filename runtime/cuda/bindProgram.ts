/** Binds the launches of a function to device memory: one program for each bucket. */
import type { CudaKernelText, TensorMapDecl } from '../../ir/cuda.js';
import type { Stage } from '../../ir/plan.js';
import { portOf, programExtents, Slots, stageInputs, stageOutputs } from '../bindPorts.js';
import { isForAdapters, kernelOf, nameOf, type RuntimeFunction } from '../runtimePlan.js';
import type {
  CudaClock,
  CudaDevice,
  CudaLaunchBinding,
  CudaMemory,
  CudaModule,
  CudaProgramBinding,
  CudaSlot,
  CudaTensorMapBinding,
} from './native.js';

/** Buffers and weights start at multiples of this many bytes: tensor maps require 16, whole L2 lines 128. */
export const DEVICE_ALIGNMENT = 256;

/** Kernel texts of each function by its name: [bucket][launch], each with the launch's own parameters. */
export type PlanKernels = Readonly<Record<string, readonly (readonly CudaKernelText[])[]>>;

export interface CudaBindRequest {
  readonly fn: RuntimeFunction;
  /** The launches to bind. */
  readonly range: Stage;
  readonly bucket: number;
  /** Kernel texts of all launches of the function. */
  readonly kernels: readonly CudaKernelText[];
  readonly device: CudaDevice;
  /** Modules by kernel symbol. */
  readonly modules: ReadonlyMap<string, CudaModule>;
  /** Weights and states. */
  readonly shared: readonly ReadonlyMap<string, CudaSlot>[];
  readonly arena: CudaMemory;
  readonly clock: CudaClock;
  /** See CudaProgramBinding. */
  readonly isPiped: boolean;
}

/**
 * One launch of a kernel on the buffers and weights that it names; `slotOf` gives their indices. A kernel that waits
 * for its predecessor is launched before that one has ended. Throws where a tensor map is of no parameter.
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

function bindLaunches(request: CudaBindRequest, slots: Slots<CudaMemory>): CudaLaunchBinding[] {
  const { fn, range, bucket, kernels, modules } = request;
  if (kernels.length !== fn.launches.length)
    throw new Error(`${nameOf(fn)}, bucket ${bucket}: ${kernels.length} kernels for ${fn.launches.length} launches.`);
  return fn.launches.slice(range.first, range.end).map(({ kernel: name, parameters }, at): CudaLaunchBinding => {
    const i = range.first + at;
    const text = kernels[i]!;
    const module = modules.get(text.symbol);
    if (module === undefined) throw new Error(`There is no machine code of ${text.symbol} (${name}).`);
    if (parameters.join() !== text.parameters.join())
      throw new Error(
        `${text.symbol} takes ${text.parameters.join(', ')}; launch ${i} (${name}) gives ${parameters.join(', ')}.`,
      );
    const bound = bindKernel(kernelOf(fn, i).path, text, module, (parameter) => slots.of(parameter));
    return isForAdapters(fn, i) ? { ...bound, isForAdapters: true } : bound;
  });
}

/** Binds one bucket. Throws if plan and kernels do not match; the addon checks every range again. */
export function bindCudaBucket(request: CudaBindRequest): CudaProgramBinding {
  const { fn, range, arena, shared, device, clock, isPiped } = request;
  const slots = new Slots(fn, arena, shared, DEVICE_ALIGNMENT);
  const bucket = fn.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`${nameOf(fn)} has no bucket ${request.bucket}.`);
  return {
    device,
    clock,
    isPiped,
    extents: programExtents(fn.interface, bucket.extents),
    slots: slots.list,
    launches: bindLaunches(request, slots),
    inputs: stageInputs(fn, range).map((input) => portOf(fn, input, slots.of(input.buffer))),
    outputs: stageOutputs(fn, range).map((output) => portOf(fn, output, slots.of(output.buffer))),
  };
}
