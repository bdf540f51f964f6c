/**
 * `--trace FILE`: a run on all its devices, and some micro-batches kernel by kernel, in Chrome's trace format (Perfetto
 * opens it).
 */
import {
  fits,
  layBatch,
  packTrees,
  planTrees,
  type LoadedQuestions,
  type Scorer,
  type TreeSharing,
} from '../../eval/index.js';
import { writeAtomically } from '../../system/write.js';
import type { Executor } from '../executor.js';
import { SCORE } from '../../ir/function.js';
import { scoreInputs } from './scorer.js';
import type { Timeline } from './timeline.js';

/** A slice. Times are in microseconds, as the format requires, from the start of the run's first span. */
interface Slice {
  readonly name: string;
  readonly cat: 'compute' | 'copy' | 'idle' | 'kernel';
  readonly ph: 'X';
  readonly ts: number;
  readonly dur: number;
  readonly pid: number;
  readonly tid: number;
  readonly args: Readonly<Record<string, number>>;
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

/** Number of micro-batches that are profiled: enough to see past the first, cold one. */
const TRACED_BATCHES = 3;

const MICROSECONDS = 1000;

/** The slices of one device: what it computed, what it sent, and when it was idle. */
export function timelineEvents(timeline: Timeline, devices: number): readonly TraceEvent[] {
  const start = timeline.window?.begin ?? 0;
  return Array.from({ length: devices }, (_, device): TraceEvent[] => {
    const pid = device + 1;
    const slice = (
      name: string,
      cat: Slice['cat'],
      { begin, end }: { readonly begin: number; readonly end: number },
      args: Slice['args'],
    ): Slice => ({
      name,
      cat,
      ph: 'X',
      ts: (begin - start) * MICROSECONDS,
      dur: (end - begin) * MICROSECONDS,
      pid,
      tid: TRACKS.findIndex((track) => track === cat) + 1,
      args,
    });
    const work = (['compute', 'copy'] as const).flatMap((kind) =>
      timeline
        .of(device, kind)
        .map((span) => slice(`micro-batch ${span.batch}`, kind, span, { tokens: span.tokens, rows: span.rows })),
    );
    return [
      ...namesOf(
        pid,
        `device ${device}`,
        TRACKS.map((track) => TRACK_NAMES[track]),
      ),
      ...work,
      ...timeline.gaps(device).map((gap) => slice('idle', 'idle', gap, {})),
    ];
  }).flat();
}

function namesOf(pid: number, name: string, threads: readonly string[]): TrackName[] {
  return [
    { name: 'process_name', ph: 'M', pid, args: { name } },
    { name: 'process_sort_index', ph: 'M', pid, args: { sort_index: pid } },
    ...threads.map((thread, i): TrackName => ({
      name: 'thread_name',
      ph: 'M',
      pid,
      tid: i + 1,
      args: { name: thread },
    })),
  ];
}

/**
 * Runs a few micro-batches of the question set again and times each launch. Their slices form a process of their own
 * after those of the run.
 */
export async function profileEvents(
  executor: Executor,
  loaded: LoadedQuestions,
  sharing: TreeSharing,
  scorer: Scorer,
  { timeline, pid }: { readonly timeline: Timeline; readonly pid: number },
): Promise<readonly TraceEvent[]> {
  const forest = planTrees(loaded.tokenised, sharing, scorer, true);
  const packs = packTrees(
    forest.trees.filter((tree) => fits(tree, scorer)).map((tree) => ({ ...tree, orderLength: tree.longest })),
    scorer,
  ).slice(0, TRACED_BATCHES);
  const events: TraceEvent[] = namesOf(pid, 'kernels, timed one by one after the run', ['kernels']);
  const { window } = timeline;
  let now = window === undefined ? 0 : (window.end - window.begin) * MICROSECONDS;
  for (const pack of packs) {
    const { batch } = layBatch(
      pack.items.map(({ paths }) => paths),
      sharing,
    );
    const { launches } = await executor.profile(SCORE, scoreInputs(batch, executor));
    for (const launch of launches) {
      const dur = launch.nanoseconds / 1000;
      events.push({
        name: launch.path,
        cat: 'kernel',
        ph: 'X',
        ts: now,
        dur,
        pid,
        tid: 1,
        args: { tokens: batch.tokens.length, rows: batch.row.length },
      });
      now += dur;
    }
  }
  return events;
}

export const writeTrace = (path: string, events: readonly TraceEvent[]): void =>
  writeAtomically(path, [`${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: events })}\n`]);
