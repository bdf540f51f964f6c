/** The rows of a timeline, and how slices are written. */
import type { Drawn, Figure, TraceView, Track, View } from '../../document/machine.js';
import { visible } from '../parts/Elements.js';
import { ABOVE_POINTED, count, isAbove, percent, si } from '../parts/numbers.js';

export interface Row {
  /** What stands beside it; no other row has it. */
  readonly label: string;
  readonly tracks: readonly Track[];
}

const WEIGHTS = 'weights one by one';
const MAX_LABEL = 26;
const short = (text: string): string => (text.length <= MAX_LABEL ? text : `${text.slice(0, MAX_LABEL - 1)}…`);

/** What a device computed and where it waited is one row; gaps are drawn faint. */
function nameOf({ process, name, kind }: Track): string {
  const of = kind === 'kernel' ? 'kernels' : short(visible(process));
  switch (kind) {
    case 'compute':
    case 'idle':
      return of;
    case 'copy':
      return `${of} copies`;
    case 'startup':
      return name === WEIGHTS ? `${of} weights` : process === 'command' ? of : `${of} start`;
    case 'critical':
      return 'critical path';
    case 'kernel':
      return of;
    case 'other':
      return `${of} ${short(visible(name))}`;
    default:
      return kind satisfies never;
  }
}

/** Tracks of one name follow each other where they overlap: `command`, `command 2`. */
export function rowsOf({ tracks }: TraceView): readonly Row[] {
  const rows = new Map<string, Track[]>();
  const processes = [...new Set(tracks.map(({ process }) => process))];
  // How a device started stands before what it did then, and what was waited for before everything.
  const order = ({ process, kind }: Track): number =>
    kind === 'critical' ? -1 : 2 * processes.indexOf(process) + Number(kind !== 'startup');
  for (const track of tracks.toSorted((a, b) => order(a) - order(b))) {
    const name = nameOf(track);
    const joins = track.kind === 'compute' || track.kind === 'idle';
    let label = name;
    for (let i = 2; rows.has(label) && !joins; i++) label = `${name} ${i}`;
    rows.set(label, [...(rows.get(label) ?? []), track]);
  }
  return [...rows].map(([label, own]) => ({ label, tracks: own }));
}

/** From the first begin to the last end of what `isOf` picks; undefined where it picks nothing. */
export function spanOf(tracks: readonly Track[], isOf: (track: Track) => boolean = () => true): View | undefined {
  let [from, to] = [Infinity, -Infinity];
  for (const track of tracks)
    if (isOf(track))
      for (const [i, begin] of track.begin.entries()) {
        from = Math.min(from, begin);
        to = Math.max(to, begin + track.duration[i]!);
      }
  return to > from ? { from, to } : undefined;
}

/** `412 µs`, `3.05 ms`, `1.204 s`. */
export function time(microseconds: number): string {
  if (microseconds < 999.5) return `${Number(microseconds.toPrecision(3))} µs`;
  if (microseconds < 999_500) return `${(microseconds / 1e3).toPrecision(3)} ms`;
  return `${(microseconds / 1e6).toFixed(3)} s`;
}

const WORDS: Readonly<Record<Exclude<Figure, 'busySeconds' | 'batches'>, (value: number) => string>> = {
  tokens: (value) => `${count(value)} tokens`,
  rows: (value) => `${count(value)} rows`,
  flops: (value) => si(value, 'FLOP'),
  bytes: (value) => si(value, 'B'),
  shareOfPeak: (value) => `${percent(value, 1)} of peak${isAbove(value, 1) ? `\n${ABOVE_POINTED}` : ''}`,
  batch: (value) => `call ${value}`,
};

/** The tooltip of a rectangle. */
export function wordsOf(track: Track, names: readonly string[], { first, slices, busy }: Drawn): string {
  const name = visible(names[track.label[first]!] ?? '');
  if (slices > 1) return `${name} and ${count(slices - 1)} more\n${percent(busy, 0)} of the time`;
  const figures = Object.entries(WORDS).flatMap(([figure, words]) => {
    const value = track.figures[figure as Figure]?.[first];
    return value === undefined || value === null ? [] : [words(value)];
  });
  return [name, `${time(track.duration[first]!)} from ${time(track.begin[first]!)} on`, ...figures].join('\n');
}
