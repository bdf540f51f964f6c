/**
 * The last wave. Persistent blocks take whole tiles in waves; where the last wave has tiles for a part of the blocks
 * only, the others wait for them: 4.7 tiles a block take as long as 5. So a schedule may share out the columns of the
 * last wave again, in tiles so narrow that every cluster has one at most. How many column tiles stay whole depends on
 * the rows of a micro-batch: kernels work it out as `waveColumns` does here.
 */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import type { Segment } from '../../../ir/kernel.js';
import { physicalColumns } from '../../operands.js';
import { render } from '../templates.js';
import { heldWarpBytes } from './held.js';
import type { WgmmaLayout } from './layout.js';
import { columnTiles } from './layout.js';
import { loopText, releaseText, settleText } from './mainLoop.js';

/** Column tiles of a launch: `whole` of tn columns, and behind them `narrow` of lastTn. */
export interface WaveColumns {
  readonly whole: number;
  readonly narrow: number;
}

/**
 * What `clusters` at work make of `rowTiles` row tiles (of a whole cluster's rows). Narrow tiles lie in the last
 * segment. All tiles are whole where those of the last wave would be more than one a cluster.
 */
export function waveColumns(
  segments: readonly Segment[],
  { tn, lastTn }: CudaGemmSchedule,
  clusters: number,
  rowTiles: number,
): WaveColumns {
  const { first, total } = columnTiles(segments, tn);
  if (lastTn === undefined || rowTiles < 1) return { whole: total, narrow: 0 };
  const whole = Math.floor((Math.floor((rowTiles * total) / clusters) * clusters) / rowTiles);
  const { firstTile, columns } = lastSegment(segments, first);
  const narrow = Math.ceil((columns - (whole - firstTile) * tn) / lastTn);
  return whole >= firstTile && narrow > 0 && narrow * rowTiles <= clusters
    ? { whole, narrow }
    : { whole: total, narrow: 0 };
}

/**
 * Column tiles of a launch at most: where even the first wave would leave clusters idle, all of an only segment's are
 * narrow.
 */
export function mostColumnTiles(segments: readonly Segment[], { tn, lastTn }: CudaGemmSchedule): number {
  const { first, total } = columnTiles(segments, tn);
  return lastTn === undefined || segments.length > 1 ? total : Math.ceil(lastSegment(segments, first).columns / lastTn);
}

/**
 * Time of a tile of `share` of the columns of a whole one, in such. Measured on an H100 at its power limit, where
 * blocks that wait in a last wave leave their power to the others: filling it gains less than its columns say.
 */
const narrowTime = (share: number): number => share + 0.6 * (1 - share);

/** Tiles of the cluster that has most, in times of a whole one. */
export function waveCount(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule,
  clusters: number,
  rowTiles: number,
): number {
  const { whole, narrow } = waveColumns(segments, schedule, clusters, rowTiles);
  const most = Math.ceil((rowTiles * whole) / clusters);
  // Narrow tiles go on where whole ones end: first to clusters that have one whole tile less.
  return rowTiles * (whole + narrow) <= most * clusters
    ? most
    : most + narrowTime((schedule.lastTn ?? 0) / schedule.tn);
}

/** What the skeleton has in its places for a last wave of its own. */
type LastWaveTexts = Readonly<Record<'lastWave' | 'narrow' | 'wholePut', string>> &
  Readonly<Record<'lastTn' | 'lastFirstTile' | 'lastColumnTile' | 'lastMap', number>>;

/** For schedules without one. */
export const NO_LAST_WAVE: LastWaveTexts = {
  lastWave: '',
  narrow: '',
  wholePut: '',
  lastTn: 0,
  lastFirstTile: 0,
  lastColumnTile: 0,
  lastMap: 0,
};

/**
 * What follows the products of a narrow tile: they are put where the rows of last tiles lie (tail.ts), or held for the
 * warp's own epilogue (relay.ts).
 */
export type NarrowEnd = Readonly<Record<'put' | 'wholePut', string>> | Readonly<Record<'hold' | 'ownEpilogue', string>>;

export function lastWaveTexts(
  segments: readonly Segment[],
  schedule: CudaGemmSchedule & { readonly lastTn: number },
  layout: WgmmaLayout,
  rows: string,
  kBlocks: number,
  end: NarrowEnd,
): LastWaveTexts {
  const { tn, lastTn, stages } = schedule;
  const { first, total } = columnTiles(segments, tn);
  const { firstTile, columns } = lastSegment(segments, first);
  return {
    lastWave: render('wgmmaLastWave', { lastTn, tn, total, firstTile, columns }).trimEnd(),
    lastTn,
    lastFirstTile: firstTile,
    lastColumnTile: total - 1,
    lastMap: segments.length + 1,
    wholePut: 'wholePut' in end ? end.wholePut : '',
    narrow: render('wgmmaNarrow', {
      rows,
      kBlocks,
      stages,
      accumulators: lastTn / 2,
      loop: loopText(schedule, layout, kBlocks, true),
      settle: settleText({ ...layout, wn: lastTn }),
      release: releaseText(schedule),
      heldOffset: layout.heldOffset,
      heldWarpBytes: heldWarpBytes(tn),
      put: '',
      hold: '',
      ownEpilogue: '',
      ...end,
    }),
  };
}

/** First column tile and physical columns of the last segment. */
function lastSegment(
  segments: readonly Segment[],
  first: readonly number[],
): { readonly firstTile: number; readonly columns: number } {
  const { columns, pairing } = segments.at(-1)!;
  return { firstTile: first.at(-1)!, columns: physicalColumns(columns, pairing) };
}
