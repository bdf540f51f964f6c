/**
 * A contraction under a wgmma schedule: what it computes, the Config of its kernel (gemm/hopperTiles.cuh), and what its
 * epilogues depend on.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { type ContractionKernel, ROW_SUM_BLOCK, type Segment } from '../../../ir/kernel.js';
import { operands as childrenOf, readOf, type Scalar } from '../../../ir/scalar.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { shrinkingFirstFields, shrinkingKernel } from '../adapter/shrinkers.js';
import { adapterOf, expertsOf, rowProgramsOf, rowPrologue, type RowPrologue, segmentsOf } from '../text/contraction.js';
import { finishText, type FinishText, isWholeRow } from '../text/lanePrograms.js';
import { type CudaOperands, matricesOf, type Operand, physicalColumns } from '../text/operands.js';
import type { ConfigFields } from '../text/unit.js';
import { columnFloats } from './columnValues.js';
import { CONSUMER_WARPS, idleWarps, operandType, type WgmmaType } from './instruction.js';
import { columnTiles, wgmmaLayout, type WgmmaLayout } from './layout.js';

export interface WgmmaContext {
  readonly kernel: ContractionKernel;
  readonly operands: CudaOperands;
  readonly schedule: CudaGemmSchedule;
  readonly segments: readonly Segment[];
  readonly prologue: RowPrologue;
  /** How a block's final tile is stored row by row; undefined if it has the same epilogue as other tiles. */
  readonly finalTile: FinalTile | undefined;
  readonly finish: FinishText | undefined;
  readonly options: EpilogueOptions;
  readonly config: HopperConfig;
}

/** What epilogues depend on. */
export interface EpilogueOptions extends WgmmaLayout {
  readonly mmaType: WgmmaType;
  /** Columns of a tile. */
  readonly tn: number;
  /** Whether epilogues read values that depend on the column alone from shared memory. */
  readonly hasColumnValues: boolean;
  /** Warps that neither load nor multiply, which run deferred epilogues. */
  readonly epilogueWarps: number;
}

/** The struct of gemm/hopperTiles.cuh, field by field. */
export interface HopperConfig extends ConfigFields {
  readonly mode: { readonly name: `HopperMode::${'Cooperative' | 'PingPong' | 'Deferred'}` };
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly cluster: 1 | 2;
  readonly raster: number;
  readonly remainderN: number;
  readonly epilogueGroups: number;
  readonly elementBytes: number;
  readonly k: number;
  readonly segments: number;
  readonly columns: readonly number[];
  readonly experts: number;
  readonly rowValues: number;
  readonly areRowsOfThreads: boolean;
  readonly columnValues: number;
  readonly hasFinalTile: boolean;
  readonly hasFinish: boolean;
  readonly sharedBytes: number;
  /** Of kernels whose rows have adapters only. */
  readonly rank?: number;
  readonly parts?: readonly number[];
  readonly matrices?: readonly number[];
  /** Of kernels that shrink their rows first. */
  readonly shrinkers?: ConfigFields;
  readonly shrunkStride?: number;
}

/** Floats of a tile's column values that a kernel keeps in shared memory. Kept where it keeps row values. */
export const columnValuesOf = (
  kernel: ContractionKernel,
  operands: CudaOperands,
  rowValues: number,
  tn: number,
): number =>
  rowValues > 0 && operands.get(kernel.a).dtype === 'e4m3' ? columnFloats(segmentsOf(kernel), operands, tn) : 0;

const MODES = { cooperative: 'Cooperative', pingpong: 'PingPong', deferred: 'Deferred' } as const;

