/** A run as slices of Chrome's trace format: what each device did, and how the command and its devices started. */
import type { PhaseSpan } from '../phases.js';
import { united, type BatchSpan, type Interval, type Timeline } from './timeline.js';
import type { CallWork } from './callWork.js';

type Category = 'compute' | 'copy' | 'idle' | 'kernel' | 'startup';

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

export type TraceEvent = Slice | TrackName;

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
const MOST_SLICES = 60_000;

const MICROSECONDS = 1000;

/** Digits that a time in microseconds and a share need. */
const rounded = (value: number, digits = 3): number => Number(value.toFixed(digits));

const timesOf = ({ begin, end }: Interval, origin: number): Pick<Slice, 'ts' | 'dur'> => ({
  ts: rounded((begin - origin) * MICROSECONDS),
  dur: rounded((end - begin) * MICROSECONDS),
});

/** What a slice says of its work; `seconds` is what it took. */
export const workArgs = ({ flops, bytes, leastSeconds }: CallWork, seconds: number): Slice['args'] => ({
  flops,
  bytes: Math.round(bytes),
  ...(seconds > 0 ? { shareOfPeak: rounded(leastSeconds / seconds, 4) } : {}),
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
    leastSeconds: total(({ leastSeconds }) => leastSeconds),
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
  readonly mostSlices?: number;
}

/** The slices of each device: what it computed, what it sent, and when it was idle. */
export function timelineEvents(
  timeline: Timeline,
  devices: number,
  { origin, workOf = () => undefined, mostSlices = MOST_SLICES }: TimelineOptions = {},
): readonly TraceEvent[] {
  const { window } = timeline;
  const start = origin ?? window?.begin ?? 0;
  const size = Math.ceil(timeline.spans.length / mostSlices) || 1;
  return Array.from({ length: devices }, (_, device): TraceEvent[] => {
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

function startupSlices(spans: readonly PhaseSpan[], origin: number, pid: number, first: number): TraceEvent[] {
  const parts = lanesOf(spans.filter(({ isPart }) => isPart === true));
  const phases = lanesOf(spans.filter(({ isPart }) => isPart !== true));
  const names = [...phases.map((_, i) => STARTUP_NAMES[Math.min(i, 1)]!), ...parts.map(() => 'weights one by one')];
  const slices = [...phases, ...parts].flatMap((lane, i) =>
    lane.map((span): Slice => ({
      ...{ name: span.name, cat: 'startup', ph: 'X' },
      ...timesOf(span, origin),
      ...{ pid, tid: first + i, args: span.bytes === undefined ? {} : { bytes: span.bytes } },
    })),
  );
  return [...threadNames(pid, names, first), ...slices];
}

/**
 * How the command started, in a process of its own before all devices, and how each replica did, on its first device.
 */
export function startupEvents(
  phases: readonly PhaseSpan[],
  { origin, pid, stages }: { readonly origin: number; readonly pid: number; readonly stages: number },
): readonly TraceEvent[] {
  const own = phases.filter(({ replica }) => replica === undefined);
  const replicas = new Set(phases.flatMap(({ replica }) => (replica === undefined ? [] : [replica])));
  return [
    ...namesOf(pid, 'command', [], 0),
    ...startupSlices(own, origin, pid, 1),
    ...[...replicas].flatMap((of) =>
      startupSlices(
        phases.filter(({ replica }) => replica === of),
        origin,
        of * stages + 1,
        FIRST_STARTUP,
      ),
    ),
  ];
}
