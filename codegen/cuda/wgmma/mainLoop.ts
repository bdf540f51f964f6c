/** How stages are filled, as text for skeletons that are printed whole, and tensor maps. */
import type { CudaGemmSchedule, TensorMapDecl } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { expertsOf } from '../text/contraction.js';
import { physicalColumns } from '../text/operands.js';
import { render } from '../text/statements.js';
import {
  descriptorUnits,
  operandType,
  SLAB_BYTES,
  SLAB_BYTES as ROW_BYTES,
  slabOf,
  stepOf,
  STEPS_OF_SLAB,
  wgmmaOperands,
  type WgmmaType,
} from './instruction.js';
import type { WgmmaLayout } from './layout.js';
import type { WgmmaContext } from './options.js';

/** Name of the C function that multiplies one step of a tile. */
export const MULTIPLY = 'tw_wgmma';
/** The function that multiplies `columns` columns at once. */
export const productText = (
  { mmaType }: { readonly wn: number; readonly mmaType: WgmmaType },
  columns: number,
): string =>
  render('wgmmaProduct', {
    ...wgmmaOperands(columns),
    ...stepOf(mmaType),
    mmaType,
    n: columns,
    multiply: MULTIPLY,
  });

/**
 * Waits for the loop's last products, and tells the compiler that the accumulators of `blocks` instructions of
 * `columns` columns hold them.
 */
export const waitText = (blocks: number, columns: number): string =>
  render('wgmmaWait', { blocks, accumulators: columns / 2 });

/** Tells every producer of the cluster that stage `before` has been read. */
export const releaseText = ({ cluster }: Pick<CudaGemmSchedule, 'cluster'>): string =>
  cluster === 1
    ? 'if (lane == 0) tw_bar_arrive(empty + 8 * before);'
    : `if (lane < ${cluster}) tw_bar_arrive_at(empty + 8 * before, lane);`;

/** Descriptor offsets of step k of a stage: a step is 32 bytes inside a slab's swizzled row. */
export function stepOffsets({ tm, tn, slabs }: Pick<StageLoads, 'tm' | 'tn' | 'slabs'>): Readonly<
  Record<'aStep' | 'bStep', string>
> & {
  readonly kSteps: number;
} {
  const kSteps = slabs * STEPS_OF_SLAB;
  if (slabs === 1) return { kSteps, aStep: '2 * k', bStep: '2 * k' };
  const step = (rows: number): string => `(k >> 2) * ${descriptorUnits(rows * SLAB_BYTES)} + (k & 3) * 2`;
  return { kSteps, aStep: step(tm), bStep: step(tn) };
}

// How a stage of the ring is filled: copies by TMA, slab by slab.

type LoadTexts = Readonly<Record<'loadA' | 'loadB' | 'loadPrefetchA' | 'loadPrefetchB' | 'expected', string>> &
  Readonly<Record<'own' | 'remainderOwn' | 'bytesOfOwn', number>>;

/** What the copies of a stage depend on. */
export type StageLoads = Pick<WgmmaLayout, 'slabs' | 'aBytes' | 'stageBytes' | 'boxes' | 'boxRows'> &
  Pick<CudaGemmSchedule, 'tm' | 'tn' | 'tk' | 'cluster'> & {
    readonly isCluster: boolean;
    readonly remainderTn: number;
    readonly mmaType: WgmmaType;
    /** Blocks of a cluster that have the same rows, of which each loads a part for all; absent: one. */
    readonly sharers?: number;
  };

/**
 * Statements that fill a stage, and the bytes that it then waits for. In a cluster each block loads half of the weight
 * tile for both. `own` is the number of rows of a weight that a block loads: the C variable of that name if there are
 * narrower remainder tiles.
 */
export function loadTexts(options: StageLoads): LoadTexts {
  const { tm, tn, tk, cluster, isCluster, remainderTn, slabs, aBytes, stageBytes, boxes, boxRows, mmaType } = options;
  const { sharers = 1 } = options;
  const slabColumns = slabOf(mmaType);
  const own = tn / cluster;
  const ownBytes = remainderTn === 0 ? String(own * ROW_BYTES) : `own * ${ROW_BYTES}`;
  const ownRows = remainderTn === 0 ? String(own) : 'own';
  const rankBytes = isCluster ? ` + rank * ${ownBytes}` : '';
  const rankRow = isCluster ? ` + (int)rank * ${ownRows}` : '';
  const plus = (count: number): string => (count === 0 ? '' : ` + ${count}`);
  const perSlab = (print: (slab: number) => string): string =>
    Array.from({ length: slabs }, (_, slab) => print(slab)).join(' ');
  const a = (stage: string, block: string): string =>
    perSlab((slab) => {
      const to = `shared + ${stage} * ${stageBytes}${plus(slab * tm * ROW_BYTES)}`;
      const column = `${block} * ${tk}${plus(slab * slabColumns)}`;
      if (sharers === 1) return `tw_load_box(${to}, &m0, ${column}, row0, full + 8 * ${stage});`;
      const part = tm / sharers;
      return (
        `tw_load_box_all(${to} + rank * ${part * ROW_BYTES}, &m0, ${column}, row0 + (int)rank * ${part}, ` +
        `full + 8 * ${stage}, ${(1 << sharers) - 1});`
      );
    });
  const b = (stage: string, block: string): string =>
    perSlab((slab) =>
      Array.from({ length: boxes }, (_, box) => {
        const offset = aBytes + (slab * tn + box * boxRows) * ROW_BYTES;
        const to = `shared + ${stage} * ${stageBytes}${plus(offset)}${rankBytes}`;
        const from = `weight, ${block} * ${tk}${plus(slab * slabColumns)}, column0${plus(box * boxRows)}${rankRow}`;
        return isCluster
          ? `tw_load_box_all(${to}, ${from}, full + 8 * ${stage}, 3);`
          : `tw_load_box(${to}, ${from}, full + 8 * ${stage});`;
      }).join(' '),
    );
  return {
    loadA: a('stage', 'block'),
    loadB: b('stage', 'block'),
    loadPrefetchA: a('i', 'i'),
    loadPrefetchB: b('i', 'i'),
    expected: remainderTn === 0 ? String(stageBytes) : 'bytes',
    own,
    remainderOwn: remainderTn / cluster,
    bytesOfOwn: cluster * slabs * ROW_BYTES,
  };
}

// The tensor maps for the copies of a wgmma kernel.

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
  readonly options: Pick<StageLoads, 'tm' | 'cluster' | 'remainderTn' | 'boxRows' | 'sharers'>;
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
