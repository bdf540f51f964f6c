/** A run as slices of Chrome's trace format: what each device did, and how the command and its devices started. */
import type { WorkSize } from '../autotune/work.js';
import { criticalPath } from '../driver/criticalPath.js';
import type { PhaseSpan } from '../driver/phases.js';
import type { DeviceUse } from '../evaluate/resultTypes.js';
import type { MicroBatch } from '../evaluate/scorer.js';
import type { DeviceSpan } from '../runtime/call.js';
import type { CallWork } from './callWork.js';

type Category = 'compute' | 'copy' | 'idle' | 'kernel' | 'startup' | 'critical';

/** A slice. Times are in microseconds, as the format requires, from the origin of the trace. */
export interface Slice {
  readonly name: string;
  readonly cat: Category;
  readonly ph: 'X';
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, string | number>>;
}

/** Names a track. In this format a process is a device and a thread is a kind of work. */
interface TrackName {
  readonly name: 'process_name' | 'thread_name' | 'process_sort_index';
  readonly ph: 'M';
  readonly pid: number;
  readonly tid?: number;
  readonly args: Readonly<Record<string, string | number>>;
}

/** One end of an arrow between two slices: `s` lies in the one that was waited for, `f` in the one that waited. */
interface FlowEnd {
  readonly name: string;
  readonly cat: Category;
  readonly ph: 's' | 'f';
  /** Both ends have it. */
  readonly id: number;
  /** An end belongs to the slice around it, and not to the next one. */
  readonly bp?: 'e';
  readonly ts: number;
  readonly pid: number;
  readonly tid: number;
}

export type TraceEvent = Slice | FlowEnd | TrackName;

/** The tracks of a device, in display order. */
const TRACKS = ['compute', 'copy', 'idle'] as const;
const TRACK_NAMES: Readonly<Record<(typeof TRACKS)[number], string>> = {
  compute: 'compute',
  copy: 'copies to the next stage',
  idle: 'gaps',
};
/** Tracks of a device's start follow those. */
const FIRST_STARTUP = TRACKS.length + 1;

/** Slices of micro-batches in a trace: tens of megabytes. Neighbours of a longer run share one. */
const MAX_SLICES = 60_000;

const MICROSECONDS = 1000;

/** Digits that a time in microseconds and a share need. */
const rounded = (value: number, digits = 3): number => Number(value.toFixed(digits));

const timesOf = ({ begin, end }: Interval, origin: number): Pick<Slice, 'ts' | 'dur'> => ({
  ts: rounded((begin - origin) * MICROSECONDS),
  dur: rounded((end - begin) * MICROSECONDS),
});

/** What a slice says of its work; `seconds` is what it took. */
export const workArgs = ({ flops, bytes, minSeconds }: CallWork, seconds: number): Slice['args'] => ({
  flops,
  bytes: Math.round(bytes),
  ...(seconds > 0 ? { shareOfPeak: rounded(minSeconds / seconds, 4) } : {}),
});

/** The work of a span's stage in its call; undefined where it is not known. */
export type WorkOf = (span: BatchSpan) => CallWork | undefined;

/** Spans that follow each other, `size` at a time. */
function* groupsOf(spans: readonly BatchSpan[], size: number): Generator<readonly BatchSpan[]> {
  for (let i = 0; i < spans.length; i += size) yield spans.slice(i, i + size);
}

function batchSlice(group: readonly BatchSpan[], origin: number, pid: number, workOf: WorkOf): Slice {
  const [first] = group;
  const { kind, batch } = first!;
  const sum = (of: (span: BatchSpan) => number): number => group.reduce((total, span) => total + of(span), 0);
  const busy = united(group).reduce((total, { begin, end }) => total + end - begin, 0);
  const works = kind === 'compute' ? group.map(workOf) : [undefined];
  const known = works.filter((work) => work !== undefined);
  const total = (of: (work: CallWork) => number): number => known.reduce((all, work) => all + of(work), 0);
  const work: CallWork = {
    flops: total(({ flops }) => flops),
    bytes: total(({ bytes }) => bytes),
    minSeconds: total(({ minSeconds }) => minSeconds),
  };
  const numbers = group.map((span) => span.batch);
  return {
    name: group.length === 1 ? `micro-batch ${batch}` : `micro-batches ${Math.min(...numbers)}–${Math.max(...numbers)}`,
    cat: kind,
    ph: 'X',
    ...timesOf({ begin: first!.begin, end: Math.max(...group.map(({ end }) => end)) }, origin),
    pid,
    tid: TRACKS.indexOf(kind) + 1,
    args: {
      tokens: sum(({ tokens }) => tokens),
      rows: sum(({ rows }) => rows),
      ...(group.length === 1 ? {} : { batches: group.length, busySeconds: rounded(busy / 1000, 6) }),
      ...(known.length < works.length ? {} : workArgs(work, busy / 1000)),
    },
  };
}

