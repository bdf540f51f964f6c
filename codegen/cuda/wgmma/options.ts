/**
 * A contraction under a wgmma schedule: what it computes, and every size, count and condition that its text depends on.
 * The record is computed once; every part of the text and the templates are printed from it.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { type ContractionKernel, ROW_SUM_BLOCK, type Segment } from '../../../ir/kernel.js';
import { kernelReads, kernelWrites } from '../../../ir/kernelAccess.js';
import { operands as childrenOf, readOf, type Scalar } from '../../../ir/scalar.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import { expertsOf, rowProgramsOf, rowPrologue, type RowPrologue, segmentsOf } from '../text/contraction.js';
import { finishText, type FinishText, isWholeRow } from '../text/lanePrograms.js';
import { type CudaOperands, isByte, type Operand } from '../text/operands.js';
import { columnFloats } from './columnValues.js';
import {
  blockThreads,
  CONSUMER_WARPS,
  CONSUMERS,
  idleWarps,
  operandType,
  WARPS_OF_GROUP,
  WGMMA_ROWS,
  type WgmmaType,
} from './instruction.js';
import { columnTiles, handoffWarpBytes, wgmmaLayout, type WgmmaLayout } from './layout.js';

export interface WgmmaContext {
  readonly kernel: ContractionKernel;
  readonly operands: CudaOperands;
  readonly schedule: CudaGemmSchedule;
  readonly segments: readonly Segment[];
  /** First column tile of each segment. */
  readonly firstTiles: readonly number[];
  readonly prologue: RowPrologue;
  /** How a block's final tile is stored row by row; undefined if it has the same epilogue as other tiles. */
  readonly finalTile: FinalTile | undefined;
  readonly finish: FinishText | undefined;
  readonly options: WgmmaOptions;
}

/** The values that templates read by name. */
export interface WgmmaOptions extends WgmmaLayout {
  /** Name of the kernel's row extent. */
  readonly rows: string;
  /** Number of experts, and the parameter that says where their rows begin; undefined for a single matrix. */
  readonly experts: number | undefined;
  readonly starts: number | undefined;
  /** C expression of what tells where tiles lie: the number of rows, or the place of the experts' tables. */
  readonly where: string;
  /** Offsets in bytes in the tables: the number of all row tiles, and the first rows. */
  readonly endOfTiles: number;
  readonly startsOffset: number;
  readonly mmaType: WgmmaType;
  readonly tm: number;
  readonly tn: number;
  readonly tk: number;
  readonly stages: number;
  readonly cluster: 1 | 2;
  readonly isCluster: boolean;
  /** Columns of remainder tiles; 0 if the schedule has none. */
  readonly remainderTn: number;
  /** Row tiles of whole clusters that are visited before the next column tile. */
  readonly raster: number;
  readonly columnTiles: number;
  /** Tiles in a group of `raster` row tiles. */
  readonly groupTiles: number;
  readonly clusterRows: number;
  readonly clusterRowsMinusOne: number;
  /** Stages that a tile's products over k fill. */
  readonly kBlocks: number;
  /**
   * Stages whose weights are loaded before the kernel waits for its predecessor, and the state of the ring after them.
   */
  readonly prefetch: number;
  readonly prefetchStage: number;
  readonly prefetchPhase: number;
  /** Whether epilogues read values that depend on the row alone, kept in shared memory. */
  readonly hasRowValues: boolean;
  /**
   * Whether they read values that depend on the column alone from there, too; floats of a tile's, and the index of the
   * first, counted from the first row value.
   */
  readonly hasColumnValues: boolean;
  readonly columnValues: number;
  readonly columnValuesFloat: number;
  readonly hasRowSums: boolean;
  /** Whether buffers of bytes are read or written. */
  readonly hasBytes: boolean;
  readonly hasFinalTile: boolean;
  /**
   * Floats of a tile's row values, and the index of the float that holds the slot number of the final tile's values.
   */
  readonly rowValuesSlot: number;
  readonly slotNumber: number;
  /** Rows whose values a warp computes at once, and the distance between its turns. */
  readonly rowsAtOnce: number;
  readonly rowsAtOnceStep: number;
  /** Byte offsets from the first barrier. */
  readonly emptyOffset: number;
  readonly rowsFullOffset: number;
  /** Arrivals that complete a phase. */
  readonly emptyCount: number;
  readonly rowsEmptyCount: number;
  /** Rows of a tile that a consumer warpgroup multiplies. */
  readonly consumerRows: number;
  /** wgmma instructions of a step over k, and accumulators per thread for each. */
  readonly blocks: number;
  readonly accumulators: number;
  readonly consumerWarps: number;
  readonly threads: number;
  /**
   * Warps that neither load nor multiply, which run deferred epilogues; C expression of the number of such a warp; and
   * bytes of a consumer warp's products in the handoff.
   */
  readonly epilogueWarps: number;
  readonly epilogueWarp: string;
  readonly handoffWarpBytes: number;
  /** Threads that synchronize when the row values of the final tile are ready. */
  readonly finalBarrierThreads: number;
}

/**
 * Rows whose loads an idle warp of the producer's group has in flight. More if it also runs deferred epilogues, which
 * leave it less time.
 */
const ROWS_AT_ONCE = 2;
const DEFERRED_ROWS_AT_ONCE = 4;
/** From the number of a warp behind the consumers to its number among those that run epilogues. */
const EXTRA = CONSUMER_WARPS + 1;
/** Registers of a producer's thread that suffice for that many rows at once. */
const ROOMY = 40;

