/**
 * Traces of runs for the page: the file of `run --trace`, and any other in Chrome's format as far as its slices go.
 * Files are untrusted: sizes, depth and every field are checked; an invalid slice is left out and counted.
 */
import { resolve } from 'node:path';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { isRecord, parseJson } from '../../system/json.js';
import { decodeUtf8, readBounded } from '../../system/read.js';
import { counted } from '../../system/text.js';
import type { MachineDocument, TraceView } from '../document/machine.js';
import { shortNames } from './shortNames.js';
import { devicesOf, kernelUses, loadsOf, phasesOf } from './traceFigures.js';
import { factsSchema, nameSchema, type SliceEvent, sliceSchema } from './traceSchema.js';
import { type TrackNames, tracksOf } from './traceTracks.js';

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
