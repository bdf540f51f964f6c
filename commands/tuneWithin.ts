/**
 * The time of `tune`: compile what the artifact holds, search, compile what was chosen, all within a budget. Machine
 * code for the chosen schedules is there at the end, or undefined is in its place; nobody is kept waiting for it.
 */
import { type Alarm, deadline, realAlarm, unlessStopped } from '../autotune/measurement.js';

/**
 * The part of the budget that is reserved for compiling the result: a share of it, of at most `seconds`, or what
 * compiling is expected to take, up to a larger share.
 */
const CLOSING = { share: 0.1, seconds: 10, maxShare: 0.5 };
/** Seconds by which compiling may exceed the budget, and those it may take after Ctrl-C. */
export const GRACE_SECONDS = 1;

export interface Time {
  /** Seconds, never going back. */
  now(): number;
  readonly alarm: Alarm;
}

const realTime: Time = { now: () => performance.now() / 1000, alarm: realAlarm };

export interface Steps<M, F, K> {
  /** Machine code of a model. Ends when the signal is aborted. */
  compile(model: M, signal: AbortSignal): Promise<K>;
  /** Searches for at most `budgetSeconds`. */
  search(budgetSeconds: number): Promise<{ readonly model: M; readonly found: F }>;
  /** Whether both models have the same kernels. */
  isSame(a: M, b: M): boolean;
}

export interface TunedWithin<M, F, K> {
  readonly model: M;
  readonly found: F;
  /** Machine code of the model; undefined if it was not compiled in time. */
  readonly code: K | undefined;
  /** Whether the schedules are those that the model had before. */
  readonly isSame: boolean;
}

/**
 * Compiles the model as it is before anything is measured. Where each kernel is compiled by itself, most of the result
 * are then compiled already: those that keep their schedules here, and those that do not when they are measured.
 */
export async function tuneWithin<M, F, K>(
  before: M,
  {
    budgetSeconds,
    closingSeconds = 0,
    signal,
    time = realTime,
  }: {
    readonly budgetSeconds: number;
    /** What compiling the result is expected to take. */
    readonly closingSeconds?: number;
    readonly signal?: AbortSignal | undefined;
    readonly time?: Time;
  },
  { compile, search, isSame }: Steps<M, F, K>,
): Promise<TunedWithin<M, F, K>> {
  const begin = time.now();
  const secondsLeft = (): number => Math.max(0, budgetSeconds - (time.now() - begin));
  const within = async (model: M, seconds: number, stop: AbortSignal | undefined): Promise<K | undefined> => {
    const limit = deadline(seconds, stop, time.alarm);
    try {
      return await unlessStopped(compile(model, limit.signal), limit.signal);
    } finally {
      limit.end();
    }
  };
  const reserved = Math.max(
    Math.min(CLOSING.seconds, CLOSING.share * budgetSeconds),
    Math.min(closingSeconds, CLOSING.maxShare * budgetSeconds),
  );
  const own = await within(before, secondsLeft() - reserved, signal);
  const { model, found } = await search(Math.max(0, secondsLeft() - reserved));
  if (isSame(model, before)) return { model, found, code: own, isSame: true };
  const isStopped = signal?.aborted === true;
  const code = await within(model, (isStopped ? 0 : secondsLeft()) + GRACE_SECONDS, isStopped ? undefined : signal);
  return { model, found, code, isSame: false };
}
