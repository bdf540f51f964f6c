/** The tensor maps by which kernels of warpgroup products copy their operands. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { AdapterRows } from '../../../ir/adapterRows.js';
import type { ContractionKernel, Segment } from '../../../ir/kernel.js';
import { adapterOf, expertsOf } from '../text/contraction.js';
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

interface MappedContraction {
  readonly kernel: ContractionKernel;
  readonly segments: readonly Segment[];
  readonly operands: CudaOperands;
  readonly options: CopiedTile;
}

/**
 * Map 0 is the left operand. Each segment's weight has one map, and the last weight has a second if there are remainder
 * tiles. A box is one slab, with the rows of one copy. With adapters, the same follows of what was shrunk of the rows
 * and of the second factors of the segments that have them.
 */
export function tensorMapsOf(contraction: MappedContraction): TensorMapDecl[] {
  const adapter = adapterOf(contraction.kernel);
  return [...productMaps(contraction), ...(adapter === undefined ? [] : adapterMaps(contraction, adapter))];
}

/** The same without what adapters add. */
export function productMaps({ kernel, segments, operands, options }: MappedContraction): TensorMapDecl[] {
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

function adapterMaps({ segments, operands, options }: MappedContraction, adapter: AdapterRows): TensorMapDecl[] {
  const { tm, cluster, remainderTn, boxRows } = options;
  const shrunk = operands.get(adapter.shrunk);
  const dtype = operandType(shrunk.dtype) === 'f16' ? 'f16' : 'bf16';
  const box = { dtype, boxColumns: slabOf(dtype), swizzle: 128 } as const;
  const secondMap = ({ adapter: own, columns, pairing }: Segment, rows: number): TensorMapDecl[] => {
    if (own === undefined) return [];
    const { index: parameter, stride } = operands.weight(own.weight);
    const all = physicalColumns(columns, pairing) * adapter.slots;
    return [{ ...box, parameter, rows: all, columns: adapter.rank, stride, boxRows: rows }];
  };
  const { index: parameter, stride, columns } = shrunk;
  if (typeof columns !== 'number') throw new Error(`'${shrunk.name}' has no fixed number of columns.`);
  return [
    { ...box, parameter, rows: operands.rowsOf(adapter.shrunk).extent, columns, stride, boxRows: tm },
    ...segments.flatMap((segment) => secondMap(segment, boxRows)),
    ...(remainderTn === 0 ? [] : secondMap(segments.at(-1)!, remainderTn / cluster)),
  ];
}
