/**
 * Traces of runs for the page: the file of `run --trace`, and any other in Chrome's format as far as its slices go.
 * Files are untrusted: sizes, depth and every field are checked; an invalid slice is left out and counted.
 */
import { resolve } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { isRecord, parseJson } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { counted } from '../../system/text.js';
import {
  type Figure,
  FIGURES,
  type MachineDocument,
  TRACE_FORMAT,
  type TraceView,
  type Track,
  type TrackKind,
} from '../document/machine.js';
import { shortNames } from './shortNames.js';
import { startSchema } from './start.js';
import { devicesOf, kernelUses, loadsOf, phasesOf } from './traceFigures.js';

const MAX_TRACE_BYTES = 1 << 28;
const MAX_SLICES = 400_000;
const HINT = 'give the file of a run: tilewright run … --trace FILE';

export interface CollectedTraces {
  readonly document: MachineDocument;
  /** What was left out, a line for each file with something amiss. */
  readonly notes: readonly string[];
}

interface Events {
  readonly slices: readonly SliceEvent[];
  readonly names: TrackNames;
  readonly bad: number;
}

const keyOf = (...parts: readonly (string | number)[]): string => JSON.stringify(parts);

function eventsOf(list: readonly unknown[]): Events {
  const slices: SliceEvent[] = [];
  const names = {
    process: new Map<string, string>(),
    thread: new Map<string, string>(),
    sort: new Map<string, number>(),
  };
  let bad = 0;
  for (const event of list) {
    if (!isRecord(event)) {
      bad++;
      continue;
    }
    if (event['ph'] === 'M') {
      const { data } = nameSchema.safeParse(event);
      if (data === undefined) continue;
      const { pid, tid, args } = data;
      if (data.name === 'process_sort_index') names.sort.set(keyOf(pid), args.sort_index ?? 0);
      else if (args.name !== undefined)
        if (data.name === 'process_name') names.process.set(keyOf(pid), args.name);
        else names.thread.set(keyOf(pid, tid), args.name);
      continue;
    }
    // Other phases, as counters and flows of other programs, are no slices.
    if (event['ph'] !== 'X') continue;
    const { data } = sliceSchema.safeParse(event);
    if (data === undefined) bad++;
    else slices.push(data);
  }
  return { slices, names, bad };
}

/** `file`: the name of the file on the page. Throws UserError for a file that is no trace. */
function readTrace(path: string, file: string): { readonly view: TraceView; readonly notes: readonly string[] } {
  const content = parseJson(decodeUtf8(readBounded(path, MAX_TRACE_BYTES, HINT), path), path, HINT);
  const list = Array.isArray(content) ? (content as unknown[]) : isRecord(content) ? content['traceEvents'] : undefined;
  if (!Array.isArray(list)) throw new UserError(`${path}: is no trace: it has no traceEvents`, HINT);
  if (list.length > MAX_SLICES)
    throw new UserError(`${path}: ${list.length} events are more than a page can show (${MAX_SLICES})`, HINT);
  const { slices, names, bad } = eventsOf(list);
  if (slices.length === 0) throw new UserError(`${path}: the trace has no slices`, HINT);
  const said = isRecord(content) && isRecord(content['otherData']) ? content['otherData']['tilewright'] : undefined;
  const facts = factsSchema.safeParse(said);
  const notes: string[] = [];
  if (bad > 0) notes.push(`${path}: ${counted(bad, 'event')} left out: not a slice with a name and a time`);
  if (said === undefined) notes.push(`${path}: says nothing of peaks and memory: an earlier version wrote it`);
  else if (!facts.success) notes.push(`${path}: what it says of peaks and memory cannot be read, and is left out`);
  const { labels, tracks } = tracksOf(slices, names);
  const loads = loadsOf(tracks, labels);
  const view: TraceView = {
    file,
    ...(facts.data === undefined ? {} : factsOf(facts.data)),
    names: labels,
    tracks,
    devices: devicesOf(tracks),
    phases: phasesOf(tracks, labels),
    ...defined({ loads }),
    kernels: kernelUses(tracks, labels, facts.data?.kernels ?? []),
  };
  return { view, notes };
}

function factsOf(facts: ReturnType<typeof factsSchema.parse>): Pick<TraceView, 'about' | 'peaks' | 'memory' | 'start'> {
  const { version, model, isa, arithmetic, replicas, stages, peaks, kernels, memory, start } = facts;
  const { weights, ...rest } = memory;
  return {
    about: { version, model: shortNames([model])[0]!, isa, arithmetic, replicas, stages },
    peaks,
    ...defined({ start }),
    memory: {
      ...rest,
      ...defined({ weights }),
      launches: kernels.map(({ path }) => path),
    },
  };
}

/** Throws UserError for a file that cannot be read or is no trace. */
export function collectTraces(paths: readonly string[]): CollectedTraces {
  const names = shortNames(paths.map((path) => resolve(path)));
  const read = paths.map((path, i) => readTrace(path, names[i]!));
  return { document: { traces: read.map(({ view }) => view) }, notes: read.flatMap(({ notes }) => notes) };
}

/** What a trace file may say, with bounds on every value. Chrome's format, and what `run --trace` adds to it. */

