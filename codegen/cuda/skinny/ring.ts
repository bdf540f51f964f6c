/**
 * What kernels share that keep a ring of stages in flight for few rows and lay their products into shared memory: sizes
 * that their texts depend on, the programs of their epilogues, and their launch.
 */
import {
  type ClusterSize,
  type CudaGemmSchedule,
  type LaunchShape,
  MULTIPROCESSOR_BYTES,
  RESERVED_BYTES,
} from '../../../ir/cuda.js';
import { groupWidth } from '../../../ir/groupSums.js';
import type { ContractionKernel, Segment } from '../../../ir/kernel.js';
import { groupValues, type RowPrologue, segmentsOf } from '../text/contraction.js';
import { type Fragment, fragmentEpilogue } from '../text/fragment.js';
import { type CudaOperands, CudaRowScope, matricesOf, physicalColumns } from '../text/operands.js';
import { block, indent } from '../text/statements.js';
import type { columnTiles } from '../wgmma/layout.js';
import { skinnyStep } from './layout.js';

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
  kernel: ContractionKernel,
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
  kernel: ContractionKernel,
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
  kernel: ContractionKernel,
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
function fragmentOf(
  kernel: ContractionKernel,
  index: number,
  tn: number,
  pitch: number,
  prologue: RowPrologue,
): Fragment {
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

// Values that groups of columns share, for epilogues on products in shared memory. A unit of eight rows is narrower
// than a group; each adds up the whole group for itself, so that all warps end a tile together.

/** `column0`: C expression of the tile's first column, a multiple of the group's width. */
export function rowGroups(
  segment: Segment,
  operands: CudaOperands,
  fragment: Fragment,
  { column0, pitch, depth }: { readonly column0: string; readonly pitch: number; readonly depth: number },
): { readonly text: string; readonly fragment: Fragment } {
  const width = groupWidth(segment.outputs);
  if (width === undefined) return { text: '', fragment };
  const scope = new CudaRowScope(operands, fragment.row, 'gr', fragment.given);
  const values = groupValues(segment, scope, {
    prefix: 'g',
    count: 1,
    column: `(${column0} + g0)`,
    acc: (group, lane) => `products[i * ${pitch} + g0 + 8 * (${group}) + 2 * quad + ${lane}]`,
    quad: fragment.quad,
    isWhole: fragment.isWhole,
  })!;
  return {
    text: indent([`const int g0 = j0 / ${width} * ${width};`, ...scope.lines, ...values.lines], depth),
    fragment: { ...fragment, shared: () => values.given('0') },
  };
}

// Values of the rows of a tile that its epilogue reads from shared memory.

/** Rows whose values a warp computes at once: a single row would wait for memory. */
export const COPY_ROWS_AT_ONCE = 4;

/** A warp's share of the row values of a tile of `tm` rows that begins at row `first`, several rows at once. */
export function rowValuesText(
  prologue: RowPrologue,
  tm: number,
  warps: number,
  rowsAtOnce: number,
  first: string,
): string {
  const count = prologue.scalars.length;
  const each = Array.from({ length: rowsAtOnce }, (_, i) => (i === 0 ? 'local' : `local + ${i * warps}`));
  const texts = each.map(
    (local, i) =>
      indent(
        [
          `const int read${i} = ${first} + ${local} < rows ? ${first} + ${local} : rows - 1;`,
          `float fold${i}[${count}];`,
        ],
        4,
      ) + prologue.text(`read${i}`, `fold${i}`, 4),
  );
  const stores = each.flatMap((local, i) =>
    Array.from(
      { length: count },
      (_, j) => `if (${local} < ${tm}) values[(${local}) * ${count} + ${j}] = fold${i}[${j}];`,
    ),
  );
  return texts.join('') + indent(block('if (threadIdx.x % 32 == 0)', stores), 4);
}
