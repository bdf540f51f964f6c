/** Binds the launches of a plan to memory: one program for each bucket. */
import type { BufferDecl, Kernel } from '../../ir/kernel.js';
import { kernelWrites } from '../../ir/kernelAccess.js';
import { rowStride, type Plan } from '../../ir/plan.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import type { Extent, LaunchBinding, NativeLibrary, NativePool, ProgramBinding, Slot, WriteBinding } from './addon.js';

/** What code generation says about one launch of one bucket. */
export interface LaunchSymbol {
  /** Full path of the shared object that holds it. */
  readonly library: string;
  readonly symbol: string;
  /** Bytes of scratch that each worker needs. */
  readonly scratchBytes: number;
}

/** Inputs of the scoring function, in the order in which a run takes them. */
export const INPUTS = ['tokens', 'position', 'subtreeEnd', 'row', 'target'] as const;
export type InputName = (typeof INPUTS)[number];

/** Names of their buffers: kernel identifiers have no capitals. */
const INPUT_BUFFERS: Readonly<Record<InputName, string>> = { tokens: 'tokens', position: 'position', subtreeEnd: 'subtree_end', row: 'row', target: 'target' };

/** Which buffers a micro-batch goes to and its results come from. */
export interface Ports {
  /** Inputs that the plan reads; one that no kernel reads may be absent. */
  readonly inputs: readonly InputName[];
  readonly logProb: string;
  readonly isArgmax: string;
}

export interface BindRequest {
  readonly plan: Plan;
  readonly bucket: number;
  readonly symbols: readonly LaunchSymbol[];
  readonly pool: NativePool;
  readonly libraries: ReadonlyMap<string, NativeLibrary>;
  readonly weights: ReadonlyMap<string, Slot>;
  readonly arena: Slot['memory'];
  readonly scratch: Slot | undefined;
  readonly scratchBytes: number;
}

function outputOf(plan: Plan, dtype: 'f32' | 'i32', fromReduce: (kernel: Extract<Kernel, { anchor: 'logprobReduce' }>) => string): string {
  for (const kernel of plan.kernels) if (kernel.anchor === 'logprobReduce') return fromReduce(kernel);
  const outputs = plan.buffers.filter((buffer) => buffer.space === 'output' && buffer.dtype === dtype);
  if (outputs.length !== 1) throw new Error(`The plan has ${outputs.length} ${dtype} outputs; scoring takes one.`);
  return outputs[0]!.name;
}

export function portsOf(plan: Plan): Ports {
  const inputs = plan.buffers.filter((buffer) => buffer.space === 'input');
  const known: readonly string[] = Object.values(INPUT_BUFFERS);
  for (const { name, dtype } of inputs) {
    if (!known.includes(name) || dtype !== 'i32') throw new Error(`The plan has an input ${name} of ${dtype} that scoring does not provide.`);
  }
  return {
    inputs: INPUTS.filter((name) => inputs.some((buffer) => buffer.name === INPUT_BUFFERS[name])),
    logProb: outputOf(plan, 'f32', (kernel) => kernel.logProb),
    isArgmax: outputOf(plan, 'i32', (kernel) => kernel.isArgmax),
  };
}

const extentOfInput = (name: InputName): Extent => (name === 'row' || name === 'target' ? 'R' : 'T');

/** Buffers in which −∞ is an answer: masks, and the parts of a log-sum-exp (a target outside its block). */
function masksOf(plan: Plan): ReadonlySet<string> {
  const masks = new Set<string>();
  for (const kernel of plan.kernels) {
    if (kernel.anchor === 'logprob') masks.add(kernel.parts);
    if (kernel.anchor === 'attention' && kernel.mask.kind === 'bias') masks.add(kernel.mask.buffer);
  }
  return masks;
}

/** Names of the floating buffers a kernel writes: the order of its WriteBindings. */
export function floatWrites(plan: Plan, kernel: Kernel): readonly string[] {
  const isFloat = (name: string): boolean => {
    const dtype = plan.buffers.find((buffer) => buffer.name === name)?.dtype;
    return dtype === 'f32' || dtype === 'f16' || dtype === 'bf16';
  };
  return [...kernelWrites(kernel)].filter(isFloat);
}

/** Scratch of one worker for all launches, whole pages so that workers share none. */
export const scratchOf = (symbols: readonly (readonly LaunchSymbol[])[]): number =>
  Math.ceil(Math.max(0, ...symbols.flat().map((symbol) => symbol.scratchBytes)) / 4096) * 4096;

/** Binds one bucket. Throws where the plan is inconsistent; the addon checks every range again. */
export function bindBucket(request: BindRequest): ProgramBinding {
  const { plan, weights, arena } = request;
  if (request.symbols.length !== plan.launches.length) throw new Error(`Bucket ${request.bucket}: ${request.symbols.length} symbols for ${plan.launches.length} launches.`);
  const buffers = new Map(plan.buffers.map((buffer) => [buffer.name, buffer]));
  const kernels = new Map(plan.kernels.map((kernel) => [kernel.name, kernel]));
  const masks = masksOf(plan);
  const slots: Slot[] = [];
  const slotIndex = new Map<string, number>();
  const addSlot = (name: string, slot: Slot): void => {
    slotIndex.set(name, slots.length);
    slots.push(slot);
  };
  for (const { buffer, offset, sizeBytes } of plan.placements) addSlot(buffer, { memory: arena, offset, bytes: sizeBytes });
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
    if (dtype === 'i32' || dtype === 'bool') return [];
    const stride = rowStride(buffer, plan.capacity.tokens, DTYPE_BYTES[dtype]);
    return [{ slot: slotOf(name), dtype, rows, columns, stride, allowsNegativeInfinity: masks.has(name) }];
  };
  const launches = plan.launches.map((launch, i): LaunchBinding => {
    const kernel = kernels.get(launch.kernel);
    const { library: path, symbol } = request.symbols[i]!;
    const library = request.libraries.get(path);
    if (kernel === undefined || library === undefined) throw new Error(`Launch ${i} (${launch.kernel}) has no kernel or no library.`);
    return { name: kernel.path, library, symbol, slots: launch.parameters.map(slotOf), writes: floatWrites(plan, kernel).flatMap(write) };
  });
  const ports = portsOf(plan);
  const bucket = plan.buckets[request.bucket];
  if (bucket === undefined) throw new Error(`The plan has no bucket ${request.bucket}.`);
  return {
    pool: request.pool, maxTokens: bucket.tokens, maxRows: bucket.rows,
    scratchBytes: request.scratchBytes, ...(request.scratch === undefined ? {} : { scratch: request.scratch }),
    slots, launches,
    inputs: ports.inputs.map((name) => ({ slot: slotOf(INPUT_BUFFERS[name]), extent: extentOfInput(name) })),
    outputs: [
      { slot: slotOf(ports.logProb), extent: 'R', dtype: 'f32' },
      { slot: slotOf(ports.isArgmax), extent: 'R', dtype: 'i32' },
    ],
  };
}