/** `origin`: milliseconds since the epoch at which the trace begins; by default when the first device did. */
export interface TimelineOptions {
  readonly origin?: number;
  readonly workOf?: WorkOf;
  readonly maxSlices?: number;
}

/** The slices of each device: what it computed, what it sent, and when it was idle. */
export function timelineEvents(
  timeline: Timeline,
  devices: number,
  { origin, workOf = () => undefined, maxSlices = MAX_SLICES }: TimelineOptions = {},
): readonly (Slice | TrackName)[] {
  const { window } = timeline;
  const start = origin ?? window?.begin ?? 0;
  const size = Math.ceil(timeline.spans.length / maxSlices) || 1;
  return Array.from({ length: devices }, (_, device): (Slice | TrackName)[] => {
    const pid = device + 1;
    const work = (['compute', 'copy'] as const).flatMap((kind) =>
      [...groupsOf(timeline.of(device, kind), size)].map((group) => batchSlice(group, start, pid, workOf)),
    );
    // Gaps of a group are in its busy seconds.
    const gaps = size === 1 ? timeline.gaps(device) : [];
    return [
      ...namesOf(
        pid,
        `device ${device}`,
        TRACKS.map((track) => TRACK_NAMES[track]),
      ),
      ...work,
      ...gaps.map((gap): Slice => {
        const place = { pid, tid: TRACKS.indexOf('idle') + 1 };
        return { name: 'idle', cat: 'idle', ph: 'X', ...timesOf(gap, start), ...place, args: {} };
      }),
    ];
  }).flat();
}

export function namesOf(pid: number, name: string, threads: readonly string[], sort = pid): TrackName[] {
  return [
    { name: 'process_name', ph: 'M', pid, args: { name } },
    { name: 'process_sort_index', ph: 'M', pid, args: { sort_index: sort } },
    ...threadNames(pid, threads, 1),
  ];
}

const threadNames = (pid: number, threads: readonly string[], first: number): TrackName[] =>
  threads.map((thread, i) => ({ name: 'thread_name', ph: 'M', pid, tid: first + i, args: { name: thread } }));

/** Spans so that those of one lane follow each other: a track of the format cannot show two that overlap. */
function lanesOf(spans: readonly PhaseSpan[]): readonly (readonly PhaseSpan[])[] {
  const lanes: PhaseSpan[][] = [];
  for (const span of [...spans].sort((a, b) => a.begin - b.begin || b.end - a.end)) {
    const free = lanes.find((lane) => lane.at(-1)!.end <= span.begin);
    if (free === undefined) lanes.push([span]);
    else free.push(span);
  }
  return lanes;
}

const STARTUP_NAMES = ['start-up', 'start-up, at the same time'];

/** Where phases are shown: the process of each, and the track. */
type Places = Map<PhaseSpan, { readonly pid: number; readonly tid: number }>;

function startupSlices(
  spans: readonly PhaseSpan[],
  { origin, pid, first, places }: { origin: number; pid: number; first: number; places: Places },
): TraceEvent[] {
  const parts = lanesOf(spans.filter(({ isPart }) => isPart === true));
  const phases = lanesOf(spans.filter(({ isPart }) => isPart !== true));
  const names = [...phases.map((_, i) => STARTUP_NAMES[Math.min(i, 1)]!), ...parts.map(() => 'weights one by one')];
  const slices = [...phases, ...parts].flatMap((lane, i) =>
    lane.map((span): Slice => {
      const place = { pid, tid: first + i };
      places.set(span, place);
      const args = span.bytes === undefined ? {} : { bytes: span.bytes };
      return { name: span.name, cat: 'startup', ph: 'X', ...timesOf(span, origin), ...place, args };
    }),
  );
  return [...threadNames(pid, names, first), ...slices];
}

const CRITICAL = 'critical path';
const UNKNOWN = 'not accounted';
/** Arrows end this far within slices: at a border, a viewer might take the neighbour. At most half a slice. */
const WITHIN = 1;

/** The critical path as a track of its own, and as arrows between the phases that it consists of. */
function pathEvents(spans: readonly PhaseSpan[], origin: number, pid: number, places: Places): readonly TraceEvent[] {
  const steps = criticalPath(spans, origin);
  if (steps.length === 0) return [];
  const tid = 1;
  const slices = steps.map(({ span, begin, end }): Slice => {
    const name = span?.name ?? UNKNOWN;
    const args: Slice['args'] = span?.replica === undefined ? {} : { replica: span.replica };
    return { name, cat: 'critical', ph: 'X', ...timesOf({ begin, end }, origin), pid, tid, args };
  });
  const known = steps.flatMap(({ span, begin, end }) => {
    const place = [...places].find(
      ([each]) =>
        each.isPart !== true &&
        each.name === span?.name &&
        each.replica === span.replica &&
        each.begin <= begin &&
        each.end >= end,
    )?.[1];
    return place === undefined ? [] : [{ place, ...timesOf({ begin, end }, origin) }];
  });
  const arrows = known.slice(1).flatMap((to, i): readonly FlowEnd[] => {
    const from = known[i]!;
    const about = { name: CRITICAL, cat: 'critical', id: i + 1 } as const;
    const within = (dur: number): number => Math.min(WITHIN, dur / 2);
    return [
      { ...about, ph: 's', ts: rounded(from.ts + from.dur - within(from.dur)), ...from.place },
      { ...about, ph: 'f', bp: 'e', ts: rounded(to.ts + within(to.dur)), ...to.place },
    ];
  });
  return [...threadNames(pid, [CRITICAL], tid), ...slices, ...arrows];
}

