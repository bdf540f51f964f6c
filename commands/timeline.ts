/** What each device did while a question set was scored: busy shares, and the slices of `--trace`. */
import type { WorkSize } from '../autotune/work.js';
import type { DeviceUse } from '../evaluate/index.js';
import type { MicroBatch } from '../evaluate/scorer.js';
import type { DeviceSpan } from '../runtime/call.js';

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
