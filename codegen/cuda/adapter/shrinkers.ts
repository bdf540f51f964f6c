/** Products that shrink the rows of their adapters themselves: what adapter/shrinkers.cuh is told of them. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { ContractionKernel, GemmKernel } from '../../../ir/kernel.js';
import { PACKED_COLUMNS } from '../../../ir/packing.js';
import { roundUp } from '../../../ir/types.js';
import type { Functor } from '../text/functor.js';
import { type CudaOperands, ELEMENT_TYPES, matricesOf } from '../text/operands.js';
import type { ConfigFields } from '../text/unit.js';
import { shrinkBatch } from './index.js';

/** Warps that shrink, and steps of k whose operands each has on the way together. */
export interface Shrinkers {
  readonly warps: number;
  readonly batch: number;
}

type Adapted = GemmKernel & Required<Pick<GemmKernel, 'adapter'>>;

/** The kernel, if it shrinks rows itself under this schedule. */
export const shrinkingKernel = (
  kernel: ContractionKernel,
  { adapters }: Pick<CudaGemmSchedule, 'adapters'>,
): Adapted | undefined =>
  adapters === 'shrinks' && kernel.anchor === 'gemm' && kernel.adapter !== undefined
    ? { ...kernel, adapter: kernel.adapter }
    : undefined;

/** Columns of what was shrunk that a column tile reads at most. */
const ownColumns = ({ adapter: { rank }, segments }: Adapted): number =>
  Math.max(...segments.map(({ adapter, pairing }) => (adapter === undefined ? 0 : rank * matricesOf(pairing))));

/** Elements from row to row of what was shrunk, in shared memory: rows of a fragment lie in different banks. */
const pitchOf = (kernel: Adapted): number => ownColumns(kernel) + 8;

/** Of groups of rows, and of what multiplying warps read. */
const GROUPS_BYTES = 656 + 48;

/** Bytes that shrinkers add to a block's shared memory. */
export const shrinkersBytes = (kernel: Adapted, tm: number): number =>
  roundUp(tm * pitchOf(kernel) * 2, 16) + GROUPS_BYTES;

/** Fields of AdapterConfig that differ, and ShrinkersConfig as a field of a skeleton's Config. */
export function shrinkersField(
  kernel: Adapted,
  operands: CudaOperands,
  { warps, batch }: Shrinkers,
  columnTiles: number,
) {
  const { first, shrunk } = kernel.adapter;
  const columns = Number(operands.get(shrunk).columns);
  const shrinkers: ConfigFields = {
    warps,
    columns,
    ownColumns: ownColumns(kernel),
    aStride: operands.get(kernel.a).stride,
    wStride: operands.weight(first.weight).stride,
    wRows: roundUp(columns, PACKED_COLUMNS),
    batch,
    blocks: columnTiles,
  };
  return { stride: pitchOf(kernel), shrinkers };
}

/** Warps of a product of many rows that shrinks them first (adapter/shrinkFirst.cuh), and their most loads at once. */
const [FIRST_WARPS, FIRST_BATCH] = [8, 16] as const;

/** Fields of HopperConfig of such a product. */
export function shrinkingFirstFields(kernel: Adapted, operands: CudaOperands) {
  const own = { warps: FIRST_WARPS, batch: shrinkBatch(kernel.k, FIRST_BATCH) };
  const { shrinkers } = shrinkersField(kernel, operands, own, 0);
  return { shrinkers, shrunkStride: operands.get(kernel.adapter.shrunk).stride };
}

const COUNT = 'shrink_count';

/** Its prologue, with what is read and written, and what stands before the kernel's head. */
export function shrinkingFirstPrologue(
  kernel: Adapted,
  operands: CudaOperands,
  { instance: prologue }: Pick<Functor, 'instance'>,
) {
  const { slot, first, shrunk } = kernel.adapter;
  const { dtype } = operands.get(kernel.a);
  const type = `ShrinkingFirst<${prologue.slice(0, prologue.indexOf('{'))}, ${ELEMENT_TYPES[dtype]}>`;
  const names = [kernel.a, slot, first.weight, first.scale, shrunk].map((name) => operands.nameOf(operands.get(name)));
  return {
    state: `__device__ ShrinkCount ${COUNT};`,
    instance: `${type}{ ${prologue}, { ${names.join(', ')}, &${COUNT} } }`,
  };
}

const STATE = 'shrinkers_state';

/** A prologue with what shrinkers read, and the memory that they share, which stands before the kernel's head. */
export function shrinkingPrologue(kernel: Adapted, operands: CudaOperands, prologue: string) {
  const { slot, first } = kernel.adapter;
  const a = operands.get(kernel.a);
  const state = 'ShrinkersState<config.tile_m, config.shrinkers.columns, config.k, config.shrinkers.blocks>';
  const type = `Shrinking<${prologue.slice(0, prologue.indexOf('{'))}, ${ELEMENT_TYPES[a.dtype]}, ${state}>`;
  const names = [kernel.a, slot, first.weight, first.scale].map((name) => operands.nameOf(operands.get(name)));
  return {
    state: `__device__ ${state} ${STATE};`,
    instance: `${type}{ ${[prologue, ...names, STATE].join(', ')} }`,
  };
}
