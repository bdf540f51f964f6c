/** Finals with simulated sequences: which schedules win, by how much, and what is recorded. */
import { scoringBucket, tokensIn } from '../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import type { Final, TimedSchedule } from '../../autotune/records.js';
import {
  challengersOf,
  dueFinals,
  holdFinal,
  judge,
  type FinalRequest,
  type HoldFinal,
} from '../../autotune/finals.js';
import { SearchJob, type Candidates, type JobParts } from '../../autotune/searchJob.js';
import { llamaModule } from './fixture.js';

const module = llamaModule();
const [FIRST, SECOND] = module.kernels.filter(({ path }) => path.startsWith('layers.0.')) as [
  (typeof module.kernels)[number],
  (typeof module.kernels)[number],
];
const BUCKET = scoringBucket({ tokens: 8, rows: 8, longest: 8 });
const ROUNDS = 6;

/** Schedules are numbers. The default is 10; the fallback, which cannot fail, is 20. */
const candidates: Candidates<number> = {
  start: 10,
  fallback: 20,
  cost: (s) => s,
  mayUse: () => true,
  enumerate: () => [9, 10],
  neighbours: (s) => [s - 1, s + 1],
  work: { flops: 1, scalarOps: 0, bytes: 1 },
  shareOfPeak: () => 1,
};
const knownOf = (...pairs: readonly (readonly [number, number])[]): readonly TimedSchedule<number>[] =>
  pairs.map(([schedule, seconds]) => ({ schedule, seconds }));
const jobOf = (known: readonly TimedSchedule<number>[], change: Partial<JobParts<number>> = {}): SearchJob<number> =>
  new SearchJob({
    kernel: FIRST,
    signature: 's',
    recordKey: 's',
    count: 3,
    bucketIndex: 0,
    bucket: BUCKET,
    candidates,
    keyOf: String,
    rounds: { first: 2, step: 2, ideas: 1, finals: 0.3 },
    decidedBy: 'final',
    known,
    ...change,
  });

interface Stage {
  readonly hold: HoldFinal<number>;
  readonly requests: FinalRequest<number>[];
  /** Recorded finals, by kernel. */
  readonly finals: Final<number>[];
  readonly run: (
    jobs: readonly SearchJob<number>[],
    change?: Partial<Parameters<typeof holdFinal<number>>[2]>,
  ) => Promise<boolean>;
}

/** `seconds`: of a whole sequence. `noise`: relative deviation of a round. `meeting`: 0, 1, … */
function stage(
  seconds: (schedules: readonly number[], meeting: number) => number,
  noise: (contender: number, round: number) => number = () => 0,
): Stage {
  const requests: FinalRequest<number>[] = [];
  const finals: Final<number>[] = [];
  const hold: HoldFinal<number> = (request) => {
    const meeting = requests.push(request) - 1;
    return Promise.resolve(
      request.contenders.map((schedules, i) =>
        Array.from({ length: ROUNDS }, (_, round) => seconds(schedules, meeting) * (1 + noise(i, round))),
      ),
    );
  };
  return {
    hold,
    requests,
    finals,
    run: (jobs, change = {}) =>
      holdFinal(jobs, hold, {
        module,
        seconds: 10,
        record: (_job, final) => {
          finals.push(final);
        },
        ...change,
      }),
  };
}
const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const schedulesOf = ({ entries }: Final<number>): readonly number[] => entries.map(({ schedule }) => schedule);

describe('judge', () => {
  it('gives mean and standard error of the difference to the first contender, round by round', () => {
    const [first, second, third] = judge([
      [1, 1, 1, 1],
      [1.1, 1.3, 1.1, 1.3],
      [0.5, 0.5, 0.5, 0.5],
    ]);
    expect(first).toEqual({ difference: 0, error: 0 });
    expect(second!.difference).toBeCloseTo(0.2, 12);
    // Deviations of 0.1 each: variance 4 · 0.01 / 3.
    expect(second!.error).toBeCloseTo(Math.sqrt(0.04 / 3 / 4), 12);
    expect(third).toEqual({ difference: -0.5, error: 0 });
  });

  it('is not affected by a drifting clock', () => {
    const drift = [1, 1.1, 1.3, 1.2, 0.9, 0.7];
    const [, slower] = judge([drift, drift.map((pace) => 1.02 * pace)]);
    expect(slower!.difference).toBeCloseTo(0.02, 12);
    expect(slower!.error).toBeLessThan(1e-12);
  });

  it('assumes no error for a single round', () => {
    expect(judge([[2], [1]])).toEqual([
      { difference: 0, error: 0 },
      { difference: -0.5, error: 0 },
    ]);
  });
});

