/** The time that tuning takes, on a clock of the test's own: no busy machine can make it fail. */
import { describe, expect, it } from 'vitest';
import { GRACE_SECONDS, type Steps, type Time, tuneWithin } from '../../commands/tune.js';

/** A clock that goes on only when everybody waits for an alarm. */
class VirtualTime implements Time {
  private seconds = 0;
  private readonly alarms = new Set<{ readonly at: number; readonly ring: () => void }>();

  readonly now = (): number => this.seconds;

  readonly alarm = (seconds: number, ring: () => void): (() => void) => {
    const own = { at: this.seconds + seconds, ring };
    this.alarms.add(own);
    return () => this.alarms.delete(own);
  };

  /** Work of so many seconds, as compilers do it: it ends at once when it is stopped. */
  work<T>(seconds: number, value: T, signal?: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) return reject(new Error('stopped'));
      const stop = this.alarm(seconds, () => {
        resolve(value);
      });
      signal?.addEventListener('abort', () => {
        stop();
        reject(new Error('stopped'));
      });
    });
  }

  async run<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const outcome = work.finally(() => (isOver = true));
    outcome.catch(() => undefined);
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      const [next] = [...this.alarms].sort((a, b) => a.at - b.at);
      if (isOver) return outcome;
      if (next === undefined) throw new Error('Everybody waits for nothing.');
      this.alarms.delete(next);
      this.seconds = next.at;
      next.ring();
    }
  }
}

/** Tunes with compilers of so many seconds, for the model as it is and for the tuned one. */
async function tune(options: {
  budget: number;
  compileSeconds: { readonly old: number; readonly tuned: number };
  closing?: number;
  finds?: 'old' | 'tuned';
  stopsAfter?: number;
}): Promise<{ seconds: number; code: string | undefined; searched: number }> {
  const { budget, compileSeconds, closing, finds = 'tuned', stopsAfter } = options;
  const time = new VirtualTime();
  const stop = new AbortController();
  if (stopsAfter !== undefined) time.alarm(stopsAfter, () => stop.abort());
  let searched = 0;
  const steps: Steps<'old' | 'tuned', undefined, string> = {
    isSame: (a, b) => a === b,
    compile: (model, signal) => time.work(compileSeconds[model], `code of ${model}`, signal),
    search: async (seconds) => {
      searched = seconds;
      await time.work(seconds, undefined, stop.signal).catch(() => undefined);
      return { model: finds, found: undefined };
    },
  };
  const limits = {
    budgetSeconds: budget,
    signal: stop.signal,
    time,
    ...(closing === undefined ? {} : { closingSeconds: closing }),
  };
  const { code } = await time.run(tuneWithin('old', limits, steps));
  return { seconds: time.now(), code, searched };
}

describe('tuning within a budget', () => {
  it('takes its budget, and the rest of the time it searches', async () => {
    const { seconds, code, searched } = await tune({ budget: 10, compileSeconds: { old: 2, tuned: 0.5 } });
    expect(code).toBe('code of tuned');
    expect(seconds).toBeCloseTo(9.5);
    expect(searched).toBeCloseTo(7);
  });

  it('never takes more than a second beyond it, however long compilers take', async () => {
    for (const budget of [0, 1, 10, 300])
      for (const compileSeconds of [
        { old: 0, tuned: 1e6 },
        { old: 1e6, tuned: 1e6 },
      ]) {
        const { seconds, code } = await tune({ budget, compileSeconds });
        expect(seconds).toBeCloseTo(budget + GRACE_SECONDS);
        expect(code).toBeUndefined();
      }
  });

  it('gives the search what compiling leaves, and reserves at most ten seconds for the result', async () => {
    expect((await tune({ budget: 300, compileSeconds: { old: 0, tuned: 0 } })).searched).toBeCloseTo(290);
    expect((await tune({ budget: 10, compileSeconds: { old: 1e6, tuned: 0 } })).searched).toBe(0);
  });

  it('reserves what compiling the result is expected to take, but at most half of the budget', async () => {
    const enough = await tune({ budget: 40, compileSeconds: { old: 0, tuned: 8 }, closing: 9 });
    expect(enough).toMatchObject({ searched: 31, seconds: 39, code: 'code of tuned' });
    const short = await tune({ budget: 40, compileSeconds: { old: 0, tuned: 50 }, closing: 50 });
    expect(short).toMatchObject({ searched: 20, seconds: 40 + GRACE_SECONDS, code: undefined });
    expect((await tune({ budget: 300, compileSeconds: { old: 0, tuned: 0 }, closing: 3 })).searched).toBeCloseTo(290);
  });

  it('compiles nothing again where nothing better was found', async () => {
    const { code, seconds } = await tune({ budget: 10, compileSeconds: { old: 1, tuned: 1 }, finds: 'old' });
    expect(code).toBe('code of old');
    expect(seconds).toBeCloseTo(9);
  });

  it('ends within a second of Ctrl-C, with the code of what was chosen if that is quick', async () => {
    const quick = await tune({ budget: 300, compileSeconds: { old: 0, tuned: 0.3 }, stopsAfter: 20 });
    expect(quick).toMatchObject({ seconds: 20.3, code: 'code of tuned' });
    const slow = await tune({ budget: 300, compileSeconds: { old: 0, tuned: 50 }, stopsAfter: 20 });
    expect(slow).toMatchObject({ seconds: 20 + GRACE_SECONDS, code: undefined });
    const early = await tune({ budget: 300, compileSeconds: { old: 50, tuned: 50 }, stopsAfter: 20 });
    expect(early.seconds).toBeLessThanOrEqual(20 + GRACE_SECONDS);
  });
});
