/**
 * The deferred epilogue: consumers leave their products in shared memory and go on to the next tile, while the
 * producer's idle warps, and warpgroups for epilogues if the schedule has any, run the epilogue. The tensor cores wait
 * only while products are stored there: less than 1 % of a tile's time for K = 6,656, whatever the epilogue reads and
 * writes. Tiles stay as wide as cooperative ones.
 */
import { render } from '../text/templates.js';
import { indent } from '../text/statements.js';
import { declareHandoff, HALF_BYTES, loadHandoffText, storeHandoffText } from './handoff.js';
import { CONSUMER_WARPS } from './instruction.js';
import type { ColumnValueTexts } from './columnValues.js';
import { finishTexts } from './finishTexts.js';
import type { WgmmaContext, WgmmaOptions } from './options.js';
import type { RowTurns } from './rowValues.js';

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
