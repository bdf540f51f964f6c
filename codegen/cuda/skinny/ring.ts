/**
 * What kernels share that keep a ring of stages in flight for few rows and lay their products into shared memory: sizes
 * that their texts depend on, the programs of their epilogues, and their launch.
 */
import {
  MULTIPROCESSOR_BYTES,
  RESERVED_BYTES,
  type ClusterSize,
  type CudaGemmSchedule,
  type LaunchShape,
} from '../../../ir/cuda.js';
import type { Contraction } from '../text/contraction.js';
import { segmentsOf } from '../text/contraction.js';
import { matricesOf, physicalColumns, type CudaOperands } from '../text/operands.js';
import type { Fragment } from '../text/fragment.js';
import { fragmentEpilogue } from '../text/fragmentEpilogue.js';
import type { RowPrologue } from '../text/rowPrologue.js';
import type { columnTiles } from '../wgmma/layout.js';
import { skinnyStep } from './layout.js';
import { rowGroups } from './rowGroups.js';
import { rowValuesText } from './rowValues.js';

/** Rows whose values a warp computes at once. With memory this busy, each turn waits for microseconds. */
const ROWS_AT_ONCE = 16;

/** What of a layout the ring depends on: numbers of warps, and where values of rows lie in shared memory. */
export interface RingLayout {
  readonly warps: number;
  readonly consumerWarps: number;
  readonly valueWarps: number;
  readonly valuesOffset: number;
}

/** A segment of the columns as templates name it: its tensor map and its column tiles. */
export interface PlacedSegment {
  readonly map: number;
  readonly start: number;
  readonly end: number;
}

/** The values that templates of rings read by name. kBlocks: how often a stage is filled. */
export function ringOptions(
  kernel: Contraction,
  { tm, tn, tk, stages }: CudaGemmSchedule,
  { warps, consumerWarps, valueWarps, valuesOffset }: RingLayout,
  tiles: ReturnType<typeof columnTiles>,
  prologue: RowPrologue,
  kBlocks = Math.ceil(kernel.k / tk),
) {
  const segments = segmentsOf(kernel);
  const step = skinnyStep(segments);
  const prefetch = Math.min(stages, kBlocks);
  const rowsAtOnce = Math.min(ROWS_AT_ONCE, Math.ceil(tm / Math.max(1, valueWarps)));
  return {
    tm,
    tn,
    tk,
    stages,
    kBlocks,
    step,
    prefetch,
    threads: 32 * warps,
    k: kernel.k,
    rows: kernel.rows,
    multipliers: 32 * consumerWarps,
    firstValueWarp: consumerWarps + 1,
    emptyOffset: 8 * stages,
    acrossAll: tiles.total,
    hasValues: prologue.scalars.length > 0,
    valuesOffset: valuesOffset / 4,
    valuesDistance: valueWarps * rowsAtOnce,
    rowValues: rowValuesText(prologue, tm, valueWarps, rowsAtOnce, 'row0'),
    prefetchStage: prefetch % stages,
    prefetchPhase: Math.floor(prefetch / stages) % 2,
    units: (tn / step) * (tm / 8),
    rowGroups: tm / 8,
    segments: segments.map((_, i): PlacedSegment => ({
      map: i + 1,
      start: tiles.first[i]!,
      end: tiles.first[i + 1] ?? tiles.total,
    })),
  };
}

/** One block for each tile of the rows and columns. */
export const launchOfTiles = (
  kernel: Contraction,
  size: {
    readonly tm: number;
    readonly threads: number;
    readonly sharedBytes: number;
    readonly columnTiles: number;
    readonly cluster?: ClusterSize;
  },
): LaunchShape => ({
  threads: size.threads,
  sharedBytes: size.sharedBytes,
  cluster: size.cluster ?? 1,
  gridX: { kind: 'tiles', extent: kernel.rows, per: size.tm, times: size.columnTiles },
  gridY: { kind: 'constant', count: 1 },
});

/** The epilogue of each segment, over units of eight rows and a few columns of the products. */
export const unitPrograms = (
  kernel: Contraction,
  operands: CudaOperands,
  { tn }: CudaGemmSchedule,
  pitch: number,
  placed: readonly PlacedSegment[],
  prologue: RowPrologue,
): readonly (PlacedSegment & { readonly program: string })[] =>
  segmentsOf(kernel).map((segment, i) => {
    const own = fragmentOf(kernel, i, tn, pitch, prologue);
    const { text, fragment } = rowGroups(segment, operands, own, { column0: 'column0', pitch, depth: 3 });
    return { ...placed[i]!, program: text + fragmentEpilogue(segment, operands, fragment, 3) };
  });

/** Functions of the wgmma skeleton that this one does without. */
export const FUNCTIONS = {
  hasBytes: false,
  hasFinalTile: false,
  laneBlockSum: '',
  isDeferred: false,
  hasRowSums: false,
} as const;

/** Blocks that share a multiprocessor if their shared memory does: the next kernel's begin beside this one's. */
export const blocksOf = ({ sharedBytes }: { readonly sharedBytes: number }): number =>
  2 * (sharedBytes + RESERVED_BYTES) <= MULTIPROCESSOR_BYTES ? 2 : 1;

/** Eight rows and `step` columns of the tile's products, as gemmSkinnyWgmma names them. */
function fragmentOf(kernel: Contraction, index: number, tn: number, pitch: number, prologue: RowPrologue): Fragment {
  const segments = segmentsOf(kernel);
  const { columns, pairing } = segments[index]!;
  const physical = physicalColumns(columns, pairing);
  return {
    row: 'row',
    isStored: 'row0 + i < rows',
    prefix: 'f',
    groups: skinnyStep(segments) / 8,
    acc: (group, lane) => `products[i * ${pitch} + j0 + 8 * (${group}) + 2 * quad + ${lane}]`,
    column: '(column0 + j0)',
    quad: 'quad',
    isWhole: physical === columns * matricesOf(pairing) && physical % tn === 0,
    given: prologue.given(`(values + i * ${prologue.scalars.length})`),
  };
}