/** Floats of a tile's column values that a kernel keeps in shared memory. Kept where it keeps row values. */
export const columnValuesOf = (
  kernel: ContractionKernel,
  operands: CudaOperands,
  rowValues: number,
  tn: number,
): number =>
  rowValues > 0 && operands.get(kernel.a).dtype === 'e4m3' ? columnFloats(segmentsOf(kernel), operands, tn) : 0;

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
  const kept = { rowValues: values, columnValues, experts: experts?.count };
  const layout = wgmmaLayout(schedule, DTYPE_BYTES[mmaType], kept);
  const tiles = columnTiles(segments, tn);
  const epilogueWarps = idleWarps(layout.epilogueGroups);
  const warps = WARPS_OF_GROUP * (layout.isPingPong ? 1 : CONSUMERS);
  const raster = Math.max(1, Math.floor(schedule.raster / cluster));
  const kBlocks = Math.ceil(kernel.k / tk);
  const prefetch = Math.min(stages, kBlocks);
  const rowsAtOnce = layout.isDeferred ? DEFERRED_ROWS_AT_ONCE : layout.producerRegisters >= ROOMY ? ROWS_AT_ONCE : 1;
  const finalTile =
    kernel.anchor === 'gemm' && kernel.finish === undefined && experts === undefined && values === 0
      ? finalTileOf(segments, operands, layout, schedule)
      : undefined;
  const options: WgmmaOptions = {
    ...layout,
    rows: kernel.rows,
    experts: experts?.count,
    starts: experts === undefined ? undefined : operands.get(experts.starts).index,
    where: experts === undefined ? kernel.rows : `shared + ${layout.tablesOffset}`,
    endOfTiles: 4 * (experts?.count ?? 0),
    startsOffset: 4 * ((experts?.count ?? 0) + 1),
    mmaType,
    tm,
    tn,
    tk,
    stages,
    cluster,
    isCluster: cluster === 2,
    remainderTn: schedule.remainderTn ?? 0,
    raster,
    columnTiles: tiles.total,
    groupTiles: raster * tiles.total,
    clusterRows: tm * cluster,
    clusterRowsMinusOne: tm * cluster - 1,
    kBlocks,
    prefetch,
    prefetchStage: prefetch % stages,
    prefetchPhase: Math.floor(prefetch / stages) % 2,
    hasRowValues: values > 0,
    hasColumnValues: columnValues > 0,
    columnValues,
    columnValuesFloat: (layout.columnValuesOffset - layout.rowValuesOffset) / 4,
    hasRowSums: segments.some(({ outputs }) => outputs.some(({ kind }) => kind === 'rowSum')),
    hasBytes: [...kernelReads(kernel), ...kernelWrites(kernel)].some(
      (name) => name !== kernel.a && isByte(operands.get(name)),
    ),
    hasFinalTile: finalTile !== undefined,
    rowValuesSlot: tm * values,
    slotNumber: layout.rowSlots * tm * values,
    rowsAtOnce,
    rowsAtOnceStep: epilogueWarps * rowsAtOnce,
    emptyOffset: 8 * stages,
    rowsFullOffset: 16 * stages,
    emptyCount: warps * cluster,
    rowsEmptyCount: warps,
    consumerRows: layout.rowBlocks * WGMMA_ROWS,
    blocks: layout.rowBlocks * layout.columnBlocks,
    accumulators: layout.wn / 2,
    consumerWarps: CONSUMER_WARPS,
    threads: blockThreads(layout.epilogueGroups),
    epilogueWarps,
    epilogueWarp: layout.epilogueGroups === 0 ? '(thread >> 5) - 1' : `(thread >> 5) - (thread < 128 ? 1 : ${EXTRA})`,
    handoffWarpBytes: layout.isDeferred ? handoffWarpBytes(tn) : 0,
    finalBarrierThreads: 32 * (CONSUMER_WARPS + epilogueWarps),
  };
  const takers = CONSUMER_WARPS + (layout.isDeferred ? epilogueWarps : 0);
  const finish = finishText(kernel, operands, {
    blockRows: tm,
    gridRows: tm * cluster,
    gridBlocks: cluster,
    whole: tm * tiles.total,
    warps: `gridDim.x * ${takers}u`,
    isDivided: false,
  });
  return { kernel, operands, schedule, segments, firstTiles: tiles.first, prologue, finalTile, finish, options };
}

// The epilogue of a block's final tile. No further product hides it, all blocks reach it at once, and the threads
// that hold accumulators have few loads in flight and much code that runs once. So the products go to shared memory,
// into the ring that is no longer filled, and all consumer warps process them row by row in a small loop with many
// rows in flight.
//
// Only for epilogues that read and write whole rows (the residual stream); others are short.

/** Rows of a warp whose loads are in flight at once. */
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
  /** Floats from one row of products in shared memory to the next. */
  readonly pitch: number;
}

/** How final tiles are stored; undefined if the epilogue is of another kind or the products do not fit. */
export function finalTileOf(
  segments: readonly Segment[],
  operands: CudaOperands,
  { columnBlocks, stageBytes }: WgmmaLayout,
  { tm, tn, stages }: CudaGemmSchedule,
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
    tm * pitch * 4 <= stages * stageBytes &&
    tm % (CONSUMER_WARPS * FINAL_ROWS_AT_ONCE) === 0;
  return isSuited ? { segment, loads, stores, pitch } : undefined;
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