/** Names are cut, not refused. */
const MAX_NAME = 200;
const traceName = z.string().transform((text) => text.slice(0, MAX_NAME));

const number = z.number().refine(Number.isFinite);
const time = number.min(-1e15).max(1e15);
const amount = number.min(0).max(1e24);
const id = z.union([z.int(), z.string().max(MAX_NAME)]);

export const sliceSchema = z.object({
  name: traceName,
  cat: z.string().max(MAX_NAME).optional(),
  ph: z.literal('X'),
  ts: time,
  dur: time.min(0).default(0),
  pid: id.default(0),
  tid: id.default(0),
  args: z.record(z.string(), z.unknown()).default({}),
});
export type SliceEvent = z.infer<typeof sliceSchema>;

export const nameSchema = z.object({
  name: z.enum(['process_name', 'thread_name', 'process_sort_index']),
  ph: z.literal('M'),
  pid: id.default(0),
  tid: id.default(0),
  args: z.object({ name: traceName.optional(), sort_index: number.optional() }),
});

const peak = z.object({ perSecond: number.positive().max(1e20), source: z.enum(['measured', 'nominal']) });
const launch = z.int().min(0).max(1_000_000);
const MAX_ENTRIES = 50_000;

/** `otherData.tilewright` of a trace. */
export const factsSchema = z.object({
  format: z.literal(TRACE_FORMAT),
  version: traceName,
  model: traceName,
  isa: traceName,
  arithmetic: traceName,
  replicas: z.int().min(1).max(10_000),
  stages: z.int().min(1).max(10_000),
  peaks: z.object({ arithmetic: peak, memory: peak }),
  kernels: z.array(z.object({ path: traceName, anchor: traceName, signature: traceName })).max(MAX_ENTRIES),
  memory: z.object({
    arenaBytes: amount,
    buffers: z
      .array(z.object({ name: traceName, offset: amount, bytes: amount, first: launch, last: launch }))
      .max(MAX_ENTRIES),
    states: z.array(z.object({ name: traceName, bytes: amount })).max(MAX_ENTRIES),
    weights: z.object({ packedBytes: amount, mappedBytes: amount }).exactOptional(),
  }),
  // The rest is of use without it.
  start: startSchema.optional().catch(undefined),
});

/** The slices of a trace as tracks: columns of numbers, so that a page holds many of them. */

/** Names of processes and threads, by keys of their numbers. */
export interface TrackNames {
  readonly process: ReadonlyMap<string, string>;
  readonly thread: ReadonlyMap<string, string>;
  readonly sort: ReadonlyMap<string, number>;
}

/** Tracks of a page; slices of others are left out. */
const MAX_TRACKS = 600;

const KINDS: Readonly<Record<string, TrackKind>> = {
  startup: 'startup',
  critical: 'critical',
  compute: 'compute',
  copy: 'copy',
  idle: 'idle',
  kernel: 'kernel',
};

const figureOf = (args: SliceEvent['args'], name: Figure): number | null => {
  const value = args[name];
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
};

/** Times need no more digits than a tenth of a microsecond. */
const rounded = (microseconds: number): number => Math.round(10 * microseconds) / 10;

export function tracksOf(
  slices: readonly SliceEvent[],
  { process, thread, sort }: TrackNames,
): { readonly labels: readonly string[]; readonly tracks: readonly Track[] } {
  const labels: string[] = [];
  const numbers = new Map<string, number>();
  const numberOf = (label: string): number => {
    let number = numbers.get(label);
    if (number === undefined) {
      number = labels.push(label) - 1;
      numbers.set(label, number);
    }
    return number;
  };
  const groups = new Map<string, SliceEvent[]>();
  for (const slice of slices) {
    // A thread of one kind is one track.
    const key = JSON.stringify([slice.pid, slice.tid, KINDS[slice.cat ?? ''] ?? 'other']);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [slice]);
    else group.push(slice);
  }
  const order = (pid: string | number): number => sort.get(JSON.stringify([pid])) ?? Number(pid);
  const tracks = [...groups.values()]
    .slice(0, MAX_TRACKS)
    .sort(([a], [b]) => order(a!.pid) - order(b!.pid) || (a!.tid < b!.tid ? -1 : a!.tid > b!.tid ? 1 : 0))
    .map((group): Track => {
      const sorted = group.sort((a, b) => a.ts - b.ts);
      const { pid, tid, cat } = sorted[0]!;
      const columns = FIGURES.flatMap((name): [Figure, (number | null)[]][] => {
        const column = sorted.map(({ args }) => figureOf(args, name));
        return column.some((value) => value !== null) ? [[name, column]] : [];
      });
      return {
        process: process.get(JSON.stringify([pid])) ?? `process ${pid}`,
        name: thread.get(JSON.stringify([pid, tid])) ?? `thread ${tid}`,
        kind: KINDS[cat ?? ''] ?? 'other',
        begin: sorted.map(({ ts }) => rounded(ts)),
        duration: sorted.map(({ dur }) => rounded(dur)),
        label: sorted.map(({ name }) => numberOf(name)),
        figures: Object.fromEntries(columns),
      };
    });
  return { labels, tracks };
}
