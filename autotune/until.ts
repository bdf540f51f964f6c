/** Work that is given up when it is told to stop, whether or not what it waits for ever ends. */

/** Calls `use` with a promise that settles when `signal` is aborted; listens no longer than that. */
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

/** What `work` gives; undefined where `signal` was aborted before. What it does after that is nobody's business. */
export async function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  const outcome = work.catch((error: unknown) => {
    if (signal.aborted) return undefined;
    throw error;
  });
  return beside(signal, (stopped) => Promise.race([outcome, stopped]));
}

/** The values of `source` as they come, until `signal` is aborted: the next one is not waited for. */
export async function* until<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await unlessStopped(iterator.next(), signal);
      if (next === undefined || next.done === true) return;
      yield next.value;
    }
  } finally {
    // A generator that waits for something hears this when its wait is over.
    const end = iterator.return?.();
    if (signal.aborted) end?.catch(() => undefined);
    else await end;
  }
}

/** Calls `ring` after so many seconds, at most a few weeks; gives the function that calls it off. */
export type Alarm = (seconds: number, ring: () => void) => () => void;

const MOST_MILLISECONDS = 2 ** 31 - 1;

export const realAlarm: Alarm = (seconds, ring) => {
  const timer = setTimeout(ring, Math.min(MOST_MILLISECONDS, Math.max(0, seconds * 1000)));
  return () => {
    clearTimeout(timer);
  };
};

/** Aborted with `signal`, or after so many seconds. Call `end` when nobody listens any more. */
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
