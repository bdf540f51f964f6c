/** One kernel's search: what it proposes, and what it chooses. */
import { scoringBucket } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import type { Final, TimedSchedule } from '../../autotune/records.js';
import { SearchJob, type Candidates, type JobParts, type Rounds } from '../../autotune/searchJob.js';
import { kernelAt, llamaModule } from './fixture.js';

/** Margin of a final, in seconds. */
const MARGIN = 0.05;
const ROUNDS: Rounds = { first: 2, step: 2, ideas: 1 };

/** Schedules are numbers. The default is 10, neighbours are adjacent numbers, and 99 is illegal. */
const candidates: Candidates<number> = {
  start: 10,
  cost: (s) => s,
  mayUse: (s) => s !== 99,
  enumerate: () => [9, 10],
  neighbours: (s) => [s - 1, s + 1],
  work: { flops: 1, scalarOps: 0, bytes: 1 },
  shareOfPeak: () => 1,
};
const kernel = kernelAt(llamaModule(), 'layers.0.ffn.gate_up');
const jobOf = (change: Partial<JobParts<number>> = {}): SearchJob<number> =>
  new SearchJob({
    kernel,
    signature: 's',
    recordKey: 's',
    count: 1,
    bucketIndex: 0,
    bucket: scoringBucket({ tokens: 8, rows: 8, longest: 8 }),
    candidates,
    keyOf: String,
    rounds: ROUNDS,
    decidedBy: 'final',
    known: [],
    ...change,
  });

/** From pairs of a schedule and its seconds. */
const knownOf = (...pairs: readonly (readonly [number, number])[]): readonly TimedSchedule<number>[] =>
  pairs.map(([schedule, seconds]) => ({ schedule, seconds }));
const finalOf = (...pairs: readonly (readonly [number, number])[]): Final<number> => ({
  entries: knownOf(...pairs),
  marginSeconds: MARGIN,
});

/** Measures what the job proposes: `seconds` of each schedule. */
function measure(job: SearchJob<number>, seconds: (s: number) => number): readonly number[] {
  const proposed = job.propose([]);
  for (const schedule of proposed) job.learn({ schedule, seconds: seconds(schedule) });
  job.trials += proposed.length;
  return proposed;
}
const challengersOf = (job: SearchJob<number>, most = 2, promising = 1.05): readonly number[] =>
  job.challengers(most, promising).map(({ schedule }) => schedule);

describe('a job decided by finals', () => {
  it('keeps the default until a final has ended, however fast others were in bursts', () => {
    const job = jobOf();
    expect(job.standing).toBeUndefined();
    expect(job.chosen).toBe(10);
    expect(measure(job, (s) => s)).toEqual([10, 9]);
    expect([job.best?.schedule, job.chosen, job.row().bestSeconds]).toEqual([9, 10, 10]);
    job.conclude(finalOf([10, 10], [9, 9.4]));
    expect([job.chosen, job.row().bestSeconds, job.row().defaultSeconds]).toEqual([9, 9.4, 10]);
  });

  it("chooses a final's fastest only if it beats the default by more than the margin", () => {
    for (const [nine, chosen] of [
      [9.96, 10],
      [9.94, 9],
    ] as const) {
      const job = jobOf();
      measure(job, (s) => s);
      job.conclude(finalOf([10, 10], [9, nine], [8, 9.97]));
      expect(job.chosen).toBe(chosen);
    }
  });

  it('chooses no entry of a final that has failed since or may not be used', () => {
    // The default stays, or is restored.
    expect(jobOf({ known: knownOf([10, 10], [8, Infinity]), final: finalOf([10, 10], [8, 5]) }).chosen).toBe(10);
    expect(jobOf({ known: knownOf([10, 10], [8, Infinity]), final: finalOf([8, 5]) }).chosen).toBe(10);
    // The final's next entry replaces the one that failed.
    expect(jobOf({ known: knownOf([10, 10], [8, Infinity]), final: finalOf([10, 10], [8, 5], [7, 6]) }).chosen).toBe(7);
    expect(jobOf({ known: knownOf([10, 10], [99, 1]), final: finalOf([10, 10], [99, 1]) }).chosen).toBe(10);
  });

  it('drops its champion once that fails', () => {
    const job = jobOf({ known: knownOf([10, 10], [8, 9]), final: finalOf([10, 10], [8, 9]) });
    expect([job.chosen, job.isSettled]).toEqual([8, true]);
    job.learn({ schedule: 8, seconds: Infinity });
    expect([job.chosen, job.isSettled, challengersOf(job)]).toEqual([10, false, []]);
  });

  it('challenges with the champion of an earlier final first, then the fastest, never the default', () => {
    const known = knownOf([10, 10], [9, 9], [8, 10.4], [7, 8]);
    expect(challengersOf(jobOf({ known }), 9)).toEqual([7, 9, 8]);
    expect(challengersOf(jobOf({ known, final: finalOf([10, 10], [8, 9.5]) }), 9)).toEqual([8, 7, 9]);
    expect(challengersOf(jobOf({ known, final: finalOf([10, 10], [8, 9.5]) }))).toEqual([8, 7]);
    // If the default won a final, there is no champion to challenge it.
    expect(challengersOf(jobOf({ known, final: finalOf([10, 10], [8, 11]) }))).toEqual([7, 9]);
  });

  it('sends no challenger that was too slow in bursts', () => {
    const job = jobOf({ known: knownOf([10, 10], [9, 10.5], [8, 10.6], [7, Infinity]) });
    expect(challengersOf(job)).toEqual([9]);
    expect(challengersOf(job, 2, 1.06)).toEqual([9, 8]);
    // The champion is exempt: it has won under load.
    expect(challengersOf(jobOf({ known: knownOf([10, 10], [8, 12]), final: finalOf([10, 10], [8, 9.5]) }))).toEqual([
      8,
    ]);
  });

  it('sends no challenger if the default has failed or was not measured', () => {
    const known = knownOf([9, 9], [8, 8]);
    expect(challengersOf(jobOf({ known }))).toEqual([]);
    expect(challengersOf(jobOf({ known: [...known, ...knownOf([10, Infinity])] }))).toEqual([]);
  });

  it('uses the best schedule in place of a default that fails', () => {
    const job = jobOf({ known: knownOf([10, Infinity], [9, 9], [8, 8.5]) });
    expect([job.incumbent, job.incumbentSeconds, job.chosen]).toEqual([8, 8.5, 8]);
    job.conclude(finalOf([8, 8.5]));
    expect([job.chosen, job.isSettled]).toEqual([8, true]);
    // If nothing works, the fallback is used, with its estimated time.
    const hopeless = jobOf({ known: knownOf([10, Infinity]), candidates: { ...candidates, fallback: 20 } });
    expect([hopeless.incumbent, hopeless.incumbentSeconds]).toEqual([20, 20]);
    const sound = jobOf({ known: knownOf([10, 11], [9, 9]), final: finalOf([10, 11], [9, 9]) });
    expect([sound.incumbent, sound.incumbentSeconds]).toEqual([10, 11]);
  });

  it('is settled by a final that is newer than every measurement', () => {
    const known = knownOf([10, 10], [9, 9]);
    expect(jobOf({ known }).isSettled).toBe(false);
    const job = jobOf({ known, final: finalOf([10, 10], [9, 9.5]) });
    expect(job.isSettled).toBe(true);
    measure(job, (s) => s);
    expect(job.isSettled).toBe(false);
  });

  it('distinguishes recorded schedules from those it has measured', () => {
    const job = jobOf({ known: knownOf([10, 10], [9, 9]) });
    expect([job.isUnseen(10), job.isUnseen(9), job.isUnseen(7), job.reused]).toEqual([true, true, true, 2]);
    job.learn({ schedule: 9, seconds: 9.1 });
    expect([job.isUnseen(10), job.isUnseen(9)]).toEqual([true, false]);
  });

  it('proposes neighbours of the best until none is left, and no pair after them', () => {
    const job = jobOf();
    expect(measure(job, (s) => s)).toEqual([10, 9]);
    expect(measure(job, (s) => s + 5)).toEqual([8]);
    expect(job.propose([])).toEqual([]);
    expect([job.best?.schedule, job.isConfirmed]).toEqual([9, false]);
  });
});

