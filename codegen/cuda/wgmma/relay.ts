/**
 * The relay: consumers leave their products in shared memory and go on to the next tile, and the producer's idle warps
 * run the epilogue meanwhile. Tensor cores wait for what it takes to put products down, under one percent of a tile's
 * time for a K of 6,656, whatever the epilogue reads and writes; and tiles stay as wide as cooperative ones.
 */
import { render } from '../templates.js';
import { HALF_BYTES, heldWarpBytes, holdText, RELAY_WARPS, takeText } from './held.js';
import { PRODUCER_IDLE_WARPS } from './instruction.js';
import type { WgmmaLayout } from './layout.js';

/** A segment's column tiles, and its epilogue for one row half. */
export interface SegmentText {
  readonly firstTile: number;
  readonly endTile: number;
  readonly isOnlyOrLast: boolean;
  readonly epilogue: string;
}

export interface RelayValues {
  readonly layout: WgmmaLayout;
  readonly rows: string;
  readonly isCluster: boolean;
  readonly tm: number;
  readonly tn: number;
  readonly rowsAtOnceStep: number;
  readonly rowValueCode: string;
  readonly rowValues: boolean;
  readonly rowValuesSlot: number;
  readonly slotNumber: number;
}

const WARP = 32;

/**
 * What the skeleton has in its places for a relay: the warps that drain, how consumers hand over, and their own
 * epilogue of a last tile.
 */
type RelayTexts = Readonly<Record<'relay' | 'hold' | 'ownEpilogue', string>> &
  Readonly<Record<'relayWarps' | 'drainWarps' | 'heldWarpBytes', number>>;

/** For schedules without one. */
export const NO_RELAY: RelayTexts = {
  relay: '',
  hold: '',
  ownEpilogue: '',
  relayWarps: 0,
  drainWarps: 0,
  heldWarpBytes: 0,
};

/** Consumers meet the warps that fold row values where those of the last tile are there. */
const LAST_BARRIER_THREADS = WARP * (RELAY_WARPS + PRODUCER_IDLE_WARPS);
const sizesOf = (
  tn: number,
): Readonly<Record<'relayWarps' | 'drainWarps' | 'heldWarpBytes' | 'lastBarrierThreads', number>> => ({
  relayWarps: RELAY_WARPS,
  drainWarps: PRODUCER_IDLE_WARPS,
  heldWarpBytes: heldWarpBytes(tn),
  lastBarrierThreads: LAST_BARRIER_THREADS,
});

export function relayTexts(segments: readonly SegmentText[], values: RelayValues): RelayTexts {
  const { layout, tn } = values;
  const drain = drainText(segments, values, tn);
  return {
    ...sizesOf(tn),
    hold: holdText(tn, 4),
    ownEpilogue: ownText('ownTile', drain, values),
    relay: render('wgmmaRelay', {
      ...values,
      ...sizesOf(tn),
      rowSlots: layout.rowSlots,
      drain,
      drainThreads: WARP * PRODUCER_IDLE_WARPS,
      units: 2 * RELAY_WARPS,
    }).trimEnd(),
  };
}

/** The same for a tile of the last wave, of `columns` columns of the last segment: what follows its products. */
export const narrowTexts = (
  columns: number,
  segment: SegmentText,
  values: RelayValues,
): Readonly<Record<'hold' | 'ownEpilogue', string>> => ({
  hold: holdText(columns, 4),
  ownEpilogue: ownText('tile', drainText([segment], values, columns), values),
});

/**
 * Takes up row halves of products and runs their epilogues. Where each warp's products lie does not depend on how many
 * columns they have.
 */
const drainText = (segments: readonly SegmentText[], values: RelayValues, columns: number): string =>
  render('wgmmaDrain', {
    ...values,
    ...sizesOf(values.tn),
    segments,
    isNarrow: columns !== values.tn,
    heldOffset: values.layout.heldOffset,
    halfBytes: HALF_BYTES,
    take: takeText(columns, 6),
  });

const ownText = (tile: string, drain: string, values: RelayValues): string =>
  render('wgmmaOwn', { ...values, tile, drain, lastBarrierThreads: LAST_BARRIER_THREADS });
