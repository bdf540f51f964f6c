/** The tensor maps for the copies of a wgmma kernel. */
import type { TensorMapDecl } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { expertsOf } from '../text/contraction.js';
import { physicalColumns } from '../text/operands.js';
import { SLAB } from './instruction.js';
import type { LoadOptions } from './loads.js';
import type { WgmmaContext } from './options.js';
import { halfType } from './options.js';

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
  readonly options: Pick<LoadOptions, 'tm' | 'cluster' | 'remainderTn' | 'boxRows'>;
}): TensorMapDecl[] {
  const { tm, cluster, remainderTn, boxRows } = options;
  const box = { columns: kernel.k, boxColumns: SLAB, swizzle: 128 } as const;
  const a = operands.get(kernel.a);
  const weightMap = ({ weight, columns, pairing }: Segment, rows: number): TensorMapDecl => {
    const w = operands.weight(weight);
    return {
      ...box,
      parameter: w.index,
      dtype: halfType(w.dtype),
      rows: physicalColumns(columns, pairing) * (expertsOf(kernel)?.count ?? 1),
      stride: w.stride,
      boxRows: rows,
    };
  };
  return [
    {
      ...box,
      parameter: a.index,
      dtype: halfType(a.dtype),
      rows: kernel.rows,
      stride: a.stride,
      boxRows: tm,
    },
    ...segments.map((segment) => weightMap(segment, boxRows)),
    ...(remainderTn === 0 ? [] : [weightMap(segments.at(-1)!, remainderTn / cluster)]),
  ];
}