export function wgmmaContext(
  kernel: ContractionKernel,
  operands: CudaOperands,
  schedule: CudaGemmSchedule,
): WgmmaContext {
  const { tm, tn, tk, stages, cluster } = schedule;
  const segments = segmentsOf(kernel);
  const prologue = rowPrologue(rowProgramsOf(kernel), operands);
  const values = prologue.scalars.length;
  const experts = expertsOf(kernel);
  const mmaType = operandType(operands.get(kernel.a).dtype);
  const columnValues = columnValuesOf(kernel, operands, values, tn);
  const adapter = adapterOf(kernel);
  const shrinking = shrinkingKernel(kernel, schedule);
  const kept = {
    rowValues: values,
    columnValues,
    experts: experts?.count,
    hasAdapters: adapter !== undefined,
    shrinks: shrinking !== undefined,
  };
  const layout = wgmmaLayout(schedule, DTYPE_BYTES[mmaType], kept);
  const epilogueWarps = idleWarps(layout.epilogueGroups);
  const finalTile =
    kernel.anchor === 'gemm' && kernel.finish === undefined && experts === undefined && values === 0
      ? finalTileOf(segments, operands, layout, schedule)
      : undefined;
  const options: EpilogueOptions = { ...layout, mmaType, tn, hasColumnValues: columnValues > 0, epilogueWarps };
  const takers = CONSUMER_WARPS + (layout.isDeferred ? epilogueWarps : 0);
  const finish = finishText(kernel, operands, {
    blockRows: tm,
    gridRows: tm * cluster,
    gridBlocks: cluster,
    whole: tm * columnTiles(segments, tn).total,
    warps: `gridDim.x * ${takers}u`,
    isDivided: false,
  });
  const config: HopperConfig = {
    mode: { name: `HopperMode::${MODES[schedule.mode]}` },
    tileM: tm,
    tileN: tn,
    tileK: tk,
    stages,
    cluster,
    raster: Math.max(1, Math.floor(schedule.raster / cluster)),
    remainderN: schedule.remainderTn ?? 0,
    epilogueGroups: layout.epilogueGroups,
    elementBytes: DTYPE_BYTES[mmaType],
    k: kernel.k,
    segments: segments.length,
    columns: segments.map(({ columns, pairing }) => physicalColumns(columns, pairing)),
    experts: experts?.count ?? 0,
    rowValues: values,
    areRowsOfThreads: prologue.ofThread !== undefined,
    columnValues,
    hasFinalTile: finalTile !== undefined,
    hasFinish: finish !== undefined,
    sharedBytes: layout.sharedBytes,
    ...(adapter === undefined
      ? {}
      : {
          rank: adapter.rank,
          parts: segments.map((segment) => segment.adapter?.part ?? 0),
          matrices: segments.map(({ pairing }) => matricesOf(pairing)),
        }),
    ...(shrinking === undefined ? {} : shrinkingFirstFields(shrinking, operands)),
  };
  return { kernel, operands, schedule, segments, prologue, finalTile, finish, options, config };
}

// The epilogue of a block's final tile. No further product hides it, all blocks reach it at once, and the threads
// that hold accumulators have few loads in flight and much code that runs once. So the products go to shared memory,
// into the ring that is no longer filled, and all consumer warps process them row by row in a small loop with many
// rows in flight.
//
// Only for epilogues that read and write whole rows (the residual stream); others are short.

/** Rows of a warp whose loads are in flight at once, as in gemm/hopperTiles.cuh. */
export const FINAL_ROWS_AT_ONCE = 8;
/**
 * Floats of padding after a row of products in shared memory, so that the rows that a warp stores at once, of a
 * multiple of 16 columns, begin in different banks.
 */
const PAD = 8;

/** The only segment of a kernel whose final tiles are stored row by row. */
export interface FinalTile {
  readonly segment: Segment;
  /** Buffers that its programs read at the element itself, and buffers that they store to. */
  readonly loads: readonly Operand[];
  readonly stores: readonly Operand[];
}

/** How final tiles are stored; undefined if the epilogue is of another kind or the products do not fit. */
export function finalTileOf(
  segments: readonly Segment[],
  operands: CudaOperands,
  { columnBlocks, ringBytes }: WgmmaLayout,
  { tm, tn }: CudaGemmSchedule,
): FinalTile | undefined {
  const [segment, ...more] = segments;
  if (
    segment === undefined ||
    more.length > 0 ||
    segment.pairing.kind !== 'none' ||
    segment.columns % ROW_SUM_BLOCK !== 0 ||
    columnBlocks !== 1
  )
    return undefined;
  const loads = elementLoads(segment, operands);
  const stores = segment.outputs.filter(({ kind }) => kind === 'store').map(({ buffer }) => operands.get(buffer));
  const pitch = tn + PAD;
  const isSuited =
    loads.length > 0 &&
    segment.outputs.every((output) => readsOwnElements(output.value) && (output.kind !== 'store' || !output.via)) &&
    [...loads, ...stores].every(isWholeRow) &&
    tm * pitch * 4 <= ringBytes &&
    tm % (CONSUMER_WARPS * FINAL_ROWS_AT_ONCE) === 0;
  return isSuited ? { segment, loads, stores } : undefined;
}

/** The programs read only the element itself, which is skipped for lanes and rows past the end. */
const readsOwnElements = (s: Scalar): boolean =>
  s.op === 'load'
    ? s.access.kind === 'element' && s.access.via === undefined
    : readOf(s) === undefined && childrenOf(s).every(readsOwnElements);

// Finds the buffers that an epilogue reads at the position that it writes.

/** Buffers that the segment's programs read at the element itself, each once. */
export function elementLoads({ outputs }: Segment, operands: CudaOperands): Operand[] {
  const found = new Map<string, Operand>();
  const visit = (s: Scalar): void => {
    if (s.op === 'load' && s.access.kind === 'element' && s.access.via === undefined) {
      const operand = operands.get(s.buffer);
      if (operand.columns !== 1) found.set(s.buffer, operand);
    }
    childrenOf(s).forEach(visit);
  };
  outputs.forEach(({ value }) => visit(value));
  return [...found.values()];
}
