/** Arguments of the kernels in packKernels.ts: the bytes of their structs, and how many blocks they are worth. */
import type { Pairing, WeightDecl } from '../../ir/kernel.js';
import { KMAJOR_STEP } from '../../ir/packing.js';
import { roundUp } from '../../ir/types.js';
import type { PackDType, TensorSource } from '../tensorSource.js';
import { PACK_THREADS } from './packKernels.js';

const TYPES: Readonly<Record<PackDType, number>> = { f32: 0, f16: 1, bf16: 2 };
const PAIRINGS: Readonly<Record<Pairing['kind'], number>> = { none: 0, rotate: 1, interleave: 2 };
const KINDS: Readonly<Record<TensorSource['kind'], number>> = { file: 0, random: 1, constant: 2 };

/** A range of whole rows of one source, on its way into a weight. Addresses are of device memory. */
export interface PackRows {
  /** Staged bytes of the range; 0n where the source is not a file. */
  readonly source: bigint;
  readonly target: bigint;
  /** f32[k], or 0n. */
  readonly scale: bigint;
  readonly tensor: TensorSource;
  /** Rows of the range: `rows` from `firstRow` of the source, whose own first is row `sourceRow` of the stack. */
  readonly firstRow: number;
  readonly rows: number;
  readonly sourceRow: number;
}

/** What a kernel is launched with. */
export interface KernelArguments {
  readonly bytes: Uint8Array;
  readonly gridX: number;
  readonly gridY: number;
}

const MASK = (1n << 64n) - 1n;

/** The hash of a seed from which the counter starts: `mix` of runtime/native/pack.cc. */
export function startOf(seed: bigint): bigint {
  let z = seed & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** Elements from one row of a weight to the next. Throws for the layouts of CPUs. */
export function deviceStride(weight: WeightDecl): number {
  switch (weight.layout) {
    case 'kmajor': return roundUp(weight.k, KMAJOR_STEP);
    case 'rows': return weight.k;
    case 'panels':
    case 'vnni': throw new Error(`Weight ${weight.name} is laid out for a CPU.`);
    default: return weight.layout satisfies never;
  }
}

/** Rows that a pairing is about: of a head, or of each of two sources. */
function spanOf(weight: WeightDecl): number {
  const { pairing } = weight;
  switch (pairing.kind) {
    case 'none': return 0;
    case 'rotate': return pairing.headDim;
    case 'interleave': return weight.sources[0]?.rows ?? 0;
    default: return pairing satisfies never;
  }
}

/** f32 factor of a random tensor, value of a constant one. As runtime/native/packBinding.cc computes it. */
const factorOf = (tensor: TensorSource): number =>
  (tensor.kind === 'random' ? (tensor.scale * 1.7320508075688772) / 65536 : tensor.kind === 'constant' ? tensor.value : 0);

const MAX_GRID_Y = 65535;
const blocks = (items: number): number => Math.max(1, Math.ceil(items / PACK_THREADS));

/** Argument of tw_pack_rows. */
export function packArguments(weight: WeightDecl, range: PackRows): KernelArguments {
  const stride = deviceStride(weight);
  const view = new DataView(new ArrayBuffer(88));
  const { tensor } = range;
  [range.source, range.target, range.scale, tensor.kind === 'random' ? startOf(tensor.seed) : 0n, BigInt(range.firstRow) * BigInt(weight.k)]
    .forEach((value, i) => view.setBigUint64(8 * i, value, true));
  [
    range.rows, range.sourceRow + range.firstRow, weight.k, stride, KINDS[tensor.kind], TYPES[tensor.dtype], TYPES[weight.dtype],
    PAIRINGS[weight.pairing.kind], weight.pairing.kind === 'none' ? 1 : weight.pairing.width, spanOf(weight),
  ].forEach((value, i) => view.setInt32(40 + 4 * i, value, true));
  view.setFloat32(80, factorOf(tensor), true);
  return { bytes: new Uint8Array(view.buffer), gridX: blocks(stride), gridY: Math.min(range.rows, MAX_GRID_Y) };
}

/** Argument of tw_pack_zero for `byteLength` bytes, a multiple of 2. */
export function zeroArguments(target: bigint, byteLength: number): KernelArguments {
  const view = new DataView(new ArrayBuffer(16));
  view.setBigUint64(0, target, true);
  view.setBigUint64(8, BigInt(byteLength / 2), true);
  return { bytes: new Uint8Array(view.buffer), gridX: Math.min(1024, blocks(byteLength / 2)), gridY: 1 };
}

export interface FindRange {
  readonly data: bigint;
  /** u64: all ones before, the smallest row · columns + column of a bad element after. */
  readonly found: bigint;
  readonly dtype: PackDType;
  readonly rows: number;
  readonly columns: number;
  readonly stride: number;
  readonly allowsNegativeInfinity: boolean;
}

/** Argument of tw_find_nonfinite. */
export function findArguments(range: FindRange): KernelArguments {
  const view = new DataView(new ArrayBuffer(40));
  [range.data, range.found, BigInt(range.stride)].forEach((value, i) => view.setBigUint64(8 * i, value, true));
  [range.rows, range.columns, TYPES[range.dtype], range.allowsNegativeInfinity ? 1 : 0].forEach((value, i) => view.setInt32(24 + 4 * i, value, true));
  return { bytes: new Uint8Array(view.buffer), gridX: blocks(range.columns), gridY: Math.min(range.rows, MAX_GRID_Y) };
}
