import { describe, expect, it } from 'vitest';
import type { Known } from '../../autotune/database.js';
import { Job, type Candidates, type Rounds } from '../../autotune/searchJob.js';
import { kernelAt, llamaModule } from './fixture.js';

/** Of a final, in seconds. */
const MARGIN = 0.05;

/** Schedules are numbers, the default is 10, and each has the numbers beside it as neighbours. */
const candidates: Candidates<number> = {
  start: 10, cost: (s) => s, mayUse: () => true, enumerate: () => [9, 10], neighbours: (s) => [s - 1, s + 1],
  work: { flops: 1, scalarOps: 0, bytes: 1 }, shareOfPeak: () => 1,
};
const jobOf = (rounds: Rounds, known: readonly Known<number>[] = [], final: readonly Known<number>[] = []): Job<number> => new Job({
  kernel: kernelAt(llamaModule(), 'layers.0.ffn.gate_up'), signature: 's', count: 1, bucketIndex: 0, bucket: { tokens: 8, rows: 8, longest: 8 },
  candidates, keyOf: String, rounds, known, final: { entries: final, marginSeconds: MARGIN },
});
const ROUNDS: Rounds = { first: 2, step: 2, ideas: 1 };

/** Measures what the job proposes: `seconds` of each schedule. */
function measure(job: Job<number>, seconds: (s: number) => number, isLate = false): readonly number[] {
  const proposed = job.propose([], isLate);
  const found = proposed.map((schedule) => ({ schedule, seconds: seconds(schedule) }));
  job.trials += found.length;
  if (job.isInFinal) job.conclude({ entries: found, marginSeconds: MARGIN });
  else for (const known of found) job.learn(known);
  return proposed;
}

describe('a job with finals', () => {
  const FINALS = { ...ROUNDS, finals: 0.25 };

  it('takes what wins its final, and the default before it', () => {
    const job = jobOf(FINALS);
    expect(measure(job, (s) => s)).toEqual([10, 9]);
    expect([job.best?.schedule, job.chosen, job.row().bestSeconds]).toEqual([9, 10, 10]);
    // Late: the final, though there are neighbours left.
    expect(measure(job, (s) => s, true)).toEqual([10, 9]);
    expect([job.isInFinal, job.chosen, job.row().bestSeconds]).toEqual([true, 9, 9]);
    expect(job.propose([], true)).toEqual([]);
  });

  it('asks the fastest few of the search, and takes none that was not asked, however fast its burst', () => {
    const job = jobOf(FINALS);
    measure(job, (s) => s);
    measure(job, () => 7);
    for (const schedule of [1, 2, 3, 5, 6]) job.learn({ schedule, seconds: 8.5 + schedule / 10 });
    job.learn({ schedule: 4, seconds: Infinity });
    const final = measure(job, (s) => (s === 1 ? 12 : 14), true);
    expect(final).toEqual([10, 8, 1, 2, 3]);
    expect([job.chosen, job.row().bestSeconds]).toEqual([1, 12]);
  });

  it('keeps the default unless it is beaten clearly', () => {
    for (const [nine, chosen] of [[8.48, 10], [8.4, 9]] as const) {
      const job = jobOf(FINALS);
      measure(job, (s) => s);
      measure(job, (s) => (s === 10 ? 8.5 : nine), true);
      expect(job.chosen).toBe(chosen);
    }
  });

  it('remembers its final, and holds another one only where something new was found', () => {
    const known = [{ schedule: 10, seconds: 10 }, { schedule: 9, seconds: 9 }, { schedule: 8, seconds: 20 }];
    const settled = jobOf(FINALS, known, [{ schedule: 10, seconds: 10 }, { schedule: 8, seconds: 9.5 }]);
    expect([settled.chosen, settled.row().bestSeconds]).toEqual([8, 9.5]);
    expect(settled.propose([], true)).toEqual([]);
    // The search goes on: the winner of before is in the next final.
    const more = jobOf(FINALS, [...known, { schedule: 7, seconds: 8 }], [{ schedule: 8, seconds: 9.5 }]);
    expect(measure(more, () => 30)).toEqual([6]);
    expect(measure(more, (s) => (s === 6 ? 11 : s), true)).toEqual([10, 8, 7, 9, 6]);
    expect(more.chosen).toBe(7);
    // What has failed since is not taken; where all have, the default is.
    const failed = jobOf(FINALS, [{ schedule: 10, seconds: 10 }, { schedule: 8, seconds: Infinity }], [{ schedule: 10, seconds: 10 }, { schedule: 8, seconds: 5 }]);
    expect(failed.chosen).toBe(10);
    expect(jobOf(FINALS, [{ schedule: 10, seconds: 10 }, { schedule: 8, seconds: Infinity }], [{ schedule: 8, seconds: 5 }]).chosen).toBe(10);
    // Interrupted before its final: that is what is left to do.
    expect(measure(jobOf(FINALS, known), (s) => s, true)).toEqual([10, 9, 8]);
  });

  it('without finals takes the best that it knows', () => {
    const job = jobOf(ROUNDS);
    measure(job, (s) => s);
    expect(job.chosen).toBe(9);
    expect(job.propose([])).toEqual([8]);
  });
});
