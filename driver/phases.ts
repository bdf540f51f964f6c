/** The phases of a run before its first answer: how much they overlap, and what was waited for. */

/** Milliseconds since the epoch. */
export interface PhaseSpan {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
}

/** Milliseconds since the epoch at this process's start, advanced by a monotonic clock. */
export const clock = (): number => performance.timeOrigin + performance.now();

/**
 * The phases of one process, one after another; the first is its start. during() adds phases that overlap with others.
 */
export class Phases {
  private readonly ended: PhaseSpan[] = [];
  private present: { readonly name: string; readonly begin: number } | undefined = {
    name: 'process',
    begin: performance.timeOrigin,
  };

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

  /** A phase that runs beside the others for as long as `work` takes. */
  async during<T>(name: string, work: () => Promise<T>): Promise<T> {
    const begin = clock();
    try {
      return await work();
    } finally {
      this.ended.push({ name, begin, end: clock() });
    }
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
    merge(spans)
      .map(({ name, begin, end }) => `${name} ${seconds(begin)}–${seconds(end)}`)
      .join(', ');
  return `seconds since the command: ${list(own)}${devices.length === 0 ? '' : `; devices: ${list(devices)}`}`;
}
