/**
 * Problems of a search side by side: as one ends, the next begins. As many run at once as both models have memory for,
 * so that pages of paths that live are not taken for others. Where that was too many, the problems that came last wait
 * between two iterations. A problem's requests go to one replica of each model. No result depends on any of this.
 */
import type { MemoryRoom } from '../engine/replicaMemory.js';
import type { SearchOptions } from './options.js';
import type { Problem } from './path.js';
import type { StepAsk, StepWriter } from './ports.js';
import { fitsLater, fitsNow, heldNow, type LaneRoom, ProblemLoad, SearchHabits } from './problemLoad.js';

export interface ScheduleOptions {
  readonly options: SearchOptions;
  /** Replicas of both models that work side by side. Default 1. */
  readonly lanes?: number;
  /** Problems that run at once, at most. Default: as many as there is memory for. */
  readonly most?: number | undefined;
  /** Paths that a replica draws in about the time of one. Default 0: each takes its time. */
  readonly cheapPaths?: number;
  /** What each replica of the models has room for, now. Default: more than any search needs. */
  readonly rooms?: () => { readonly writer: readonly MemoryRoom[]; readonly judge: readonly MemoryRoom[] };
}

/** A problem that runs, and whoever waits for memory with it. */
interface Entry {
  readonly load: ProblemLoad;
  isHeld: boolean;
  waiters: (() => void)[];
}

const DEFAULT_PATHS = 16;

const NOTHING: readonly MemoryRoom[] = [];

export class ProblemSchedule {
  private readonly habits: SearchHabits;
  private readonly lanes: number;
  private readonly most: number;
  private readonly rooms: ScheduleOptions['rooms'];
  private readonly running = new Map<Problem, Entry>();
  private readonly cheapPaths: number;
  private readonly pathsEach: number;
  private begun = 0;
  /** Problems that have not begun. */
  private waiting = 0;
  private wake: () => void = () => undefined;
  /** Most problems that ran at once, and times that one had to wait for memory. */
  peak = 0;
  holds = 0;

  constructor({ options, lanes = 1, most = Infinity, cheapPaths = 0, rooms }: ScheduleOptions) {
    this.habits = new SearchHabits(options);
    this.cheapPaths = cheapPaths;
    this.pathsEach = options.n ?? DEFAULT_PATHS;
    this.lanes = Math.max(1, lanes);
    this.most = Math.max(1, most);
    this.rooms = rooms;
  }

  /**
   * Calls `search` for each problem, in their order, with a lane; its writer must be watched. `onResult` is waited for
   * before another begins in its place. Rejects with the first error, when all that began have ended; none begins
   * behind it, or behind an abort.
   */
  async run<R>(
    problems: readonly Problem[],
    search: (problem: Problem, index: number) => Promise<R>,
    onResult: (result: R, index: number) => Promise<void> | void,
    signal?: AbortSignal,
  ): Promise<void> {
    const failures: unknown[] = [];
    const one = async (problem: Problem, index: number): Promise<void> => {
      try {
        await onResult(await search(problem, index), index);
      } catch (error) {
        failures.push(error);
      } finally {
        this.end(problem);
      }
    };
    let next = 0;
    for (;;) {
      this.waiting = problems.length - next;
      while (next < problems.length && failures.length === 0 && signal?.aborted !== true) {
        const begun = this.begin(problems[next]!);
        if (begun === undefined) break;
        void one(begun, next++);
        this.waiting--;
      }
      if (this.running.size === 0) break;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    if (failures.length > 0) throw failures[0];
    signal?.throwIfAborted();
  }

  /** Whether steps that may not be needed hold nobody up: all problems have begun, and few paths are left. */
  get hasSpareTime(): boolean {
    return this.waiting === 0 && this.running.size * this.pathsEach <= this.cheapPaths * this.lanes;
  }

  /** The same writer, whose asks tell what each problem holds, and wait where there is too little memory. */
  watch(writer: StepWriter): StepWriter {
    return {
      write: async (ask) => {
        const entry = this.running.get(ask.path.problem);
        if (entry !== undefined) {
          if (entry.load.extend(ask.path, ask.iteration)) this.weigh(entry);
          if (entry.isHeld) await held(entry, ask);
        }
        const step = await writer.write(ask);
        this.habits.drew(step.tokens.length);
        return step;
      },
      drop: (path, siblings) => writer.drop?.(path, siblings),
    };
  }

  /** Begins a problem where there is room for it; undefined where there is none. */
  private begin(problem: Problem): Problem | undefined {
    if (this.running.size >= this.most) return undefined;
    const loads = Array.from({ length: this.lanes }, (_, lane) => this.loadsOf(lane));
    // The lane with the fewest problems, the first of equals.
    const lane = loads.reduce((best, each, i) => (each.length < loads[best]!.length ? i : best), 0);
    const load = new ProblemLoad(problem, lane, this.begun, this.habits);
    const room = this.roomOf(lane);
    if (loads[lane]!.length > 0 && room !== undefined && !fitsLater(room, [...loads[lane]!, load])) return undefined;
    this.begun++;
    const own = { ...problem, lane };
    this.running.set(own, { load, isHeld: false, waiters: [] });
    this.peak = Math.max(this.peak, this.running.size);
    return own;
  }

  private end(problem: Problem): void {
    const lane = this.running.get(problem)?.load.lane ?? 0;
    this.running.delete(problem);
    this.habits.end();
    this.keep(lane);
    this.releaseHeld();
    this.wake();
  }

  /** An iteration of the problem begins: it waits where those before it leave too little memory. */
  private weigh(entry: Entry): void {
    const { lane, order } = entry.load;
    const room = this.roomOf(lane);
    const before = this.loadsOf(lane).filter((load) => load.order <= order);
    if (room !== undefined && before.length > 1 && !fitsNow(room, before)) {
      entry.isHeld = true;
      this.holds++;
    }
    this.keep(lane);
    this.releaseHeld();
    this.wake();
  }

  /** Memory for what the lane's paths hold stays with its models while they are between two requests. */
  private keep(lane: number): void {
    const room = this.roomOf(lane);
    if (room === undefined) return;
    const held = heldNow(this.loadsOf(lane));
    room.writer.keep(held.writer);
    room.judge?.keep(held.judge);
  }

  /** Those that waited go on, the oldest first, as far as there is memory. */
  private releaseHeld(): void {
    for (const entry of this.running.values()) {
      if (!entry.isHeld) continue;
      const { lane, order } = entry.load;
      const room = this.roomOf(lane);
      const before = this.loadsOf(lane).filter((load) => load.order <= order);
      if (room !== undefined && before.length > 1 && !fitsNow(room, before)) continue;
      entry.isHeld = false;
      for (const go of entry.waiters) go();
      entry.waiters = [];
    }
  }

  private loadsOf(lane: number): readonly ProblemLoad[] {
    return [...this.running.values()].flatMap(({ load }) => (load.lane === lane ? [load] : []));
  }

  private roomOf(lane: number): LaneRoom | undefined {
    const { writer, judge } = this.rooms?.() ?? { writer: NOTHING, judge: NOTHING };
    const own = writer[lane % writer.length];
    return own && { writer: own, judge: judge[lane % judge.length] };
  }
}

/** Settles when the problem goes on; rejects where the ask is aborted before. */
async function held(entry: Entry, { signal }: StepAsk): Promise<void> {
  signal.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    entry.waiters.push(() => {
      signal.removeEventListener('abort', abort);
      resolve();
    });
  });
}
