/** What units say of the adapters of a contraction's rows, as gemm/adapter.cuh describes it. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { ContractionKernel, Segment } from '../../../ir/kernel.js';
import { roundUp } from '../../../ir/types.js';
import type { Functor } from './functor.js';
import { type CudaOperands, ELEMENT_TYPES, matricesOf, physicalColumns } from './operands.js';
import type { ConfigFields } from './unit.js';

const adapterOf = (kernel: ContractionKernel) => (kernel.anchor === 'gemm' ? kernel.adapter : undefined);

export const hasAdapters = (kernel: ContractionKernel): boolean => adapterOf(kernel) !== undefined;

/** Fields of AdapterConfig, as the field `adapter` of a skeleton's Config; nothing where there are none. */
export function adapterField(
  kernel: ContractionKernel,
  operands: CudaOperands,
): { readonly adapter?: ConfigFields & Readonly<Record<'rank' | 'stride' | 'width', number>> } {
  const adapter = adapterOf(kernel);
  if (kernel.anchor !== 'gemm' || adapter === undefined) return {};
  const width = interleavedWidths(kernel.segments)[0] ?? 0;
  return { adapter: { rank: adapter.rank, stride: operands.get(adapter.shrunk).stride, width } };
}

const interleavedWidths = (segments: readonly Segment[]): readonly number[] =>
  segments.flatMap(({ pairing, adapter }) =>
    pairing.kind === 'interleave' && adapter !== undefined ? [pairing.width] : [],
  );

/**
 * The reason why tensor cores cannot add what rows of adapters have; undefined if they can, or have nothing to add.
 * `sharers`: blocks beside each other that have the same rows, and go round their rings together.
 */
export function adapterProblem(kernel: ContractionKernel, sharers = 1): string | undefined {
  if (kernel.anchor !== 'gemm' || kernel.adapter === undefined) return undefined;
  if (sharers > 1 && kernel.segments.some(({ adapter }) => adapter === undefined))
    return 'a cluster cannot share rows where only some of its columns have adapters';
  return new Set(interleavedWidths(kernel.segments)).size > 1
    ? 'its matrices are interleaved in several widths, which adapters cannot tell apart'
    : undefined;
}

/** A C++ expression of a type. */
export interface TypedInstance {
  readonly type: string;
  readonly instance: string;
}

/**
 * A segment's functor with what rows of adapters add to it; itself where they add nothing. `shrinks`: the kernel
 * shrinks rows itself.
 */
export function adaptedSegment(
  kernel: ContractionKernel,
  { adapter, pairing }: Segment,
  operands: CudaOperands,
  functor: TypedInstance,
  shrinks = false,
): TypedInstance {
  const rows = adapterOf(kernel);
  if (rows === undefined || adapter === undefined) return functor;
  const [slots, shrunk, second] = [rows.slot, rows.shrunk, adapter.weight].map((name) => operands.get(name));
  const at = adapter.part * rows.rank;
  const column = shrinks ? `, ${at}` : '';
  const type = `Adapted<${functor.type}, ${ELEMENT_TYPES[second!.dtype]}, ${matricesOf(pairing)}${column}>`;
  const part = shrinks ? 'nullptr' : `${operands.nameOf(shrunk!)}${at === 0 ? '' : ` + ${at}`}`;
  const fields = [functor.instance, operands.nameOf(slots!), part, operands.nameOf(second!)];
  return { type, instance: `${type}{ ${fields.join(', ')} }` };
}

/** The same of a functor of that segment, as an expression. */
export const adaptedInstance = (
  kernel: ContractionKernel,
  segment: Segment,
  operands: CudaOperands,
  { instance }: Functor,
): string =>
  adaptedSegment(kernel, segment, operands, { type: instance.slice(0, instance.indexOf('{')), instance }).instance;

// Second factors in kernels of few rows: TileSlots and SecondPieces of gemm/adapter.cuh.

const SLOTS_BYTES = 272;

/** Bytes that the slots of a tile's rows add to a block's shared memory: few enough for what a block has besides. */
export const adapterBytes = (kernel: ContractionKernel, bytes: number): number =>
  hasAdapters(kernel) ? roundUp(bytes, 16) - bytes + SLOTS_BYTES : 0;

/** Elements of a row of a box. */
const ROW = 64;
const STEP = 16;

/** Ranks of a piece. */
const pieceDepth = (rank: number): number => (rank === 16 || rank === 32 ? rank : rank % ROW === 0 ? ROW : STEP);

/** Bytes of the room of a piece for `columns` columns, of a kernel with adapters. */
export const pieceRoom = (kernel: ContractionKernel, columns: number): number =>
  roundUp(columns * pieceDepth(adapterOf(kernel)?.rank ?? 0) * 2, 1024);

/** The tensor maps of segments' second factors, of all slots, for tiles of `tn` columns. */
export function secondMapsOf(kernel: ContractionKernel, operands: CudaOperands, tn: number): TensorMapDecl[] {
  const rows = adapterOf(kernel);
  if (kernel.anchor !== 'gemm' || rows === undefined) return [];
  const { rank, slots } = rows;
  const perRow = rank === 16 || rank === 32 ? ROW / rank : 1;
  const isRows = perRow > 1 || rank % ROW === 0;
  return kernel.segments.flatMap(({ adapter, columns, pairing }): TensorMapDecl[] => {
    if (adapter === undefined) return [];
    const { index, dtype } = operands.weight(adapter.weight);
    if (dtype !== 'bf16' && dtype !== 'f16') throw new Error(`second factors of ${dtype} have no tensor map`);
    return [
      {
        parameter: index,
        dtype,
        rows: (slots * physicalColumns(columns, pairing)) / perRow,
        columns: perRow > 1 ? ROW : rank,
        stride: perRow > 1 ? ROW : rank,
        boxRows: tn / perRow,
        boxColumns: isRows ? ROW : STEP,
        swizzle: isRows ? 128 : 0,
      },
    ];
  });
}
