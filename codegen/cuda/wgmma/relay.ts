/**
 * The relay: consumers leave their products in shared memory and go on to the next tile, and the producer's idle warps
 * run the epilogue meanwhile. Tensor cores wait for what it takes to put products down, under one percent of a tile's time
 * for a K of 6,656, whatever the epilogue reads and writes; and tiles stay as wide as cooperative ones.
 */
import { render } from '../templates.js';
import { heldWarpBytes, holdText, RELAY_WARPS, takeText } from './held.js';
import type { WgmmaLayout } from './layout.js';

/** A segment's column tiles, and its epilogue for one row half. */
interface SegmentText {
  readonly firstTile: number;
  readonly endTile: number;
  readonly isOnlyOrLast: boolean;
  readonly epilogue: string;
}

interface Values {
  readonly layout: WgmmaLayout;
  readonly rows: string;
  readonly tm: number;
  readonly tn: number;
  readonly rowsAtOnceStep: number;
  readonly rowValueCode: string;
  readonly rowValues: boolean;
}

/** Threads that meet where the row values of the last tile are there: consumers, and the warps that fold them. */
const LAST_BARRIER_THREADS = 352;

type RelayTexts = Readonly<Record<'relay' | 'drain' | 'hold', string>> & Readonly<Record<'relayWarps' | 'heldWarpBytes' | 'lastBarrierThreads', number>>;

/** For schedules without one. */
export const NO_RELAY: RelayTexts = { relay: '', drain: '', hold: '', relayWarps: 0, heldWarpBytes: 0, lastBarrierThreads: 0 };

/** What the skeleton has in its places for a relay. */
export function relayTexts(segments: readonly SegmentText[], values: Values): RelayTexts {
  const { layout, tn } = values;
  const sizes = { relayWarps: RELAY_WARPS, heldWarpBytes: heldWarpBytes(tn), lastBarrierThreads: LAST_BARRIER_THREADS };
  const drain = render('wgmmaDrain', { ...values, ...sizes, segments, heldOffset: layout.heldOffset, take: takeText(tn, 6) });
  return { ...sizes, drain, hold: holdText(tn, 4), relay: render('wgmmaRelay', { ...values, ...sizes, drain, units: 2 * RELAY_WARPS }).trimEnd() };
}
