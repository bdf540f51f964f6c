/** Stops at a deadline or on a signal, without waiting for work that may never end. */
import { describe, expect, it } from 'vitest';
import { deadline, unlessStopped, until } from '../../autotune/measurement.js';

const never = new Promise<never>(() => undefined);
const stopped = (): AbortSignal => AbortSignal.abort();
const running = (): AbortSignal => new AbortController().signal;

describe('unlessStopped', () => {
  it('returns what the work returns, and throws what it throws', async () => {
    expect(await unlessStopped(Promise.resolve(7), running())).toBe(7);
    await expect(unlessStopped(Promise.reject(new Error('no')), running())).rejects.toThrow('no');
  });

  it('returns undefined if it was stopped, whatever happens to the work', async () => {
    expect(await unlessStopped(never, stopped())).toBeUndefined();
    expect(await unlessStopped(Promise.reject(new Error('too late')), stopped())).toBeUndefined();
    const stop = new AbortController();
    const waiting = unlessStopped(never, stop.signal);
    stop.abort();
    expect(await waiting).toBeUndefined();
  });
});

describe('until', () => {
  it('ends with the source, or when it is stopped while the source hangs', async () => {
    const stop = new AbortController();
    let hasEnded = false;
    async function* source(): AsyncGenerator<number> {
      try {
        yield 1;
        yield 2;
        stop.abort();
        await never;
      } finally {
        hasEnded = true;
      }
    }
    const seen: number[] = [];
    for await (const value of until(source(), stop.signal)) seen.push(value);
    expect(seen).toEqual([1, 2]);
    // The source would be closed when its wait ends, which is never.
    expect(hasEnded).toBe(false);
  });

  it('lets a source that does not hang clean up', async () => {
    let hasEnded = false;
    async function* source(): AsyncGenerator<number> {
      try {
        for (let i = 0; ; i++) {
          await Promise.resolve();
          yield i;
        }
      } finally {
        hasEnded = true;
      }
    }
    for await (const value of until(source(), running())) if (value === 3) break;
    expect(hasEnded).toBe(true);
  });
});

describe('a deadline', () => {
  it('is aborted after its seconds or with the other signal, and can be cancelled', () => {
    const rung: { seconds: number; ring: () => void }[] = [];
    let calledOff = 0;
    const alarm = (seconds: number, ring: () => void): (() => void) => {
      rung.push({ seconds, ring });
      return () => calledOff++;
    };
    const stop = new AbortController();
    const [byTime, bySignal] = [deadline(3, stop.signal, alarm), deadline(5, stop.signal, alarm)];
    expect(rung.map(({ seconds }) => seconds)).toEqual([3, 5]);
    rung[0]!.ring();
    expect([byTime.signal.aborted, bySignal.signal.aborted]).toEqual([true, false]);
    stop.abort();
    expect(bySignal.signal.aborted).toBe(true);
    bySignal.end();
    expect(calledOff).toBe(1);
  });
});