/**
 * How the command started, in a process of its own before all devices, and how each replica did, on its first device.
 * The first track of the command is what the first answer waited for.
 */
export function startupEvents(
  phases: readonly PhaseSpan[],
  { origin, pid, stages }: { readonly origin: number; readonly pid: number; readonly stages: number },
): readonly TraceEvent[] {
  const own = phases.filter(({ replica }) => replica === undefined);
  const replicas = new Set(phases.flatMap(({ replica }) => (replica === undefined ? [] : [replica])));
  const places: Places = new Map();
  return [
    ...namesOf(pid, 'command', [], 0),
    // Behind the track of the critical path.
    ...startupSlices(own, { origin, pid, first: 2, places }),
    ...[...replicas].flatMap((of) =>
      startupSlices(
        phases.filter(({ replica }) => replica === of),
        { origin, pid: of * stages + 1, first: FIRST_STARTUP, places },
      ),
    ),
    ...pathEvents(phases, origin, pid, places),
  ];
}

/** The call of a function that computed a micro-batch: what its work is counted from. */
export interface CallSize {
  readonly function: string;
  readonly size: WorkSize;
}

/** A span and the micro-batch that it belongs to. */
export interface BatchSpan extends DeviceSpan {
  /** Micro-batches numbered from 0 in the order of calls. */
  readonly batch: number;
  readonly tokens: number;
  readonly rows: number;
  /** Absent where nobody knows the function's interface. */
  readonly call?: CallSize | undefined;
}

export interface Interval {
  readonly begin: number;
  readonly end: number;
}

/** Sorted intervals, with overlapping and touching ones joined. */
export function united(intervals: readonly Interval[]): readonly Interval[] {
  const joined: { begin: number; end: number }[] = [];
  for (const { begin, end } of [...intervals].sort((a, b) => a.begin - b.begin)) {
    const last = joined.at(-1);
    if (last !== undefined && begin <= last.end) last.end = Math.max(last.end, end);
    else joined.push({ begin, end });
  }
  return joined;
}

const lengthOf = (intervals: readonly Interval[]): number =>
  united(intervals).reduce((sum, { begin, end }) => sum + end - begin, 0);

export class Timeline {
  private readonly list: BatchSpan[] = [];

  /** Devices whose executors report no spans leave no trace. */
  add(
    batch: number,
    { tokens, row }: Pick<MicroBatch, 'tokens' | 'row'>,
    spans: readonly DeviceSpan[] = [],
    call?: CallSize,
  ): void {
    for (const span of spans) this.list.push({ ...span, batch, tokens: tokens.length, rows: row.length, call });
  }

  get spans(): readonly BatchSpan[] {
    return this.list;
  }

  /** From the first start to the last end on any device; undefined if nothing was recorded. */
  get window(): Interval | undefined {
    if (this.list.length === 0) return undefined;
    return this.list.reduce(
      (all, { begin, end }) => ({ begin: Math.min(all.begin, begin), end: Math.max(all.end, end) }),
      { begin: Infinity, end: -Infinity },
    );
  }

  /** The spans of one kind on one device. */
  of(device: number, kind: DeviceSpan['kind']): readonly BatchSpan[] {
    return this.list.filter((span) => span.device === device && span.kind === kind);
  }

  /** The parts of the window in which a device computes nothing. */
  gaps(device: number): readonly Interval[] {
    const { window } = this;
    if (window === undefined) return [];
    const gaps: Interval[] = [];
    let at = window.begin;
    for (const { begin, end } of united(this.of(device, 'compute'))) {
      if (begin > at) gaps.push({ begin: at, end: begin });
      at = end;
    }
    if (window.end > at) gaps.push({ begin: at, end: window.end });
    return gaps;
  }

  /** The busy shares of each of `devices`; undefined if nothing was recorded. */
  use(devices: number): readonly DeviceUse[] | undefined {
    const { window } = this;
    if (window === undefined) return undefined;
    return Array.from({ length: devices }, (_, device): DeviceUse => {
      const compute = lengthOf(this.of(device, 'compute'));
      return {
        device,
        computeSeconds: compute / 1000,
        copySeconds: lengthOf(this.of(device, 'copy')) / 1000,
        busyShare: window.end > window.begin ? compute / (window.end - window.begin) : 0,
      };
    });
  }
}
