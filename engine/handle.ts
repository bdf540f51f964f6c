/** A request that was submitted: its events for whoever reads them, at the reader's own pace, and its end. */
import { setMaxListeners } from 'node:events';
import type { EndReason, EngineRequest, Generated, GeneratedToken, RequestEvent, ResultOf } from './request.js';
import type { Task, TaskListener } from './task.js';

type Kind = EngineRequest['kind'];

/** Longest time that a timer takes. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface HandleOptions<K extends Kind> {
  /** Events that wait for their reader before the request takes no part in steps. */
  readonly maxHeld: number;
  /** Milliseconds until it ends. */
  readonly leftMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** What the request gives, of the results of its sequences. */
  readonly resultOf: (results: readonly Generated[]) => ResultOf[K];
  /** Tokens are no events. */
  readonly isQuiet?: boolean;
  /** Called once, when nothing of it is in work any more. */
  readonly onSettled: () => void;
  /** Called when an event is held and none was before: at once, in the loop that feeds the device. */
  readonly onHeld?: (() => void) | undefined;
}

/**
 * Events are read by one reader: by `for await`, which cancels the request when its loop is left, by `read`, or by
 * `take`, whose events count as held until they are acknowledged. Without a reader, `result` takes them as they come.
 * While as many as `maxHeld` are held, the request takes no part in steps.
 */
export class RequestHandle<K extends Kind = Kind> implements AsyncIterable<RequestEvent> {
  private readonly options: HandleOptions<K>;
  private readonly tasks: Task[] = [];
  private held: RequestEvent[] = [];
  private readonly outcomes: (Generated | Error | undefined)[] = [];
  private left = 0;
  /** Events that were taken and not acknowledged. */
  private taken = 0;
  private isRead = false;
  private isDropping = false;
  private isPaused = false;
  private wake: () => void = () => undefined;
  private timer: NodeJS.Timeout | undefined;
  private onSettled: () => void = () => undefined;
  private readonly settled = new Promise<void>((resolve) => (this.onSettled = resolve));
  private readonly onAbort = (): void => this.cancel();

  constructor(options: HandleOptions<K>) {
    this.options = options;
  }

  /** Listens to the next of its sequences. */
  listener(sample: number): TaskListener {
    this.left++;
    return {
      ...(this.options.isQuiet === true
        ? {}
        : { onToken: (token: GeneratedToken) => this.tell({ kind: 'token', sample, token }) }),
      onEnd: (result) => this.finish(sample, result),
      onFail: (error) => this.finish(sample, error),
    };
  }

  /** All its sequences are known, and none has begun. */
  begin(tasks: readonly Task[], start: (task: Task) => void): void {
    this.tasks.push(...tasks);
    const { signal, leftMs } = this.options;
    if (leftMs !== undefined) this.arm(performance.now() + leftMs);
    if (signal?.aborted === true) this.cancel();
    else if (signal !== undefined) {
      // One signal may end any number of requests.
      setMaxListeners(0, signal);
      signal.addEventListener('abort', this.onAbort, { once: true });
    }
    for (const task of tasks) start(task);
  }

  private arm(until: number): void {
    const left = until - performance.now();
    if (left <= 0) return this.stop('deadline');
    this.timer = setTimeout(() => this.arm(until), Math.min(Math.ceil(left), MAX_TIMER_MS));
    this.timer.unref();
  }

  /** Ends it, between two steps, with what there is. Its pages are free within two steps. */
  cancel(): void {
    this.stop('aborted');
  }

  private stop(reason: EndReason): void {
    for (const task of this.tasks) task.stop(reason);
  }

  /**
   * The continuation `sample` ends with its first `count` tokens, as its reader has found: with a stop string, for
   * example. Tokens that were computed meanwhile are dropped.
   */
  cut(sample: number, count: number, reason: EndReason): void {
    const task = this.tasks[sample];
    if (task === undefined) throw new RangeError(`The request has no continuation ${sample}.`);
    this.held = this.held.filter((event) => event.sample !== sample);
    this.finish(sample, task.cut(count, reason));
    this.release();
  }

  private finish(sample: number, outcome: Generated | Error): void {
    const isFirst = this.outcomes[sample] === undefined;
    this.outcomes[sample] = outcome;
    if (isFirst) this.left--;
    this.tell(
      outcome instanceof Error ? { kind: 'failed', sample, error: outcome } : { kind: 'end', sample, result: outcome },
    );
    if (this.left > 0 || !isFirst) return;
    clearTimeout(this.timer);
    this.options.signal?.removeEventListener('abort', this.onAbort);
    this.options.onSettled();
    this.onSettled();
  }

  tell(event: RequestEvent): void {
    if (!this.isDropping && this.held.push(event) === 1) this.options.onHeld?.();
    if (!this.isPaused && this.held.length + this.taken >= this.options.maxHeld) {
      this.isPaused = true;
      for (const task of this.tasks) task.pause();
    }
    this.wake();
  }

  /** Those that were held are read. */
  private release(): void {
    if (!this.isPaused || this.held.length + this.taken > this.options.maxHeld / 2) return;
    this.isPaused = false;
    for (const task of this.tasks) task.resume();
  }

  /** All events that wait for their reader, perhaps none. They count as held until they are acknowledged. */
  take(): readonly RequestEvent[] {
    this.isRead = true;
    const events = this.held;
    this.held = [];
    this.taken += events.length;
    return events;
  }

  /** So many events that were taken have been dealt with. */
  acknowledge(count: number): void {
    this.taken = Math.max(0, this.taken - count);
    this.release();
  }

  /** All events that wait for their reader, at least one; none once the request is over. For one reader. */
  async read(): Promise<readonly RequestEvent[]> {
    this.isRead = true;
    while (this.held.length === 0 && this.left > 0) await new Promise<void>((resolve) => (this.wake = resolve));
    const events = this.held;
    this.held = [];
    this.release();
    return events;
  }

  /** Leaving the loop cancels the request. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RequestEvent, void, undefined> {
    this.isRead = true;
    try {
      for (;;) {
        while (this.held.length === 0 && this.left > 0) await new Promise<void>((resolve) => (this.wake = resolve));
        const event = this.held.shift();
        if (event === undefined) return;
        this.release();
        yield event;
      }
    } finally {
      this.cancel();
      this.drop();
    }
  }

  /**
   * What the whole request gives. Rejects with the first error, by sample, where something of it failed. Takes the
   * events, if nobody has begun to read them.
   */
  async result(): Promise<ResultOf[K]> {
    if (!this.isRead) this.drop();
    await this.settled;
    const failed = this.outcomes.find((each) => each instanceof Error);
    if (failed !== undefined) throw failed;
    return this.options.resultOf(this.outcomes as readonly Generated[]);
  }

  /** Nobody reads events any more. */
  private drop(): void {
    this.isDropping = true;
    this.held = [];
    this.release();
    this.wake();
  }
}
