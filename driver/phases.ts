/** The phases of a run before its first answer: how much they overlap, and what was waited for. */

/** Milliseconds since the epoch. */
import { defined } from '../system/defined.js';
export interface PhaseSpan {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
  /** It lies within another phase, of which it shows more: one weight of all that are loaded. */
  readonly isPart?: boolean;
  /** Bytes that it moved. */
  readonly bytes?: number;
  /** The replica whose process it was, counted from 0; absent for this one. */
  readonly replica?: number;
  /** Names of phases that it waited for, where these are others than criticalPath.ts says of its name. */
  readonly after?: readonly string[];
}

/** Parts of phases that are kept: the weights of the largest models, several times. */
const MAX_PARTS = 5000;

/** Milliseconds since the epoch at this process's start, advanced by a monotonic clock. */
export const clock = (): number => performance.timeOrigin + performance.now();

/**
 * The phases of a process, one after another. during() adds phases that overlap with others.
 */
export class Phases {
  private readonly ended: PhaseSpan[] = [];
  private parts = 0;
  private present: { readonly name: string; readonly begin: number } | undefined;

  /** `withStart`: the first is the start of the process. */
  constructor(withStart = true) {
    if (withStart) this.present = { name: 'process', begin: performance.timeOrigin };
  }

  /** Ends the current phase and begins another. */
  begin(name: string): void {
    const now = clock();
    this.end(now);
    this.present = { name, begin: now };
  }

  end(now = clock()): void {
    if (this.present !== undefined) this.ended.push({ ...this.present, end: now });
    this.present = undefined;
  }

  /** A phase that runs beside the others for as long as `work` takes. `after`: names of what it waits for. */
  async during<T>(name: string, work: () => Promise<T>, after?: readonly string[]): Promise<T> {
    const begin = clock();
    try {
      return await work();
    } finally {
      this.ended.push({ name, begin, end: clock(), ...defined({ after }) });
    }
  }

  /** A part of the current phase that has just ended. Those beyond MAX_PARTS are left out. */
  part(name: string, seconds: number, bytes: number, end = clock()): void {
    if (this.parts++ >= MAX_PARTS) return;
    this.ended.push({ name, begin: end - 1000 * seconds, end, isPart: true, bytes });
  }

  /** In order of their start. */
  get spans(): readonly PhaseSpan[] {
    return this.ended.toSorted((a, b) => a.begin - b.begin);
  }
}

/** Merges phases of one name, from the first start to the last end. */
function merge(spans: readonly PhaseSpan[]): readonly PhaseSpan[] {
  const byName = new Map<string, PhaseSpan>();
  for (const { name, begin, end } of spans) {
    const known = byName.get(name);
    byName.set(
      name,
      known === undefined
        ? { name, begin, end }
        : { name, begin: Math.min(known.begin, begin), end: Math.max(known.end, end) },
    );
  }
  return [...byName.values()].sort((a, b) => a.begin - b.begin);
}

/** One line with every phase in seconds since this process began; those of device processes are merged. */
export function printPhases(own: readonly PhaseSpan[], devices: readonly PhaseSpan[]): string {
  const origin = performance.timeOrigin;
  const seconds = (at: number): string => (Math.max(0, at - origin) / 1000).toFixed(2);
  const list = (spans: readonly PhaseSpan[]): string =>
    merge(spans.filter(({ isPart }) => isPart !== true))
      .map(({ name, begin, end }) => `${name} ${seconds(begin)}–${seconds(end)}`)
      .join(', ');
  return `seconds since the command: ${list(own)}${devices.length === 0 ? '' : `; devices: ${list(devices)}`}`;
}
