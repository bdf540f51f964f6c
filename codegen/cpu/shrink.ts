/** Adapters on a CPU: their first factors as a kernel, and what contractions are told of the second ones. */
import type { GemmKernel, ShrinkKernel, WeightDecl } from '../../ir/kernel.js';
import { panelColumns, packedBytes, physicalToLogical } from '../../ir/packing.js';
import type { CpuLoopSchedule } from '../../ir/plan.js';
import { DTYPE_BYTES } from '../../ir/types.js';
import { type COperands, ELEMENT_TYPES, elementType, panelFormat } from './operands.js';
import { constantTable, type ConfigFields, type Emitted, kernelFunction } from './unit.js';

/** Elements from one slot of a weight in panels to the next. */
const slotElements = (weight: WeightDecl): number =>
  packedBytes(weight, physicalToLogical(weight).length) /
  (weight.slots?.count ?? 1) /
  DTYPE_BYTES[panelFormat(weight).element];

/** Element of a weight's panels. Throws where it is another than that of the rows. */
function elementOf(weight: WeightDecl, rows: string): string {
  const element = ELEMENT_TYPES[panelFormat(weight).element];
  if (weight.layout !== 'panels' || element !== rows)
    throw new Error(`Weight ${weight.name} (${weight.layout} of ${weight.format}) is not in panels of its rows' type.`);
  return element;
}

export function emitShrink(
  kernel: ShrinkKernel,
  operands: COperands,
  { rows: step }: CpuLoopSchedule,
  symbol: string,
): Emitted {
  const { k, rank, parts } = kernel;
  const [a, out] = [operands.get(kernel.a), operands.get(kernel.out)];
  const { weight, index } = operands.weight(kernel.weight);
  const config = {
    rows: operands.extentIndex(kernel.rows),
    step,
    a: a.index,
    slot: operands.get(kernel.slot).index,
    weight: index,
    scale: operands.weight(kernel.scale).index,
    out: out.index,
    aStride: a.stride,
    outStride: out.stride,
    element: elementOf(weight, elementType(a)),
    k,
    rank,
    parts,
    panel: panelColumns(weight),
    slotElements: slotElements(weight),
  };
  const source = kernelFunction({ symbol, tables: [], type: 'ShrinkConfig', config, call: 'tw_shrink' });
  return { includes: ['adapter/shrink.h'], helpers: [], source, scratchBytes: 0 };
}

/** What a contraction is told of its adapters: an AdapterConfig of adapter/expand.h, and the table that it names. */
export interface AdapterFields {
  readonly config: ConfigFields;
  readonly table: string;
}

export function adapterFields({ adapter, segments, path }: GemmKernel, operands: COperands): AdapterFields | undefined {
  if (adapter === undefined) return undefined;
  const shrunk = operands.get(adapter.shrunk);
  const element = elementType(shrunk);
  let panel = 0;
  const rows = segments.map(({ adapter: own, pairing }): ConfigFields => {
    if (own === undefined) return { weight: -1 };
    const { weight, index } = operands.weight(own.weight);
    elementOf(weight, element);
    panel = panelColumns(weight);
    const width = pairing.kind === 'interleave' ? pairing.width : 0;
    if (width % 16 !== 0) throw new Error(`${path}: pairs of ${width} columns divide vectors of its adapters.`);
    return { weight: index, part: own.part, width, slotElements: slotElements(weight) };
  });
  const slot = operands.get(adapter.slot).index;
  const { rank } = adapter;
  return {
    config: { rank, slot, shrunk: shrunk.index, stride: shrunk.stride, element, panel, segments: 'adapters' },
    table: constantTable('SegmentAdapter', 'adapters', rows),
  };
}
