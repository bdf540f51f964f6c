/**
 * The text of a final tile's epilogue (finalTile.ts): products to shared memory, then rows from there to global memory.
 */
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import { DTYPE_BYTES } from '../../../ir/types.js';
import type { CudaOperands, Operand } from '../text/operands.js';
import { programValues } from '../text/programs.js';
import type { Site } from '../text/scalarPrinter.js';
import { Body, RowScope } from '../text/scalarPrinter.js';
import { block, Constants, indent, unrolled } from '../text/statements.js';
import { render } from '../text/templates.js';
import { COLUMNS_OF_LANE as COLUMNS, ROWS_AT_ONCE, type FinalTile } from './finalTile.js';
import { CONSUMER_WARPS } from './instruction.js';
import type { WgmmaContext, WgmmaOptions } from './options.js';
import { packElement, unpackElement } from './vectorAccess.js';

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

/** Number of 32-bit words that hold a lane's columns. */
const wordsOf = ({ dtype }: Operand): number => (COLUMNS * DTYPE_BYTES[dtype]) / 4;

/** C expression of an element of the lane's columns, by its position in the pair `pair_`. */
const elementOf = (operand: Operand, name: string, lane: number): string =>
  operand.dtype === 'f32'
    ? `__uint_as_float(${name}[2 * pair_ + ${lane}])`
    : unpackElement(operand, name, 'pair_', lane);

/** Statements that keep the two values of a pair in the words to be stored. */
const keep = (operand: Operand, name: string, values: readonly string[]): string[] =>
  operand.dtype === 'f32'
    ? values.map((value, lane) => `${name}[2 * pair_ + ${lane}] = __float_as_uint(${value});`)
    : [packElement(operand, name, 'pair_', values)];

/** Copies between `words` and memory, 16 bytes at a time if there are that many. */
function copies(operand: Operand, words: string, at: string, isLoad: boolean): string[] {
  const count = wordsOf(operand);
  const step = Math.min(4, count);
  const type = `tw_u${step}`;
  return Array.from({ length: count / step }, (_, i) => {
    const memory = `((${isLoad ? 'const ' : ''}${type} *)(${at}))[${i}]`;
    const each = Array.from({ length: step }, (_word, j) => `${words}[${step * i + j}]`);
    if (!isLoad) return `${memory} = { ${each.join(', ')} };`;
    return `{ const ${type} x = ${memory}; ${each.map((word, j) => `${word} = x.${'xyzw'[j]!};`).join(' ')} }`;
  });
}

/** A lane's work for eight columns of a row: declare its words, load them, run the programs, store the results. */
function programText(
  { segment: { outputs }, loads, stores }: FinalTile,
  operands: CudaOperands,
): Readonly<Record<'declared' | 'load' | 'program' | 'store', string>> {
  const scope = new RowScope(operands, 'row', 'r');
  const body = new Body(scope, 'v');
  const constants = new Constants();
  const column = constants.add('column', () => 'first + 2 * pair_');
  const nameOf = (operand: Operand): string => `l${loads.findIndex(({ name }) => name === operand.name)}_`;
  const site: Site = {
    id: 'x',
    get column() {
      return column();
    },
    lanes: 2,
    acc: (_, lane) => `x_[2 * pair_ + ${lane}]`,
    loaded: (buffer, access, lane) => {
      const own =
        access.kind === 'element' && access.via === undefined ? loads.find(({ name }) => name === buffer) : undefined;
      return own === undefined ? undefined : elementOf(own, `${nameOf(own)}[i]`, lane);
    },
  };
  const values = outputs.map((output) => programValues(output, body, site));
  let [stored, summed] = [0, 0];
  const kept = outputs.flatMap((output, i) =>
    output.kind === 'store'
      ? keep(operands.get(output.buffer), `w${stored++}_`, values[i]!)
      : [`a${summed}_[2 * pair_] = ${values[i]![0]!};`, `a${summed++}_[2 * pair_ + 1] = ${values[i]![1]!};`],
  );
  const sums = outputs.filter(({ kind }) => kind === 'rowSum').map(({ buffer }) => operands.get(buffer));
  const at = (operand: Operand): string => `${operands.base(operand)} + (long long)row * ${operand.stride} + first`;
  return {
    declared: indent(
      loads.map((operand) => `unsigned ${nameOf(operand)}[${ROWS_AT_ONCE}][${wordsOf(operand)}];`),
      4,
    ),
    load: indent(
      loads.flatMap((operand) => copies(operand, `${nameOf(operand)}[i]`, at(operand), true)),
      6,
    ),
    program: indent(
      [
        ...stores.map((operand, i) => `unsigned w${i}_[${wordsOf(operand)}] = {};`),
        ...sums.map((_, i) => `float a${i}_[${COLUMNS}];`),
        ...scope.lines,
        ...unrolled(`for (int pair_ = 0; pair_ < ${COLUMNS / 2}; pair_++)`, [
          ...constants.definitions(),
          ...body.lines,
          ...kept,
        ]),
      ],
      5,
    ),
    store: indent(
      [
        ...sums.map((operand, i) => `tw_store_block_sum(${at(operand)} / ${ROW_SUM_BLOCK}, a${i}_, lane, isStored);`),
        ...block(
          'if (isStored)',
          stores.flatMap((operand, i) => copies(operand, `w${i}_`, at(operand), false)),
        ),
      ],
      5,
    ),
  };
}
