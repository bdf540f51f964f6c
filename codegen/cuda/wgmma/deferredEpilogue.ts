/**
 * The deferred epilogue: consumers leave their products in shared memory and go on to the next tile, while the
 * producer's idle warps, and warpgroups for epilogues if the schedule has any, run the epilogue. The tensor cores wait
 * only while products are stored there: less than 1 % of a tile's time for K = 6,656, whatever the epilogue reads and
 * writes. Tiles stay as wide as cooperative ones.
 */
import { COLUMNS_OF_LANE as COLUMNS, lanePrograms } from '../text/lanePrograms.js';
import type { CudaOperands } from '../text/operands.js';
import { block, indent, render } from '../text/statements.js';
import type { ColumnValueTexts } from './columnValues.js';
import { CONSUMER_WARPS } from './instruction.js';
import { declareHandoff, HALF_BYTES, lastSegment, loadHandoffText, storeHandoffText } from './layout.js';
import { loopText, releaseText, waitText } from './mainLoop.js';
import { FINAL_ROWS_AT_ONCE, type FinalTile, type WgmmaContext, type WgmmaOptions } from './options.js';

/** A segment's column tiles, its weight's tensor map, and its epilogue for one half of a warp's rows. */
export interface SegmentText {
  readonly map: number;
  readonly firstTile: number;
  readonly endTile: number;
  /** C text that is added to a column to reach that of the tile's expert; empty if there is one matrix. */
  readonly ofExpert: string;
  readonly isOnlyOrLast: boolean;
  readonly epilogue: string;
  /** See EpilogueText. */
  readonly firstLoads: string;
}

/**
 * The skeleton's parts: the work of the producer's idle warps, the consumers' handoff, and the epilogue that consumers
 * run themselves for a block's final tile.
 */
type DeferredTexts = Readonly<Record<'deferredEpilogue' | 'storeHandoff' | 'consumerEpilogue', string>>;

/** The same for the other modes. */
export const NOT_DEFERRED: DeferredTexts = { deferredEpilogue: '', storeHandoff: '', consumerEpilogue: '' };

export function deferredTexts(
  context: WgmmaContext,
  segments: readonly SegmentText[],
  kept: ColumnValueTexts & RowTurns & { readonly rowValueCode: string },
): DeferredTexts {
  const { options } = context;
  const finish = finishTexts(context);
  const epilogue = handoffEpilogueText(options, segments, options.tn);
  return {
    storeHandoff: storeHandoffText(options.tn, options.wn, 4),
    consumerEpilogue: consumerText(options, 'ownTile', firstLoadsOf(segments) + epilogue) + finish.storedFinal,
    deferredEpilogue: render('wgmmaDeferred', {
      ...options,
      ...finish,
      hasFinish: context.finish !== undefined,
      epilogue,
      firstLoads: firstLoadsOf(segments),
      ...kept,
      epilogueThreads: 32 * options.epilogueWarps,
      units: 2 * CONSUMER_WARPS,
    }).trimEnd(),
  };
}

/** The code after the products of a remainder tile of the last segment: consumers keep the products for themselves. */
export const remainderEpilogueTexts = (
  options: WgmmaOptions,
  segment: SegmentText,
): Pick<DeferredTexts, 'storeHandoff' | 'consumerEpilogue'> => ({
  storeHandoff: storeHandoffText(options.remainderTn, options.remainderTn, 4),
  consumerEpilogue: consumerText(options, 'tile', handoffEpilogueText(options, [segment], options.remainderTn)),
});

/**
 * Loads row halves of products from shared memory and runs their epilogues. The place of each warp's products does not
 * depend on their number of columns.
 */
const handoffEpilogueText = (options: WgmmaOptions, segments: readonly SegmentText[], columns: number): string =>
  render('wgmmaHandoffEpilogue', {
    ...options,
    segments,
    isRemainder: columns !== options.tn,
    halfBytes: HALF_BYTES,
    loadHandoff: firstLoadsOf(segments) === '' ? loadHandoffText(columns, 6) : indent([declareHandoff(columns)], 6),
  });

/** Only kernels of one segment load ahead. */
const firstLoadsOf = (segments: readonly SegmentText[]): string => segments[0]!.firstLoads;

const consumerText = (options: WgmmaOptions, tile: string, epilogue: string): string =>
  render('wgmmaConsumerEpilogue', { ...options, tile, epilogue });

// Where the warps of a wgmma kernel say what they have stored of a row, and finish rows.

/**
 * - `storedRows`: after a consumer warp's epilogue of a tile, and `storedFinal`, of its share of the block's final tile
 * - `storedUnits`: after a deferred epilogue; the warp then finishes as many rows as blocks store, and a few more
 * - `finishConsumers`, `finishIdle`: after the last tile
 */
type FinishTexts = Readonly<
  Record<'storedRows' | 'storedFinal' | 'storedUnits' | 'finishConsumers' | 'finishIdle', string>
>;

const NONE: FinishTexts = { storedRows: '', storedFinal: '', storedUnits: '', finishConsumers: '', finishIdle: '' };

/** Rows that a warp finishes beyond its share, so that rows which wait become fewer. */
const MORE = 2;

export function finishTexts({ finish, kernel, options }: WgmmaContext): FinishTexts {
  if (finish === undefined || kernel.anchor !== 'gemm') return NONE;
  const { tm, tn, rowBlocks, epilogueWarps } = options;
  const stored = (share: string | number): string => `        tw_rows_stored(place.row0 / ${tm}, ${share});\n`;
  const share = Math.ceil((tm * tn) / kernel.segments[0]!.columns / epilogueWarps);
  const last = `    unsigned finishing = 0;\n${finish.rest(true)}`;
  return {
    storedRows: stored(rowBlocks * 16),
    storedFinal: stored(tm / CONSUMER_WARPS),
    storedUnits: stored('(units - unit0 + unitStep - 1) / unitStep * 8') + finish.some(share + MORE),
    finishConsumers: `    {\n${last}    }\n`,
    finishIdle: finish.rest(true),
  };
}

