/** The text of remainder tiles (remainderTiles.ts): which columns they have, and how consumers multiply them. */
import { render } from '../text/templates.js';
import type { SegmentText } from './deferredEpilogue.js';
import { remainderEpilogueTexts } from './deferredEpilogue.js';
import { finalProductsText } from './finalTileText.js';
import { loopText, releaseText, waitText } from './mainLoop.js';
import type { WgmmaContext } from './options.js';
import { lastSegment } from './remainderTiles.js';

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
