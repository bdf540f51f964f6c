/**
 * The epilogue of a block's final tile. No further product hides it, all blocks reach it at once, and the threads that
 * hold accumulators have few loads in flight and much code that runs once. So the products go to shared memory, into
 * the ring that is no longer filled, and all consumer warps process them row by row in a small loop with many rows in
 * flight.
 *
 * Only for epilogues that read and write whole rows (the residual stream); others are short.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { operands as childrenOf, readOf } from '../../../ir/scalar.js';
import { isWholeRow } from '../text/lanePrograms.js';
import type { CudaOperands, Operand } from '../text/operands.js';
import { elementLoads } from './elementLoads.js';
import { CONSUMER_WARPS } from './instruction.js';
import type { WgmmaLayout } from './layout.js';

/** Rows of a warp whose loads are in flight at once. */
export const ROWS_AT_ONCE = 8;
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
    tm % (CONSUMER_WARPS * ROWS_AT_ONCE) === 0;
  return isSuited ? { segment, loads, stores, pitch } : undefined;
}

/** The programs read only the element itself, which is skipped for lanes and rows past the end. */
const readsOwnElements = (s: Scalar): boolean =>
  s.op === 'load'
    ? s.access.kind === 'element' && s.access.via === undefined
    : readOf(s) === undefined && childrenOf(s).every(readsOwnElements);