describe('holdFinal', () => {
  it('compares sequences that differ from the defaults in one kernel, then all winners together', async () => {
    const { requests, finals, run } = stage(sum);
    const jobs = [
      jobOf(knownOf([10, 10], [8, 8], [9, 9], [7, 9.5])),
      jobOf(knownOf([10, 10], [6, 7]), { kernel: SECOND, signature: 't' }),
    ];
    expect(await run(jobs)).toBe(true);
    expect(requests.map(({ contenders }) => contenders)).toEqual([
      [
        [10, 10],
        [8, 10],
        [9, 10],
        [10, 6],
      ],
      [
        [10, 10],
        [8, 6],
      ],
    ]);
    for (const request of requests) expect(request).toMatchObject({ module, bucket: BUCKET, kernels: [FIRST, SECOND] });
    // The second comparison is shorter, and the device is warm.
    expect(requests[0]!.seconds).toBe(10);
    expect(requests[1]!.seconds).toBeLessThan(10);
    expect(requests[1]!.settling).toBeLessThan(requests[0]!.settling);
    expect(jobs.map(({ chosen }) => chosen)).toEqual([8, 6]);
    // The time that the sequence gains is subtracted from the default's time.
    expect(finals.map(schedulesOf)).toEqual([
      [10, 8, 9],
      [10, 6],
    ]);
    expect(finals[0]!.entries[1]!.seconds).toBeCloseTo(8, 12);
    expect(finals[1]!.entries[1]!.seconds).toBeCloseTo(6, 12);
    expect(finals[0]!.marginSeconds).toBeCloseTo(0.002 * 20, 12);
    expect(jobs.map(({ trials }) => trials)).toEqual([2, 1]);
  });

  it('chooses the better of two winning challengers, whichever was faster in a burst', async () => {
    const { requests, run } = stage(([s]) => (s === 10 ? 10 : s === 8 ? 9.5 : 9));
    const job = jobOf(knownOf([10, 10], [8, 5], [9, 6]));
    await run([job]);
    expect(requests[1]!.contenders).toEqual([[10], [9]]);
    expect([job.chosen, job.row().bestSeconds]).toEqual([9, 9]);
  });

  it('accepts no gain below 0.2 % of the sequence', async () => {
    for (const [gain, chosen] of [
      [0.0019, 10],
      [0.0021, 8],
    ] as const) {
      const { requests, finals, run } = stage(([s]) => (s === 8 ? 10 * (1 - gain) : 10));
      const job = jobOf(knownOf([10, 10], [8, 5]));
      await run([job]);
      expect([job.chosen, requests.length]).toEqual([chosen, chosen === 10 ? 1 : 2]);
      expect(finals.map(schedulesOf)).toEqual([[10, 8]]);
    }
  });

  it('accepts no gain below three standard errors', async () => {
    // The challengers' rounds deviate by 1 %: a standard error of 0.45 %.
    const noise = (contender: number, round: number): number => (contender === 0 ? 0 : round % 2 === 0 ? 0.01 : -0.01);
    for (const [gain, chosen] of [
      [0.012, 10],
      [0.015, 8],
    ] as const) {
      const { finals, run } = stage(([s]) => (s === 8 ? 10 * (1 - gain) : 10), noise);
      const job = jobOf(knownOf([10, 10], [8, 5]));
      await run([job]);
      expect(job.chosen).toBe(chosen);
      expect(finals[0]!.marginSeconds / 10).toBeCloseTo(3 * (1 - gain) * Math.sqrt(6e-4 / 5 / 6), 12);
    }
  });

  it('chooses a steady winner over a noisy challenger, whether that seems faster or slower', async () => {
    const noise = (contender: number, round: number): number => (contender !== 2 ? 0 : round % 2 === 0 ? 0.02 : -0.02);
    for (const [unsteady, recorded] of [
      [10, [10, 8, 9]],
      [9.9, [10, 8]],
    ] as const) {
      const { finals, run } = stage(([s]) => (s === 8 ? 9.95 : s === 9 ? unsteady : 10), noise);
      const job = jobOf(knownOf([10, 10], [8, 5], [9, 6]));
      await run([job]);
      expect([job.chosen, finals.map(schedulesOf)]).toEqual([8, [recorded]]);
      expect(jobOf(knownOf([10, 10], [8, 5], [9, 6]), { final: finals[0]! }).chosen).toBe(8);
    }
  });

  it('drops all winners if they do not win together, and keeps the result on record', async () => {
    // Each gains 10 % alone; together they slow each other down.
    const { requests, finals, run } = stage(([a, b]) =>
      a === 8 && b === 8 ? 21 : a === 8 || b === 8 ? 18 : a === 9 ? 20.5 : 20,
    );
    const jobs = [
      jobOf(knownOf([10, 10], [8, 8], [9, 9])),
      jobOf(knownOf([10, 10], [8, 8]), { kernel: SECOND, signature: 't' }),
    ];
    expect(await run(jobs)).toBe(true);
    expect(requests[1]!.contenders).toEqual([
      [10, 10],
      [8, 8],
    ]);
    expect(jobs.map(({ chosen }) => chosen)).toEqual([10, 10]);
    expect(finals.map(schedulesOf)).toEqual([[10, 9], [10]]);
    for (const { entries, marginSeconds } of finals)
      for (const { schedule, seconds } of entries)
        if (schedule !== 10) expect(seconds).toBeGreaterThan(10 - marginSeconds);
    // A new job that reads only the record decides the same.
    expect(jobOf(knownOf([10, 10], [8, 8], [9, 9]), { final: finals[0]! }).chosen).toBe(10);
  });

  it('requires a single winner to win twice', async () => {
    const { finals, run } = stage(([s], meeting) => (s === 8 && meeting === 0 ? 9 : 10));
    const job = jobOf(knownOf([10, 10], [8, 8]));
    expect(await run([job])).toBe(true);
    expect([job.chosen, finals.map(schedulesOf)]).toEqual([10, [[10]]]);
  });

  it('records the default without using the device if there is no challenger', async () => {
    const { requests, finals, run } = stage(sum);
    const job = jobOf(knownOf([10, 10], [9, 20], [8, Infinity]));
    expect(await run([job])).toBe(true);
    expect(requests).toEqual([]);
    expect(finals).toEqual([{ entries: [{ schedule: 10, seconds: 10 }], marginSeconds: 0.02 }]);
    expect([job.chosen, job.isSettled, dueFinals([job], () => 1)]).toEqual([10, true, []]);
  });

  it('records nothing if the first or the second comparison cannot be held', async () => {
    for (const last of [0, 1]) {
      const { hold, requests, finals } = stage(sum);
      const job = jobOf(knownOf([10, 10], [8, 8]));
      const some: HoldFinal<number> = (request) =>
        requests.length < last ? hold(request) : Promise.resolve(undefined);
      expect(
        await holdFinal([job], some, {
          module,
          seconds: 10,
          record: (_job, final) => {
            finals.push(final);
          },
        }),
      ).toBe(false);
      expect([requests.length, finals, job.chosen, job.isSettled]).toEqual([last, [], 10, false]);
    }
  });

  it('runs the stand-in of a failing default in the sequence, without a challenger', async () => {
    const { requests, finals, run } = stage(sum);
    const failing = jobOf(knownOf([10, Infinity], [9, 9], [8, 7]));
    const jobs = [failing, jobOf(knownOf([10, 10], [6, 6]), { kernel: SECOND, signature: 't' })];
    expect(await run(jobs)).toBe(true);
    expect(requests.map(({ contenders }) => contenders)).toEqual([
      [
        [8, 10],
        [8, 6],
      ],
      [
        [8, 10],
        [8, 6],
      ],
    ]);
    // There was no default to beat: bursts decide, and later ones may replace the result.
    expect(finals.map(schedulesOf)).toEqual([[10, 6]]);
    expect([jobs.map(({ chosen }) => chosen), failing.row().bestSeconds, dueFinals([failing], () => 1)]).toEqual([
      [8, 6],
      7,
      [],
    ]);
    failing.learn({ schedule: 7, seconds: 2 });
    expect(failing.chosen).toBe(7);
    // If everything fails, the fallback runs.
    const hopeless = stage(sum);
    await hopeless.run([jobOf(knownOf([10, Infinity], [8, Infinity])), jobOf(knownOf([10, 10], [6, 6]))]);
    expect(hopeless.requests[0]!.contenders[0]).toEqual([20, 10]);
  });

  it('includes the default of a kernel that was never measured, and records nothing for it', async () => {
    const { requests, finals, run } = stage(sum);
    const fresh = jobOf(knownOf([8, 8]));
    const jobs = [fresh, jobOf(knownOf([10, 10], [6, 6]), { kernel: SECOND, signature: 't' })];
    expect(await run(jobs)).toBe(true);
    expect(requests[0]!.contenders).toEqual([
      [10, 10],
      [10, 6],
    ]);
    expect(finals.map(schedulesOf)).toEqual([[10, 6]]);
    expect([fresh.isFresh, fresh.isSettled, fresh.trials]).toEqual([true, false, 0]);
  });

  it("credits no schedule with less than 10 % of the default's time", async () => {
    // The whole sequence gains twice the time of the first kernel's default.
    const { finals, run } = stage(([s]) => (s === 8 ? 81 : 101));
    const job = jobOf(knownOf([10, 1], [8, 1]));
    await run([job, jobOf(knownOf([10, 100]), { kernel: SECOND, signature: 't' })]);
    expect(finals[0]!.entries).toEqual([
      { schedule: 10, seconds: 1 },
      { schedule: 8, seconds: 0.1 },
    ]);
    expect(job.chosen).toBe(8);
  });

  it('passes on the callback for rounds and the abort signal', async () => {
    const { requests, run } = stage(sum);
    const { signal } = new AbortController();
    const onRound = (): void => undefined;
    await run([jobOf(knownOf([10, 10], [8, 8]))], { onRound, signal, seconds: 3 });
    expect(requests[0]).toMatchObject({ onRound, signal, seconds: 3 });
    expect(requests[1]).toMatchObject({ onRound, signal });
  });
});

