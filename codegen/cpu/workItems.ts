/** The loop over the work items of a contraction, whatever multiplies: which segments they are of, and their memory. */
import type { ExpertRows } from '../../ir/kernel.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import { type ExtentName, roundUp } from '../../ir/types.js';
import type { BesideProducts } from './epilogues.js';
import type { COperands } from './operands.js';
import type { AdapterFields } from './shrink.js';
import { type ConfigFields, constantTable } from './unit.js';

/** A contraction as its loop over items sees it. */
export interface GemmPlan {
  readonly symbol: string;
  readonly rows: ExtentName;
  readonly k: number;
  readonly a: string;
  readonly schedule: CpuGemmSchedule;
  /** Columns of the tile in memory. */
  readonly ldc: number;
  readonly segments: readonly {
    weight: string;
    physical: number;
    nb: number;
    matrices: number;
    epilogue?: string;
  }[];
  readonly lines: number;
  readonly experts?: ExpertRows;
  /** Heads with matrices of their own, and columns of each. The columns of the segment are those of one. */
  readonly heads?: { readonly count: number; readonly columns: number };
  readonly adapter?: AdapterFields;
  /** The epilogue, where it is run beside products instead of behind an item's. */
  readonly beside?: BesideProducts | undefined;
}

/** Columns of a work item: nb, evened out over the segment in whole steps. */
export function evenBlocks(physical: number, nb: number, step: number): number {
  const blocks = Math.ceil(physical / nb);
  return Math.min(nb, roundUp(Math.ceil(physical / blocks), step));
}

/**
 * Floats from one row of the tile to the next in memory. Never a multiple of 4 KiB, which would put all rows into the
 * same L1 sets.
 */
export const tileStride = (columns: number): number => ((columns * 4) % 4096 === 0 ? columns + 16 : columns);

/** The segments of a kernel, for gemm/items.h. */
export const segmentsTable = ({ segments }: GemmPlan, operands: COperands): string =>
  constantTable(
    'GemmSegment',
    'segments',
    segments.map(({ weight, physical, nb, matrices, epilogue }) => ({
      weight: operands.weight(weight).index,
      columns: physical,
      block: nb,
      matrices,
      epilogue,
    })),
  );

/** The ItemsConfig of gemm/items.h. `keepsRows`: whether items of the same rows follow one another. */
export function itemsConfig(plan: GemmPlan, operands: COperands, keepsRows: boolean): ConfigFields {
  const { schedule, segments, experts, heads } = plan;
  return {
    rows: operands.extentIndex(plan.rows),
    blockRows: schedule.mb,
    tileRows: schedule.mr,
    segments: 'segments',
    segmentCount: segments.length,
    experts: experts?.count,
    starts: experts && operands.get(experts.starts).index,
    heads: heads?.count,
    headColumns: heads?.columns,
    takesRuns: schedule.isa !== 'amx' && schedule.mb <= STREAM_ROWS && experts === undefined,
    keepsRows,
    minItems: keepsRows ? minItems(schedule.isa) : 0,
  };
}

/** Bytes of a worker's tile of sums, and of the lines that its epilogues need. */
export const tileBytesOf = ({ schedule, ldc }: GemmPlan): number =>
  roundUp(roundUp(schedule.mb, schedule.mr) * ldc * 4, 64);

/**
 * Where the lines of epilogues begin in a worker's memory, then what epilogues beside products need of the rows of an
 * item, and what all takes. `from`: the end of what multiplies.
 */
export function lastOffsets(
  { schedule, ldc, lines, beside }: GemmPlan,
  from: number,
): { readonly linesOffset: number; readonly valuesOffset: number; readonly scratchBytes: number } {
  const valuesOffset = from + (lines > 0 ? roundUp((lines * ldc + 1024) * 4, 64) : 0);
  const valuesBytes = roundUp(schedule.mb, schedule.mr) * (beside?.values ?? 0) * 4;
  return { linesOffset: from, valuesOffset, scratchBytes: roundUp(valuesOffset + valuesBytes, 4096) };
}

/**
 * Items of other workers' rows that have to be left before a worker makes codes of these rows as well. With AMX the
 * codes of a block take as long as two items; elsewhere products take much longer.
 */
const minItems = (isa: CpuIsa): number => (isa === 'amx' ? 2 : 0);

/** Rows of a work item up to which a kernel mostly waits for weights, so that workers take neighbouring items. */
const STREAM_ROWS = 8;
