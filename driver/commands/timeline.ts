/** What each device was doing while a question set was scored: busy shares, and the slices of `--trace`. */
import type { DeviceUse } from '../../eval/index.js';
import type { MicroBatch } from '../../eval/scorer.js';
import type { DeviceSpan } from '../../runtime/call.js';

/** A span with the micro-batch that it belongs to. */
export interface BatchSpan extends DeviceSpan {
  /** Micro-batches counted from 0 in the order asked. */
  readonly batch: number;
  readonly tokens: number;
  readonly rows: number;
}

export interface Interval {
  readonly begin: number;
  readonly end: number;
}

/** Intervals in order, overlapping and touching ones joined. */
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

  /** Devices whose executors say nothing of what they do leave no trace. */
  add(batch: number, { tokens, row }: Pick<MicroBatch, 'tokens' | 'row'>, spans: readonly DeviceSpan[] = []): void {
    for (const span of spans) this.list.push({ ...span, batch, tokens: tokens.length, rows: row.length });
  }

  get spans(): readonly BatchSpan[] {
    return this.list;
  }

  /** From the first begin to the last end, on any device; undefined where nothing was seen. */
  get window(): Interval | undefined {
    if (this.list.length === 0) return undefined;
    return this.list.reduce(
      (all, { begin, end }) => ({ begin: Math.min(all.begin, begin), end: Math.max(all.end, end) }),
      { begin: Infinity, end: -Infinity },
    );
  }

  /** Spans of one device of one kind. */
  of(device: number, kind: DeviceSpan['kind']): readonly BatchSpan[] {
    return this.list.filter((span) => span.device === device && span.kind === kind);
  }

  /** Within the window, where a device computes nothing. */
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

  /** How busy each of `devices` was; undefined where nothing was seen. */
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
