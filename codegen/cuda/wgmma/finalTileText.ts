/**
 * The text of a final tile's epilogue (finalTile.ts): products to shared memory, then rows from there to global memory.
 */
import { COLUMNS_OF_LANE as COLUMNS, lanePrograms } from '../text/lanePrograms.js';
import type { CudaOperands } from '../text/operands.js';
import { indent } from '../text/statements.js';
import { render } from '../text/templates.js';
import { ROWS_AT_ONCE, type FinalTile } from './finalTile.js';
import { CONSUMER_WARPS } from './instruction.js';
import type { WgmmaContext, WgmmaOptions } from './options.js';

/** The whole epilogue. Remainder tiles have already stored their products (finalProductsText). */
export const finalTileText = ({ operands, options }: WgmmaContext, tile: FinalTile): string =>
  render('wgmmaFinalTile', {
    ...options,
    ...programText(tile, operands),
    finalProducts: options.remainderTn === 0 ? finalProductsText(options, tile, options.tn) : '',
    pitch: tile.pitch,
    columns: tile.segment.columns,
    atOnce: ROWS_AT_ONCE,
    turns: options.tm / CONSUMER_WARPS / ROWS_AT_ONCE,
    rowsOfTurn: CONSUMER_WARPS * ROWS_AT_ONCE,
    lanes: options.tn / COLUMNS,
    remainderLanes: options.remainderTn / COLUMNS,
  });

/** How the consumers store the products of a final tile of `columns` columns in shared memory. */
export const finalProductsText = (options: WgmmaOptions, { pitch }: FinalTile, columns: number): string =>
  render('wgmmaFinalProducts', { ...options, pitch, accumulators: columns / 2 });

/** A lane's work for eight columns of a row, as the template nests it. */
function programText(
  { segment: { outputs }, loads }: FinalTile,
  operands: CudaOperands,
): Readonly<Record<'declared' | 'load' | 'program' | 'store', string>> {
  const own = loads.map((operand) => ({ operand, access: { kind: 'element' } as const }));
  const acc = (lane: number): string => `x_[2 * pair_ + ${lane}]`;
  const text = lanePrograms({ outputs, loads: own, atOnce: ROWS_AT_ONCE, acc }, operands);
  return {
    declared: indent(text.declared, 4),
    load: indent(text.load, 6),
    program: indent([...text.words, ...text.row, ...text.program], 5),
    store: indent(text.store, 5),
  };
}