describe('challengersOf', () => {
  it('are the two fastest schedules that came near the default', () => {
    expect(challengersOf(jobOf(knownOf([10, 10], [9, 9], [8, 10.4], [7, 10.6])))).toEqual(knownOf([9, 9], [8, 10.4]));
    expect(challengersOf(jobOf(knownOf([10, 10], [9, 9], [8, 8], [7, 7])))).toEqual(knownOf([7, 7], [8, 8]));
    expect(challengersOf(jobOf(knownOf([10, 10], [7, 10.6])))).toEqual([]);
  });
});

describe('dueFinals', () => {
  const settled = { final: { entries: knownOf([10, 10], [9, 9]), marginSeconds: 0 } };
  const known = knownOf([10, 10], [9, 9]);
  const weightOf = ({ bucket, bucketIndex }: SearchJob<number>): number => tokensIn(bucket) * (bucketIndex + 1);

  it('start with the heaviest bucket, with its kernels in order', () => {
    const jobs = [
      [0, 8],
      [1, 8],
      [2, 2],
      [0, 8],
      [1, 1],
    ].map(([bucketIndex, tokens]) =>
      jobOf(known, { bucketIndex: bucketIndex!, bucket: { ...BUCKET, extents: { ...BUCKET.extents, T: tokens! } } }),
    );
    const due = dueFinals(jobs, weightOf);
    expect(due.map(({ weight }) => weight)).toEqual([18, 16, 6]);
    expect(due.map(({ contestants }) => contestants)).toEqual([[jobs[1], jobs[4]], [jobs[0], jobs[3]], [jobs[2]]]);
  });

  it('leave out buckets where nothing was measured since the last final', () => {
    const jobs = [
      jobOf(known, settled),
      jobOf(known, settled),
      jobOf(known, { bucketIndex: 1, ...settled }),
      jobOf(known, { bucketIndex: 1 }),
    ];
    // One kernel without a final is enough.
    expect(dueFinals(jobs, weightOf).map(({ contestants }) => contestants)).toEqual([jobs.slice(2)]);
    jobs[0]!.learn({ schedule: 8, seconds: 8 });
    jobs[0]!.trials++;
    expect(dueFinals(jobs, weightOf)).toHaveLength(2);
  });

  it('leave out buckets with no measured kernel, but not those with one', () => {
    const jobs = [
      jobOf(known),
      jobOf([]),
      jobOf([], { bucketIndex: 1 }),
      jobOf([], { bucketIndex: 2 }),
      jobOf(known, { bucketIndex: 2, ...settled }),
    ];
    expect(dueFinals(jobs, weightOf).map(({ contestants }) => contestants)).toEqual([jobs.slice(0, 2)]);
    expect(dueFinals([], weightOf)).toEqual([]);
  });
});
