/** Binds the launches of a plan to memory: one program for each bucket. */
import type { BufferDecl } from '../../ir/kernel.js';
import type { Stage } from '../../ir/placement.js';
import { rowStride, type LinkedFunction } from '../../ir/plan.js';
import { DTYPE_BYTES, isFloat } from '../../ir/types.js';
import { extentOfInput, floatWrites, INPUT_BUFFERS, masksOf, portsOf, vectorPort } from '../ports.js';
import { programExtents } from '../extents.js';
import type { LaunchBinding, NativeLibrary, NativePool, ProgramBinding, Slot, WriteBinding } from '../addon.js';

/** What code generation says about one launch of one bucket. */
export interface LaunchSymbol {
  /** Full path of the shared object that holds it. */
  readonly library: string;
  readonly symbol: string;
  /** Bytes of scratch that each worker needs. */
  readonly scratchBytes: number;
}

export interface BindRequest {
  readonly plan: LinkedFunction;
  /** Which of the plan's launches. Whoever has the last gives the outputs. */
  readonly stage: Stage;
  readonly bucket: number;
  /** Of all launches of the plan. */
  readonly symbols: readonly LaunchSymbol[];
  readonly pool: NativePool;
  readonly libraries: ReadonlyMap<string, NativeLibrary>;
  readonly weights: ReadonlyMap<string, Slot>;
  readonly arena: Slot['memory'];
  readonly scratch: Slot | undefined;
  readonly scratchBytes: number;
}

/** Scratch of one worker for all launches, whole pages so that workers share none. */
export const scratchOf = (symbols: readonly (readonly LaunchSymbol[])[]): number =>
  Math.ceil(Math.max(0, ...symbols.flat().map((symbol) => symbol.scratchBytes)) / 4096) * 4096;

/** Binds one bucket. Throws where the plan is inconsistent; the addon checks every range again. */
export function bindBucket(request: BindRequest): ProgramBinding {
  const { plan, stage, weights, arena } = request;
  if (request.symbols.length !== plan.launches.length)
    throw new Error(
      `Bucket ${request.bucket}: ${request.symbols.length} symbols for ${plan.launches.length} launches.`,
    );
  const buffers = new Map(plan.buffers.map((buffer) => [buffer.name, buffer]));
  const kernels = new Map(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const masks = masksOf(plan);
  const slots: Slot[] = [];
  const slotIndex = new Map<string, number>();
  const addSlot = (name: string, slot: Slot): void => {
    slotIndex.set(name, slots.length);
    slots.push(slot);
  };
  for (const { buffer, offset, sizeBytes } of plan.placements)
    addSlot(buffer, { memory: arena, offset, bytes: sizeBytes });
  for (const [name, slot] of weights) addSlot(name, slot);
  const slotOf = (name: string): number => {
    const index = slotIndex.get(name);
    if (index === undefined) throw new Error(`The plan places neither a buffer nor a weight ${name}.`);
    return index;
  };
  const bufferOf = (name: string): BufferDecl => {
    const buffer = buffers.get(name);
    if (buffer === undefined) throw new Error(`The plan has no buffer ${name}.`);
    return buffer;
  };
  const write = (name: string): WriteBinding[] => {
    const buffer = bufferOf(name);
    const { dtype, rows, columns } = buffer;
    if (!isFloat(dtype)) return [];
    const stride = rowStride(buffer, plan.capacity.extents, DTYPE_BYTES[dtype]);
    return [{ slot: slotOf(name), dtype, rows, columns, stride, allowsNegativeInfinity: masks.has(name) }];
  };
  const launches = plan.launches.slice(stage.first, stage.end).map((launch, at): LaunchBinding => {
    const i = stage.first + at;
    const kernel = kernels.get(launch.kernel);
    const { library: path, symbol } = request.symbols[i]!;
    const library = request.libraries.get(path);
    if (kernel === undefined || library === undefined)
      throw new Error(`Launch ${i} (${launch.kernel}) has no kernel or no library.`);
    return {
      name: kernel.path,
      library,
      symbol,
      slots: launch.parameters.map(slotOf),
      writes: floatWrites(plan, kernel).flatMap(write),
    };
  });
  const ports = portsOf(plan);
  const bucket = plan.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`The plan has no bucket ${request.bucket}.`);
  return {
    pool: request.pool,
    extents: programExtents(bucket),
    scratchBytes: request.scratchBytes,
    ...(request.scratch === undefined ? {} : { scratch: request.scratch }),
    slots,
    launches,
    inputs: ports.inputs.map((name) => vectorPort(slotOf(INPUT_BUFFERS[name]), extentOfInput(name), 'i32')),
    outputs:
      stage.end < plan.launches.length
        ? []
        : [vectorPort(slotOf(ports.logProb), 'R', 'f32'), vectorPort(slotOf(ports.isArgmax), 'R', 'i32')],
  };
}
