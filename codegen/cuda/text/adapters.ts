/** What units say of the adapters of a contraction's rows, as gemm/adapter.cuh describes it. */
import type { ContractionKernel, Segment } from '../../../ir/kernel.js';
import { type CudaOperands, ELEMENT_TYPES, matricesOf } from './operands.js';
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

/** The reason why tensor cores cannot add what rows of adapters have; undefined if they can, or have nothing to add. */
export function adapterProblem(kernel: ContractionKernel): string | undefined {
  if (kernel.anchor !== 'gemm' || kernel.adapter === undefined) return undefined;
  return new Set(interleavedWidths(kernel.segments)).size > 1
    ? 'its matrices are interleaved in several widths, which adapters cannot tell apart'
    : undefined;
}

/** A C++ expression of a type. */
export interface TypedInstance {
  readonly type: string;
  readonly instance: string;
}

/** A segment's functor with what rows of adapters add to it; itself where they add nothing. */
export function adaptedSegment(
  kernel: ContractionKernel,
  { adapter, pairing }: Segment,
  operands: CudaOperands,
  functor: TypedInstance,
): TypedInstance {
  const rows = adapterOf(kernel);
  if (rows === undefined || adapter === undefined) return functor;
  const [slots, shrunk, second] = [rows.slot, rows.shrunk, adapter.weight].map((name) => operands.get(name));
  const type = `Adapted<${functor.type}, ${ELEMENT_TYPES[second!.dtype]}, ${matricesOf(pairing)}>`;
  const at = adapter.part * rows.rank;
  const part = `${operands.nameOf(shrunk!)}${at === 0 ? '' : ` + ${at}`}`;
  const fields = [functor.instance, operands.nameOf(slots!), part, operands.nameOf(second!)];
  return { type, instance: `${type}{ ${fields.join(', ')} }` };
}
