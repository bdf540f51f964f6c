import { describe, expect, it } from 'vitest';
import { Job, type Candidates, type Rounds } from '../../autotune/searchJob.js';
import { kernelAt, llamaModule } from './fixture.js';

/** Schedules are numbers, the default is 10, and each has the numbers beside it as neighbours. */
const candidates: Candidates<number> = {
  start: 10, cost: (s) => s, mayUse: () => true, enumerate: () => [9, 10], neighbours: (s) => [s - 1, s + 1],
  work: { flops: 1, scalarOps: 0, bytes: 1 }, shareOfPeak: () => 1,
};
const jobOf = (rounds: Rounds): Job<number> => new Job({
  kernel: kernelAt(llamaModule(), 'layers.0.ffn.gate_up'), signature: 's', count: 1, bucketIndex: 0, bucket: { tokens: 8, rows: 8, longest: 8 },
  candidates, keyOf: String, rounds, known: [],
});
const ROUNDS: Rounds = { first: 2, step: 2, ideas: 1 };

/** Measures what the job proposes: `seconds` of each schedule. */
function measure(job: Job<number>, seconds: (s: number) => number, isLate = false): readonly number[] {
  const proposed = job.propose([], isLate);
  for (const schedule of proposed) {
    job.learn({ schedule, seconds: seconds(schedule) });
    job.trials++;
  }
  return proposed;
}

describe('a job with finals', () => {
  it('takes its best only once it has met the default again', () => {
    const job = jobOf({ ...ROUNDS, finals: 0.25 });
    expect(measure(job, (s) => s)).toEqual([10, 9]);
    expect([job.best?.schedule, job.chosen, job.row().bestSeconds]).toEqual([9, 10, 10]);
    // Late: the final, though there are neighbours left.
    expect(measure(job, (s) => s, true)).toEqual([10, 9]);
    expect([job.chosen, job.row().bestSeconds]).toEqual([9, 9]);
    expect(job.propose([], true)).toEqual([]);
  });

  it('keeps the default where it wins the final', () => {
    const job = jobOf({ ...ROUNDS, finals: 0.25 });
    measure(job, (s) => s);
    measure(job, (s) => (s === 10 ? 8.5 : s), true);
    expect([job.chosen, job.row().bestSeconds]).toEqual([10, 8.5]);
  });

  it('without finals takes the best that it knows', () => {
    const job = jobOf(ROUNDS);
    measure(job, (s) => s);
    expect(job.chosen).toBe(9);
    expect(job.propose([])).toEqual([8]);
  });
});
