/** The interface between the search and a target's measurer. `S`: the target's schedules. */
import type { Extents } from '../ir/extents.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import { kernelReads, kernelWrites } from '../ir/kernelAccess.js';
import type { Bucket } from '../ir/plan.js';
import type { Dim } from '../ir/types.js';

export interface MeasureRequest<S> {
  readonly kernel: Kernel;
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** The schedule whose result is correct: code generation's default. */
  readonly reference: S;
  /** Measured in this order. */
  readonly schedules: readonly S[];
  /** Seconds of the best schedule so far. Hopeless candidates are abandoned after a few repeats. */
  readonly bestSeconds?: number;
  /** The first measurement of `reference`. Where clocks vary, other times are scaled to it. */
  readonly referenceSeconds?: number;
  /** When aborted, compilers and measurements end as soon as they can, and nothing more is yielded. */
  readonly signal?: AbortSignal;
}

/** Seconds of each repeat, or why the schedule may not be used. */
export type Measurement<S> =
  | { readonly schedule: S; readonly seconds: readonly number[] }
  | { readonly schedule: S; readonly failure: string };

/** Yields one measurement per schedule, in order, as it is made. The caller may stop iterating at any time. */
export type Measure<S> = (request: MeasureRequest<S>) => AsyncIterable<Measurement<S>>;

/**
 * The part of a bucket that one launch of a kernel depends on. Attention depends on paths, so it is the whole bucket.
 * All other kernels depend on the extents of what they read and write alone: `longest` is then 1 and there is no `run`.
 */
export function measuredPlace(kernel: Kernel, { buffers }: Pick<KernelModule, 'buffers'>, bucket: Bucket): Bucket {
  if (kernel.anchor === 'attention') return bucket;
  const touched = new Set([...kernelReads(kernel), ...kernelWrites(kernel)]);
  const dims = new Set<Dim>(buffers.flatMap(({ name, rows, columns }) => (touched.has(name) ? [rows, columns] : [])));
  dims.add(kernel.rows);
  const extents: Extents = Object.fromEntries(Object.entries(bucket.extents).filter(([name]) => dims.has(name)));
  return { extents, longest: 1 };
}

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

/** A signal aborted with `signal` or after this many seconds. Call `end` when it is no longer needed. */
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
