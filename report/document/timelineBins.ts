/** What a timeline draws of its tracks: slices that are in view, those too narrow to be seen joined to one. */
import type { Track } from './machine.js';

/** The part of the timeline that is shown, in microseconds. */
export interface View {
  readonly from: number;
  readonly to: number;
}

/** A rectangle: one slice, or neighbours that share pixels. */
export interface Drawn {
  readonly begin: number;
  readonly end: number;
  /** The first slice, and how many there are. */
  readonly first: number;
  readonly slices: number;
  /** Share of the rectangle's time in which there was a slice. */
  readonly busy: number;
}

/** Slices narrower than this are joined, if less than a pixel is between them. */
const NARROW_PIXELS = 3;

/** Index of the first slice that may end after `time`: `reach[i]` is the latest end of the slices up to i. */
function firstAfter(reach: readonly number[], time: number): number {
  let [low, high] = [0, reach.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (reach[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

const reaches = new WeakMap<Track, readonly number[]>();

function reachOf(track: Track): readonly number[] {
  const known = reaches.get(track);
  if (known !== undefined) return known;
  let latest = -Infinity;
  const reach = track.begin.map((at, i) => (latest = Math.max(latest, at + track.duration[i]!)));
  reaches.set(track, reach);
  return reach;
}

export function drawnOf(track: Track, { from, to }: View, pixels: number): readonly Drawn[] {
  const unit = (to - from) / Math.max(1, pixels);
  const narrow = NARROW_PIXELS * unit;
  const found: { begin: number; end: number; first: number; slices: number; seconds: number; isNarrow: boolean }[] = [];
  for (let i = firstAfter(reachOf(track), from); i < track.begin.length; i++) {
    const begin = track.begin[i]!;
    if (begin > to) break;
    const duration = track.duration[i]!;
    const end = begin + duration;
    if (end < from) continue;
    const last = found.at(-1);
    if (last?.isNarrow === true && duration < narrow && begin - last.end < unit) {
      last.end = Math.max(last.end, end);
      last.slices++;
      last.seconds += duration;
    } else found.push({ begin, end, first: i, slices: 1, seconds: duration, isNarrow: duration < narrow });
  }
  return found.map(({ begin, end, first, slices, seconds }) => ({
    begin: Math.max(begin, from),
    end: Math.min(end, to),
    first,
    slices,
    busy: end > begin ? Math.min(1, seconds / (end - begin)) : 1,
  }));
}

/** Seconds of a track's slices that lie in view, without counting a moment twice. */
export function secondsIn(track: Track, { from, to }: View): number {
  let [total, latest] = [0, from];
  for (let i = firstAfter(reachOf(track), from); i < track.begin.length && track.begin[i]! < to; i++) {
    const end = Math.min(to, track.begin[i]! + track.duration[i]!);
    total += Math.max(0, end - Math.max(latest, track.begin[i]!));
    latest = Math.max(latest, end);
  }
  return total / 1e6;
}

/** Where a window of the same width lies after it was moved, kept within `whole`. */
export function moved(view: View, by: number, whole: View): View {
  const width = view.to - view.from;
  const from = Math.min(Math.max(whole.from, view.from + by), Math.max(whole.from, whole.to - width));
  return { from, to: Math.min(whole.to, from + width) };
}

/** The narrowest window: a microsecond. */
const LEAST = 1;

/** A window `factor` times as wide around `at`, which stays where it is. */
export function zoomed(view: View, factor: number, at: number, whole: View): View {
  const width = Math.min(whole.to - whole.from, Math.max(LEAST, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  return moved({ from: at - share * width, to: at - share * width + width }, 0, whole);
}
