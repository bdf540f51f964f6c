/**
 * The relay: consumers leave their products in shared memory and go on to the next tile, and the producer's idle warps
 * run the epilogue meanwhile. Tensor cores wait for what it takes to put products down, under one percent of a tile's time
 * for a K of 6,656, whatever the epilogue reads and writes; and tiles stay as wide as cooperative ones.
 */
import { render } from '../templates.js';
import { HALF_BYTES, heldWarpBytes, holdText, RELAY_WARPS, takeText } from './held.js';
import { PRODUCER_IDLE_WARPS } from './instruction.js';
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
  readonly rowValuesSlot: number;
  readonly slotNumber: number;
}

const WARP = 32;

type RelayTexts = Readonly<Record<'relay' | 'drain' | 'hold', string>> & Readonly<Record<'relayWarps' | 'drainWarps' | 'heldWarpBytes' | 'lastBarrierThreads', number>>;

/** For schedules without one. */
export const NO_RELAY: RelayTexts = { relay: '', drain: '', hold: '', relayWarps: 0, drainWarps: 0, heldWarpBytes: 0, lastBarrierThreads: 0 };

/** What the skeleton has in its places for a relay. */
export function relayTexts(segments: readonly SegmentText[], values: Values): RelayTexts {
  const { layout, tn } = values;
  // Consumers meet the warps that fold row values where those of the last tile are there.
  const sizes = { relayWarps: RELAY_WARPS, drainWarps: PRODUCER_IDLE_WARPS, heldWarpBytes: heldWarpBytes(tn), lastBarrierThreads: WARP * (RELAY_WARPS + PRODUCER_IDLE_WARPS) };
  const drain = render('wgmmaDrain', { ...values, ...sizes, segments, heldOffset: layout.heldOffset, halfBytes: HALF_BYTES, take: takeText(tn, 6) });
  return { ...sizes, drain, hold: holdText(tn, 4), relay: render('wgmmaRelay', { ...values, ...sizes, rowSlots: layout.rowSlots, drain, drainThreads: WARP * PRODUCER_IDLE_WARPS, units: 2 * RELAY_WARPS }).trimEnd() };
}
