/** The tensor maps for the copies of a wgmma kernel. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { expertsOf } from '../text/contraction.js';
import { physicalColumns } from '../text/operands.js';
import { operandType, slabOf } from './instruction.js';
import type { LoadOptions } from './loads.js';
import type { WgmmaContext } from './options.js';

/**
 * Map 0 is the left operand. Each segment's weight has one map, and the last weight has a second if there are remainder
 * tiles. A box is one slab, with the rows of one copy.
 */
export function tensorMapsOf({
  kernel,
  segments,
  operands,
  options,
}: Pick<WgmmaContext, 'kernel' | 'segments' | 'operands'> & {
  readonly options: Pick<LoadOptions, 'tm' | 'cluster' | 'remainderTn' | 'boxRows' | 'sharers'>;
}): TensorMapDecl[] {
  const { tm, cluster, remainderTn, boxRows, sharers = 1 } = options;
  const a = operands.get(kernel.a);
  const own = operandType(a.dtype);
  const dtype = own === 'e4m3' ? 'u8' : own;
  const box = { dtype, columns: kernel.k, boxColumns: slabOf(own), swizzle: 128 } as const;
  const weightMap = ({ weight, columns, pairing }: Segment, rows: number): TensorMapDecl => {
    const w = operands.weight(weight);
    return {
      ...box,
      parameter: w.index,
      rows: physicalColumns(columns, pairing) * (expertsOf(kernel)?.count ?? 1),
      stride: w.stride,
      boxRows: rows,
    };
  };
  return [
    {
      ...box,
      parameter: a.index,
      rows: kernel.rows,
      stride: a.stride,
      boxRows: tm / sharers,
    },
    ...segments.map((segment) => weightMap(segment, boxRows)),
    ...(remainderTn === 0 ? [] : [weightMap(segments.at(-1)!, remainderTn / cluster)]),
  ];
}
