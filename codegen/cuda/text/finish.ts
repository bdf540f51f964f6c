/**
 * Contractions that finish their rows (finish of a GemmKernel). Every skeleton prints the same programs and the same
 * way to share rows among warps; a skeleton says what of a row a warp has stored, and when its warps take rows.
 */
import type { GemmKernel, LogProbKernel, Output } from '../../../ir/kernel.js';
import { blockFunctions, laneLoads, lanePrograms, WARP_COLUMNS, wordsOf } from './lanePrograms.js';
import type { CudaOperands } from './operands.js';
import { indent } from './statements.js';
import { render } from './templates.js';

/** How a skeleton stores rows. */
export interface StoredRows {
  /** Rows of a block: those of a tile. */
  readonly blockRows: number;
  /** Rows of a step of the grid, and blocks of them. */
  readonly gridRows: number;
  readonly gridBlocks: number;
  /** Shares of a block that warps store, in all. */
  readonly whole: number;
  /** C expression (unsigned): warps of the grid that take pieces. */
  readonly warps: string;
  /** Whether several warps share a row: where there are few rows. */
  readonly isDivided: boolean;
}

/** 32-bit words of operands that a lane has under way at once, of the 120 registers that the narrowest warps have. */
const MAX_WORDS = 64;
/**
 * How often a warp that finds no piece looks again before it ends. Each time takes about 2 µs, of which it sleeps a
 * quarter: what blocks that end together may be apart, and less than the time of a tile.
 */
const PATIENCE = 12;
const MANY = '0x7fffffff';

/** The parts of a kernel that finishes rows; all empty for others. */
export class FinishText {
  /** Functions before the kernel's head, except the sums of lanes where the skeleton has them. */
  readonly functions: string;
  private readonly pieces: (most: number | string, patience: number) => string;
  private readonly end: string;

  constructor(kernel: GemmKernel, finish: readonly Output[], operands: CudaOperands, stored: StoredRows) {
    const { columns } = kernel.segments[0]!;
    const loads = laneLoads(finish, operands);
    const words = loads.reduce((sum, { operand }) => sum + wordsOf(operand), 0);
    const chunks = Math.ceil(columns / WARP_COLUMNS);
    const turns = Math.ceil(chunks / Math.max(1, Math.floor(MAX_WORDS / Math.max(1, words))));
    const atOnce = Math.ceil(chunks / turns);
    const pieces = stored.isDivided ? turns : 1;
    const blockPieces = stored.blockRows * pieces;
    const maxBlocks = Math.ceil(operands.maxRows(finish[0]!.buffer) / stored.gridRows) * stored.gridBlocks;
    const text = lanePrograms({ outputs: finish, loads, atOnce }, operands);
    this.functions = render('finish', {
      ...stored,
      pieces,
      blockPieces,
      maxBlocks,
      lastPiece: blockPieces - 1,
      blockFunctions: blockFunctions(finish, operands),
    });
    const values = {
      pieces,
      atOnce,
      columns,
      rows: kernel.rows,
      isDivided: pieces > 1,
      step: WARP_COLUMNS * atOnce,
      laneColumns: WARP_COLUMNS,
      declared: indent(text.declared, 4),
      load: indent(text.load, 6),
      row: indent(text.row, 4),
      words: indent(text.words, 5),
      program: indent(text.program, 5),
      store: indent(text.store, 5),
    };
    this.pieces = (most, patience) => render('finishPieces', { ...values, most, patience });
    this.end = `    tw_rows_ended(${stored.warps}, ${kernel.rows});\n`;
  }

  /** Statements of a warp that goes on to multiply or store: takes `most` pieces at most, and waits for none. */
  some(most: number): string {
    return this.pieces(most, 0);
  }

  /** Statements of a warp that has nothing else to do. `waits`: whether more may come of what others store. */
  rest(waits: boolean): string {
    return this.pieces(MANY, waits ? PATIENCE : 0) + this.end;
  }
}

/** The kernel's finish as text; undefined if it has none. */
export const finishText = (
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  stored: StoredRows,
): FinishText | undefined =>
  kernel.anchor === 'gemm' && kernel.finish !== undefined
    ? new FinishText(kernel, kernel.finish, operands, stored)
    : undefined;

/** What a skeleton whose blocks have one tile each prints behind the tile's epilogue, which all `warps` warps run. */
export function finishOfTile(
  kernel: GemmKernel | LogProbKernel,
  operands: CudaOperands,
  tile: { readonly tm: number; readonly across: number; readonly warps: number; readonly isSmall: boolean },
  rowBlock: string,
): { readonly functions: string; readonly finish: string } {
  const { tm, across, warps, isSmall } = tile;
  const text = finishText(kernel, operands, {
    blockRows: tm,
    gridRows: tm,
    gridBlocks: 1,
    whole: across * warps,
    warps: `gridDim.x * gridDim.y * ${warps}u`,
    isDivided: isSmall,
  });
  if (text === undefined) return { functions: '', finish: '' };
  const stored = `    tw_rows_stored(${rowBlock}, 1);\n    unsigned finishing = 0;\n`;
  return { functions: text.functions, finish: `  {\n${stored}${text.rest(isSmall)}  }\n` };
}
