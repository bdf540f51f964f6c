/** Stops waiting for work when a signal is aborted, whether or not the work ever ends. */

/** Calls `use` with a promise that settles when `signal` is aborted. Stops listening when `use` ends. */
async function beside<T>(signal: AbortSignal, use: (stopped: Promise<undefined>) => Promise<T>): Promise<T> {
  let stop: (value: undefined) => void = () => undefined;
  const stopped = new Promise<undefined>((resolve) => (stop = resolve));
  const onAbort = (): void => {
    stop(undefined);
  };
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await use(stopped);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** The result of `work`; undefined if `signal` is aborted first. Whatever `work` does later is ignored. */
export async function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  const outcome = work.catch((error: unknown) => {
    if (signal.aborted) return undefined;
    throw error;
  });
  return beside(signal, (stopped) => Promise.race([outcome, stopped]));
}

/** The values of `source` as they arrive, until `signal` is aborted. Does not wait for the next value then. */
export async function* until<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await unlessStopped(iterator.next(), signal);
      if (next === undefined || next.done === true) return;
      yield next.value;
    }
  } finally {
    // A generator that is waiting is closed when its wait ends.
    const end = iterator.return?.();
    if (signal.aborted) end?.catch(() => undefined);
    else await end;
  }
}

/** Calls `ring` after this many seconds (at most a few weeks). Returns a function that cancels it. */
export type Alarm = (seconds: number, ring: () => void) => () => void;

const MAX_MILLISECONDS = 2 ** 31 - 1;

export const realAlarm: Alarm = (seconds, ring) => {
  const timer = setTimeout(ring, Math.min(MAX_MILLISECONDS, Math.max(0, seconds * 1000)));
  return () => {
    clearTimeout(timer);
  };
};

/** A signal aborted with `signal` or after this many seconds. Call `end` when nobody listens any more. */
export function deadline(
  seconds: number,
  signal: AbortSignal | undefined,
  alarm: Alarm = realAlarm,
): { readonly signal: AbortSignal; readonly end: () => void } {
  const time = new AbortController();
  const end = alarm(seconds, () => {
    time.abort();
  });
  return { signal: signal === undefined ? time.signal : AbortSignal.any([signal, time.signal]), end };
}