// Values that depend on the row alone, computed by the producer's idle warps for the epilogues of a tile.

/** How idle threads share out the rows of a tile: a C expression (int) of the first, the distance to the next. */
export interface RowTurns {
  readonly firstRow: string;
  readonly rowStep: number;
}

/**
 * A thread's share of the row values of a tile. A warp computes several rows at once, because a single row would wait
 * for memory. Where a row's values are made of single numbers, a thread has a row of its own.
 */
export function rowValueText({ prologue, options: { rows, tm, rowsAtOnce, epilogueWarps } }: WgmmaContext): string {
  const { scalars, ofThread, text } = prologue;
  const local = (i: number): string => (i === 0 ? 'local' : `local + ${i * epilogueWarps}`);
  const valueText = (i: number, print: typeof text): string =>
    indent(
      [
        `const int own${i} = row0 + ${local(i)}, read${i} = own${i} < ${rows} ? own${i} : ${rows} - 1;`,
        `float fold${i}[${scalars.length}];`,
      ],
      5,
    ) + print(`read${i}`, `fold${i}`, 5);
  const stores = (i: number): string[] =>
    scalars.map((_, j) => `to[(${local(i)}) * ${scalars.length} + ${j}] = fold${i}[${j}];`);
  if (ofThread !== undefined) return valueText(0, ofThread) + indent(stores(0), 5);
  const each = Array.from({ length: rowsAtOnce }, (_, i) => i);
  const inTile = each.flatMap((i) => stores(i).map((store) => `if (${local(i)} < ${tm}) ${store}`));
  return each.map((i) => valueText(i, text)).join('') + indent(block('if (lane == 0)', inTile), 5);
}

/** The turns of those threads. */
export const rowTurns = ({
  prologue,
  options: { epilogueWarp, epilogueWarps, rowsAtOnceStep },
}: WgmmaContext): RowTurns =>
  prologue.ofThread === undefined
    ? { firstRow: epilogueWarp, rowStep: rowsAtOnceStep }
    : { firstRow: `32 * (${epilogueWarp}) + lane`, rowStep: 32 * epilogueWarps };

// The text of a final tile's epilogue (finalTile.ts): products to shared memory, then rows from there to global
// memory.

/** The whole epilogue. Remainder tiles have already stored their products (finalProductsText). */
export const finalTileText = ({ operands, options }: WgmmaContext, tile: FinalTile): string =>
  render('wgmmaFinalTile', {
    ...options,
    ...programText(tile, operands),
    finalProducts: options.remainderTn === 0 ? finalProductsText(options, tile, options.tn) : '',
    pitch: tile.pitch,
    columns: tile.segment.columns,
    atOnce: FINAL_ROWS_AT_ONCE,
    turns: options.tm / CONSUMER_WARPS / FINAL_ROWS_AT_ONCE,
    rowsOfTurn: CONSUMER_WARPS * FINAL_ROWS_AT_ONCE,
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
  const text = lanePrograms({ outputs, loads: own, atOnce: FINAL_ROWS_AT_ONCE, acc }, operands);
  return {
    declared: indent(text.declared, 4),
    load: indent(text.load, 6),
    program: indent([...text.words, ...text.row, ...text.program], 5),
    store: indent(text.store, 5),
  };
}

// The text of remainder tiles (remainderTiles.ts): which columns they have, and how consumers multiply them.

/**
 * The skeleton's parts: the functions that count columns, the consumers' remainder tile, and, if final tiles are stored
 * row by row, the handling of a whole tile's products.
 */
type RemainderTexts = Readonly<Record<'remainderColumns' | 'remainderTile' | 'finalProducts', string>> &
  Readonly<Record<'remainderFirstTile' | 'remainderColumnTile' | 'remainderMap', number>>;

/** For schedules without remainder tiles. */
export const NO_REMAINDER: RemainderTexts = {
  remainderColumns: '',
  remainderTile: '',
  finalProducts: '',
  remainderFirstTile: 0,
  remainderColumnTile: 0,
  remainderMap: 0,
};

/** `last`: the last segment, with its epilogue printed for remainder tiles. */
export function remainderTexts(context: WgmmaContext, last: SegmentText): RemainderTexts {
  const { segments, firstTiles, finalTile, options } = context;
  const { remainderTn, columnTiles } = options;
  const { firstTile, columns } = lastSegment(segments, firstTiles);
  const products = (count: number): string =>
    finalTile === undefined ? '' : finalProductsText(options, finalTile, count);
  const own =
    finalTile === undefined ? remainderEpilogueTexts(options, last) : { storeHandoff: '', consumerEpilogue: '' };
  return {
    remainderColumns: render('wgmmaRemainderColumns', { ...options, firstTile, columns }).trimEnd(),
    remainderFirstTile: firstTile,
    remainderColumnTile: columnTiles - 1,
    remainderMap: segments.length + 1,
    finalProducts: products(options.tn),
    remainderTile: render('wgmmaRemainderTile', {
      ...options,
      ...own,
      accumulators: remainderTn / 2,
      loop: loopText(options, true),
      wait: waitText(options.blocks, remainderTn),
      release: releaseText(options),
      finalProducts: products(remainderTn),
    }),
  };
}
