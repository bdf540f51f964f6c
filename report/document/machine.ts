/** The section on machines: what traces of runs say. Seconds are since the command began. */
import type { StartUp } from '../../evaluate/startUp.js';

/** What a track's slices are: those of others are shown as they are. */
const TRACK_KINDS = ['startup', 'critical', 'compute', 'copy', 'idle', 'kernel', 'other'] as const;
export type TrackKind = (typeof TRACK_KINDS)[number];

/** Slices one behind another, as columns: entry i of each is slice i. In order of their begin. */
export interface Track {
  /** `device 0`, `command`. */
  readonly process: string;
  readonly name: string;
  readonly kind: TrackKind;
  /** Microseconds. */
  readonly begin: readonly number[];
  readonly duration: readonly number[];
  /** Index into the trace's names. */
  readonly label: readonly number[];
  /** Columns of figures, where any slice of the track has one. */
  readonly figures: Readonly<Partial<Record<Figure, readonly (number | null)[]>>>;
}

export const FIGURES = ['tokens', 'rows', 'flops', 'bytes', 'shareOfPeak', 'batch', 'busySeconds', 'batches'] as const;
export type Figure = (typeof FIGURES)[number];

/** A device's whole run. */
export interface DeviceUse {
  readonly process: string;
  readonly slices: number;
  readonly computeSeconds: number;
  readonly copySeconds: number;
  readonly idleSeconds: number;
  readonly tokens: number;
  readonly flops: number | null;
}

/** Kernels that differ in their layer alone, over all launches that were timed one by one. */
export interface KernelUse {
  /** `layers.*.ffn.down`. */
  readonly path: string;
  readonly anchor: string;
  readonly launches: number;
  readonly seconds: number;
  /** Null where the trace says nothing of its work. */
  readonly flops: number | null;
  readonly bytes: number | null;
  /** Weighted by time. */
  readonly shareOfPeak: number | null;
}

export interface Phase {
  readonly process: string;
  readonly name: string;
  /** Seconds. */
  readonly begin: number;
  readonly end: number;
}

/** Weights that were loaded one by one: how many, and those that took longest. */
export interface WeightLoads {
  readonly count: number;
  readonly bytes: number;
  readonly seconds: number;
  readonly longest: readonly { readonly name: string; readonly seconds: number; readonly bytes: number }[];
}

export interface TraceView {
  /** The file's name. */
  readonly file: string;
  /** Absent for traces of earlier versions and of other programs. */
  readonly about?: Pick<TraceFacts, 'version' | 'model' | 'isa' | 'arithmetic' | 'replicas' | 'stages'>;
  readonly peaks?: TraceFacts['peaks'];
  readonly names: readonly string[];
  readonly tracks: readonly Track[];
  readonly devices: readonly DeviceUse[];
  readonly phases: readonly Phase[];
  /** What the first answer waited for; absent for traces of earlier versions. */
  readonly start?: StartUp;
  readonly loads?: WeightLoads;
  readonly kernels: readonly KernelUse[];
  /** With the paths of its launches. */
  readonly memory?: TraceMemory & { readonly launches: readonly string[] };
}

export interface MachineDocument {
  readonly traces: readonly TraceView[];
}

/**
 * What a trace of `run --trace` says beside its events, under `otherData.tilewright`: driver/ writes it, the report
 * reads it.
 */

/** Incremented when the meaning of a field changes. */
export const TRACE_FORMAT = 1;

/** What a device reaches at most, per second. `measured`: on this machine; `nominal`: known of its kind. */
export interface TracePeak {
  readonly perSecond: number;
  readonly source: 'measured' | 'nominal';
}

/** A kernel of the function that scores, in the order of launches. */
export interface TraceKernel {
  readonly path: string;
  readonly anchor: string;
  /** Equal for kernels of one text. */
  readonly signature: string;
}

/** A buffer of the arena, and the launches that need it, first and last inclusive. */
export interface TraceBuffer {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

export interface TraceMemory {
  readonly arenaBytes: number;
  readonly buffers: readonly TraceBuffer[];
  /** Keys, values and what else outlives a call. */
  readonly states: readonly { readonly name: string; readonly bytes: number }[];
  readonly weights?: { readonly packedBytes: number; readonly mappedBytes: number };
}

export interface TraceFacts {
  readonly format: typeof TRACE_FORMAT;
  readonly version: string;
  /** The model's name in results. */
  readonly model: string;
  /** Instruction set or architecture, and the type that is multiplied. */
  readonly isa: string;
  readonly arithmetic: string;
  readonly replicas: number;
  readonly stages: number;
  /** Of one device. */
  readonly peaks: { readonly arithmetic: TracePeak; readonly memory: TracePeak };
  readonly kernels: readonly TraceKernel[];
  readonly memory: TraceMemory;
  /** Absent where nothing was computed. */
  readonly start?: StartUp;
}

/** What a timeline draws of its tracks: slices that are in view, those too narrow to be seen joined to one. */

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