describe('a job decided by bursts', () => {
  it('chooses the best it knows', () => {
    const job = jobOf({ decidedBy: 'bursts' });
    measure(job, (s) => s);
    expect([job.chosen, job.row().bestSeconds]).toEqual([9, 9]);
    expect(job.propose([])).toEqual([8]);
    // The winner of a final has no special role here.
    expect(
      jobOf({ decidedBy: 'bursts', known: knownOf([10, 10], [9, 9.9], [8, 9.8]), final: finalOf([10, 10], [9, 1]) })
        .chosen,
    ).toBe(8);
  });

  it('keeps its default unless the gain reaches the required share', () => {
    const rounds = { ...ROUNDS, telling: 0.05 };
    for (const [nine, chosen] of [
      [9.6, 10],
      [9.4, 9],
    ] as const) {
      const job = jobOf({ decidedBy: 'bursts', rounds, known: knownOf([10, 10], [9, nine]) });
      expect([job.chosen, job.row().bestSeconds, job.best?.schedule]).toEqual([chosen, chosen === 10 ? 10 : nine, 9]);
    }
    // A default that failed or was not measured does not count.
    expect(jobOf({ decidedBy: 'bursts', rounds, known: knownOf([10, Infinity], [9, 20]) }).chosen).toBe(9);
    expect(jobOf({ decidedBy: 'bursts', rounds, known: knownOf([9, 20]) }).chosen).toBe(9);
  });

  it('proposes the default and the best side by side last, once', () => {
    const job = jobOf({ decidedBy: 'bursts' });
    expect(measure(job, (s) => s)).toEqual([10, 9]);
    expect(measure(job, (s) => s + 5)).toEqual([8]);
    expect(measure(job, (s) => (s === 10 ? 9.5 : 9.7))).toEqual([10, 9]);
    expect([job.isConfirmed, job.chosen]).toEqual([true, 10]);
    // The pair's measurements count: the default is now the best, and one of its neighbours is untried.
    expect(measure(job, () => 20)).toEqual([11]);
    expect(job.propose([])).toEqual([]);
  });

  it('proposes no pair if the default is the best or everything is recorded', () => {
    const job = jobOf({ decidedBy: 'bursts' });
    measure(job, (s) => 30 - s);
    measure(job, () => 40);
    expect(job.best?.schedule).toBe(10);
    expect(job.propose([])).toEqual([]);
    expect(jobOf({ decidedBy: 'bursts', known: knownOf([10, 10], [9, 9], [8, 9.5]) }).propose([])).toEqual([]);
  });
});
