/**
 * Requests of a fleet from a trace of one service. A trace has too few for a fleet and names no adapters: copies of it
 * with their times turned round run beside each other, each client asks in sessions, and each session draws one adapter
 * from a Zipf distribution whose most popular ones change from time to time.
 */
import type { Arrival } from './fleet.js';
import { Random } from './random.js';
import type { TraceRow } from './trace.js';

export interface WorkloadOptions {
  readonly seed: number;
  /** Requests a second. */
  readonly rate: number;
  /** Length; at most that of the trace. Times of day before `fromMs` are left out. */
  readonly durationMs: number;
  readonly adapters: number;
  /** Of Zipf: the i-th most popular adapter is drawn with a probability ∝ i^−exponent. */
  readonly exponent: number;
  /** Time after which `moved` of the most popular adapters change places with others. */
  readonly moveMs: number;
  readonly moved: number;
  /** Mean number of requests of a session. */
  readonly turns: number;
  /** Part of sessions that ask for the base itself. */
  readonly plainShare: number;
}

export const DEFAULT_WORKLOAD: WorkloadOptions = {
  seed: 1,
  rate: 100,
  durationMs: 600_000,
  adapters: 256,
  exponent: 1,
  moveMs: 180_000,
  moved: 8,
  turns: 4,
  plainShare: 0,
};

/** Sessions that are open at a time, for each request a second. */
const OPEN_SESSIONS = 20;

export function makeWorkload(rows: readonly TraceRow[], options: WorkloadOptions): readonly Arrival[] {
  const { seed, durationMs, turns } = options;
  const random = new Random(seed);
  const drawn = timesOf(rows, options, random);
  const popularity = new Popularity(options, random);
  const most = Math.max(1, Math.round(options.rate * OPEN_SESSIONS));
  const sessions: { id: number; adapter: number }[] = [];
  let count = 0;
  return drawn.map(({ atMs, row }) => {
    popularity.moveTo(atMs);
    let session =
      sessions.length > 0 && random.next() > 1 / turns ? sessions[random.below(sessions.length)]! : undefined;
    if (session === undefined) {
      session = { id: count++, adapter: popularity.draw() };
      if (sessions.length < most) sessions.push(session);
      else sessions[random.below(most)] = session;
    }
    const { prompt, generated } = row;
    return { arrivalMs: Math.min(atMs, durationMs), prompt, generated, adapter: session.adapter, session: session.id };
  });
}

/** Arrivals in order: as many copies of the trace as the rate needs, the last one thinned. */
function timesOf(rows: readonly TraceRow[], { rate, durationMs }: WorkloadOptions, random: Random) {
  const spanMs = rows.at(-1)!.atMs + 1;
  const copies = (rate * spanMs) / 1000 / rows.length;
  const length = Math.min(durationMs, spanMs);
  const found: { atMs: number; row: TraceRow }[] = [];
  for (let copy = 0; copy < copies; copy++) {
    const turned = random.next() * spanMs;
    const kept = Math.min(1, copies - copy);
    for (const row of rows) {
      const atMs = (row.atMs + turned) % spanMs;
      if (atMs < length && (kept === 1 || random.next() < kept)) found.push({ atMs, row });
    }
  }
  return found.sort((a, b) => a.atMs - b.atMs);
}

class Popularity {
  private readonly options: WorkloadOptions;
  private readonly random: Random;
  /** Adapters by rank, and the sums of their probabilities. */
  private readonly ranked: number[];
  private readonly sums: number[] = [];
  private moves = 0;

  constructor(options: WorkloadOptions, random: Random) {
    this.options = options;
    this.random = random;
    this.ranked = Array.from({ length: options.adapters }, (_, i) => i);
    let sum = 0;
    for (let i = 1; i <= options.adapters; i++) this.sums.push((sum += i ** -options.exponent));
  }

  moveTo(atMs: number): void {
    const { moveMs, moved, adapters } = this.options;
    for (; this.moves < Math.floor(atMs / moveMs); this.moves++) {
      for (let i = 0; i < Math.min(moved, adapters); i++) {
        const other = this.random.below(adapters);
        [this.ranked[i], this.ranked[other]] = [this.ranked[other]!, this.ranked[i]!];
      }
    }
  }

  draw(): number {
    if (this.options.adapters === 0 || this.random.next() < this.options.plainShare) return -1;
    const place = this.random.next() * this.sums.at(-1)!;
    let [low, high] = [0, this.sums.length - 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.sums[middle]! <= place) low = middle + 1;
      else high = middle;
    }
    return this.ranked[low]!;
  }
}
