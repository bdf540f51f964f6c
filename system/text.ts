/** Formats numbers, times and tables for people. All output uses these functions. */
import { at } from './at.js';
import { setImmediate } from 'node:timers/promises';

/** `1,757,173` */
export const count = (value: number): string => Math.round(value).toLocaleString('en-US');

/** `1 question`, `1,757 questions` */
export const counted = (value: number, noun: string, nouns = `${noun}s`): string =>
  `${count(value)} ${value === 1 ? noun : nouns}`;

const BYTES = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

/** Three digits, without zeros at the end of a fraction: `1.25`, `14.3`, `256`, `3`. */
const threeDigits = (value: number): string =>
  value.toLocaleString('en-US', { maximumFractionDigits: value < 9.995 ? 2 : value < 99.95 ? 1 : 0 });

/** `14.3 MiB`, `256 GiB`, `1 byte` */
export function bytes(value: number): string {
  let unit = 0;
  let scaled = value;
  while (scaled >= 1023.5 && unit < BYTES.length - 1) {
    scaled /= 1024;
    unit++;
  }
  if (unit === 0) return value === 1 ? '1 byte' : `${count(value)} bytes`;
  return `${threeDigits(scaled)} ${at(BYTES, unit)}`;
}

const POWERS = ['', 'k', 'M', 'G', 'T', 'P'] as const;

/** `13.4 GFLOP`: powers of a thousand, three digits. */
export function si(value: number, unit: string): string {
  let power = 0;
  let scaled = value;
  while (scaled >= 999.5 && power < POWERS.length - 1) {
    scaled /= 1000;
    power++;
  }
  return `${threeDigits(scaled)} ${at(POWERS, power)}${unit}`;
}

const two = (value: number): string => String(value).padStart(2, '0');

/** Time left or passed: `0:41`, `12:05`, `1:02:03`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** How long something took: `0.34 s`, `12.5 s`, `2 min 49 s`, `1 h 5 min`. */
export function duration(seconds: number): string {
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return join(Math.floor(whole / 60), 'min', whole % 60, 's');
  const minutes = Math.round(seconds / 60);
  return join(Math.floor(minutes / 60), 'h', minutes % 60, 'min');
}

/** A smaller unit of 0 is left out. */
const join = (large: number, unit: string, small: number, smallUnit: string): string =>
  `${large} ${unit}${small === 0 ? '' : ` ${small} ${smallUnit}`}`;

export const percent = (share: number, digits = 1): string => `${(100 * share).toFixed(digits)} %`;

/**
 * Pads columns to their widest cell, with two spaces between them; the last column is not padded. `right` lists the
 * columns that are aligned right.
 */
export function textTable(rows: readonly (readonly string[])[], right: ReadonlySet<number> = new Set()): string[] {
  const columns = Math.max(0, ...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(0, ...rows.map((row) => row[i]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, i) =>
        right.has(i) ? cell.padStart(at(widths, i)) : i === row.length - 1 ? cell : cell.padEnd(at(widths, i)),
      )
      .join('  ')
      .trimEnd(),
  );
}

/** At most `width` characters; a cut is marked. */
export const cut = (text: string, width: number): string =>
  text.length <= width ? text : width < 2 ? text.slice(0, Math.max(0, width)) : `${text.slice(0, width - 1)}…`;

/** `memory: 25.1 MiB (weights 16.3 MiB, activations 7.15 MiB)`: a sum of bytes with its parts, but for empty ones. */
export const partsLine = (name: string, parts: readonly (readonly [name: string, sizeBytes: number])[]): string =>
  `${name}: ${bytes(parts.reduce((sum, [, size]) => sum + size, 0))} (` +
  `${parts.flatMap(([part, size]) => (size === 0 ? [] : [`${part} ${bytes(size)}`])).join(', ')})`;

// The word that was most likely meant.

const MAX_LETTERS = 100;

/** Edits (insert, delete, replace, swap neighbours) that lead from `a` to `b`. */
function distance(a: string, b: string): number {
  const width = b.length + 1;
  const edits: number[] = [];
  const after = (i: number, j: number): number => at(edits, i * width + j);
  for (let i = 0; i <= a.length; i++)
    for (let j = 0; j <= b.length; j++) {
      if (i === 0 || j === 0) {
        edits.push(i + j);
        continue;
      }
      const replaced = after(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const best = Math.min(replaced, after(i - 1, j) + 1, after(i, j - 1) + 1);
      const areSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      edits.push(areSwapped ? Math.min(best, after(i - 2, j - 2) + 1) : best);
    }
  return after(a.length, b.length);
}

/** Edits by which a word may be missed. A difference in length takes as many. */
const maxEdits = (word: string): number => Math.max(1, Math.floor(word.length * 0.4));

/**
 * The known word that `given` most likely means, of equally near ones one that begins with it; undefined where all are
 * far off. Words of 100 letters at most.
 */
export function nearest(given: string, known: readonly string[]): string | undefined {
  if (given.length > MAX_LETTERS) return undefined;
  const wanted = given.toLowerCase();
  const begins = (word: string): boolean => word.toLowerCase().startsWith(wanted);
  const ranked = known
    .filter((word) => word.length <= MAX_LETTERS && Math.abs(word.length - given.length) <= maxEdits(word))
    .map((word) => ({ word, edits: distance(wanted, word.toLowerCase()) }))
    .sort((a, b) => a.edits - b.edits || Number(begins(b.word)) - Number(begins(a.word)));
  const [best] = ranked;
  return best !== undefined && best.edits <= maxEdits(best.word) ? best.word : undefined;
}

// Long work on a thread that also makes calls to devices, done in parts: between them the event loop turns, so that the
// next call is made in time.

/** Work that may be left for a while wherever it yields. */
export type Parts<T> = Generator<undefined, T, undefined>;

/** A call takes tens of milliseconds, and several such works may be under way. */
const PART_MS = 5;

/** Does all of it now. */
export function atOnce<T>(work: Parts<T>): T {
  for (;;) {
    const part = work.next();
    if (part.done === true) return part.value;
  }
}

/** Does all of it, with a turn of the event loop every few milliseconds. */
export async function inParts<T>(work: Parts<T>): Promise<T> {
  const pause = new Pause();
  for (;;) {
    const part = work.next();
    if (part.done === true) return part.value;
    if (pause.isDue) await pause.take();
  }
}

/** The same for a function that waits anyway: `if (pause.isDue) await pause.take()` wherever it may be left. */
export class Pause {
  #since = performance.now();

  get isDue(): boolean {
    return performance.now() - this.#since >= PART_MS;
  }

  async take(): Promise<void> {
    await setImmediate();
    this.#since = performance.now();
  }
}

/** Work that is done when it is first asked for; those who ask later get what it came to. */
export function once<T>(work: () => Parts<T>): () => Parts<T> {
  let found: { readonly value: T } | undefined;
  return function* () {
    found ??= { value: yield* work() };
    return found.value;
  };
}
