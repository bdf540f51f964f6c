/** The slices of a trace as tracks: columns of numbers, so that a page holds many of them. */
import { FIGURES, type Figure, type Track, type TrackKind } from '../document/machine.js';
import type { SliceEvent } from './traceSchema.js';

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
