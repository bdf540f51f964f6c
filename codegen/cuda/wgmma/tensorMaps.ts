/** The tensor maps by which kernels of warpgroup products copy their operands. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { ContractionKernel, Segment } from '../../../ir/kernel.js';
import { expertsOf } from '../text/contraction.js';
import { type CudaOperands, physicalColumns } from '../text/operands.js';
import { operandType, slabOf } from './instruction.js';

/** How blocks share out the copies of a tile. */
export interface CopiedTile extends Pick<CudaGemmSchedule, 'tm' | 'cluster'> {
  /** Columns of remainder tiles; 0: there are none. */
  readonly remainderTn: number;
  /** Rows of a box of weights. */
  readonly boxRows: number;
  /** Blocks of a cluster that have the same rows, of which each loads a part for all; absent: one. */
  readonly sharers?: number;
}

/**
 * Map 0 is the left operand. Each segment's weight has one map, and the last weight has a second if there are remainder
 * tiles. A box is one slab, with the rows of one copy.
 */
export function tensorMapsOf({
  kernel,
  segments,
  operands,
  options,
}: {
  readonly kernel: ContractionKernel;
  readonly segments: readonly Segment[];
  readonly operands: CudaOperands;
  readonly options: CopiedTile;
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
