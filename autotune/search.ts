/**
 * Finds schedules within a time budget: ranks by a cost model, measures the best few, climbs from the winner. Serves
 * every target.
 */
import { tokensIn, TOKENS } from '../ir/scoring.js';
import type { Extents } from '../ir/extents.js';
import { kernelSignature } from '../codegen/signature.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import type { BucketSeconds } from './bucketCost.js';
import type { Records } from './database.js';
import { holdFinals, type HoldFinal } from './finals.js';
import type { Measure, MeasureRequest } from './measurement.js';
import { median } from './median.js';
import { deadline, realAlarm, unlessStopped, until, type Alarm } from './until.js';
import { Job, ROUNDS, type Candidates, type Rival, type Rounds, type TuneRow } from './searchJob.js';

/** What is searched for, how long, and who measures. `S`: the target's schedules. */
export interface SearchRequest<S> {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  /** The largest call of the function: part of signatures. */
  readonly capacity: Extents;
  /** 0: only what the records know. */
  readonly budgetSeconds: number;
  readonly measure: Measure<S>;
  /** Where Rounds.finals asks for them. */
  readonly hold?: HoldFinal<S>;
  /** Told at the start what will be measured first, a part at a time: compiles it side by side. */
  readonly prepare?: (requests: readonly MeasureRequest<S>[]) => Promise<void>;
  readonly onProgress?: (progress: TuneProgress<S>) => void;
  /** Aborted: the search gives up what it waits for and returns the best so far. */
  readonly signal?: AbortSignal;
  /** Seconds that pass; tests bring their own, and with it the alarm at the end of the budget: by default none. */
  readonly now?: () => number;
  readonly alarm?: Alarm;
}

/** A request with what its target says about schedules. */
export interface SearchOptions<S> extends SearchRequest<S> {
  readonly keyOf: (schedule: S) => string;
  readonly candidates: (kernel: Kernel, bucket: Bucket) => Candidates<S>;
  readonly records: Records<S>;
  readonly rounds?: Rounds;
  /** The vendor's time for the kernel, asked once for each job that is measured. */
  readonly rival?: (request: MeasureRequest<S>) => Promise<Rival | undefined>;
}

export interface TuneProgress<S> {
  readonly rows: readonly TuneRow<S>[];
  /** Index of the row that changed. */
  readonly changed: number;
  readonly elapsedSeconds: number;
  readonly budgetSeconds: number;
  /** While its final is held. */
  readonly final?: Bucket;
}

export interface TuneResult<S> {
  /** schedules[bucket][signature], complete: the best known, or the default. */
  readonly schedules: readonly Readonly<Record<string, S>>[];
  readonly rows: readonly TuneRow<S>[];
  /**
   * What a micro-batch of each bucket's size costs, for bucketCostModel; empty where too little was measured to say.
   */
  readonly bucketSeconds: readonly BucketSeconds[];
  readonly trials: number;
  readonly reused: number;
  /** The search ended because nothing was left to try. */
  readonly isExhausted: boolean;
}

export type { Candidates, Rival, TuneRow } from './searchJob.js';

/** What is compiled before anything is measured: so many jobs at a time, as long as this share of the budget lasts. */
const AHEAD = { jobs: 24, share: 0.15 };

/** Kernels with different signatures, the first of each, and how often each occurs. */
function distinctKernels(
  module: KernelModule,
  capacity: Extents,
): readonly { kernel: Kernel; signature: string; count: number }[] {
  const found = new Map<string, { kernel: Kernel; signature: string; count: number }>();
  for (const kernel of module.kernels) {
    const signature = kernelSignature(kernel, module, capacity);
    const known = found.get(signature);
    if (known === undefined) found.set(signature, { kernel, signature, count: 1 });
    else known.count++;
  }
  return [...found.values()];
}

/**
 * Tunes every kernel of a module for every bucket; kernels of different layers with one signature are tuned once. Time
 * goes to where the predicted run time is: of the jobs with something left to try, the one that has used least of its
 * share is next. Where there are finals (finals.ts), they end the search. Measurements are written to the database at
 * once, and those already there cost nothing, so that a search that was interrupted goes on. What is not ready at the
 * end of the budget is given up. Deterministic for given measurements and clock. What `measure` throws is thrown.
 */
export async function searchSchedules<S>(options: SearchOptions<S>): Promise<TuneResult<S>> {
  const { budgetSeconds, now } = options;
  const alarm = options.alarm ?? (now === undefined ? realAlarm : () => () => undefined);
  const stop = deadline(budgetSeconds, options.signal, alarm);
  try {
    return await search({ ...options, signal: stop.signal });
  } finally {
    stop.end();
  }
}

async function search<S>(options: SearchOptions<S> & { readonly signal: AbortSignal }): Promise<TuneResult<S>> {
  const { buckets, module, capacity, budgetSeconds, keyOf, records, signal, rounds = ROUNDS } = options;
  const now = options.now ?? ((): number => performance.now() / 1000);
  const started = now();
  const secondsLeft = (): number => Math.max(0, budgetSeconds - (now() - started));
  const isOver = (): boolean => secondsLeft() === 0 || signal.aborted;
  const { hold } = options;
  const shareOfFinals = hold === undefined ? 0 : (rounds.finals ?? 0);
  const distinct = distinctKernels(module, capacity);
  // What is there many times lies side by side in the module: a layer. It decides how long a run takes.
  const hasLayers = distinct.some(({ count }) => count > 1);
  const inFinal = ({ count }: { readonly count: number }): boolean => shareOfFinals > 0 && (count > 1 || !hasLayers);
  const jobs = distinct.flatMap(({ kernel, signature, count }) =>
    buckets.map(
      (bucket, bucketIndex) =>
        new Job({
          kernel,
          signature,
          count,
          bucketIndex,
          bucket,
          candidates: options.candidates(kernel, bucket),
          keyOf,
          rounds,
          decidedBy: inFinal({ count }) ? 'final' : 'bursts',
          known: records.known(signature, bucket),
          final: records.finals.known(signature, bucket),
        }),
    ),
  );
  const report = (changed: Job<S>, final?: Bucket): void => {
    options.onProgress?.({
      rows: jobs.map((job) => job.row()),
      changed: jobs.indexOf(changed),
      elapsedSeconds: now() - started,
      budgetSeconds,
      ...(final === undefined ? {} : { final }),
    });
  };
  // Weights are those of the start: a job that got faster keeps the time it was promised.
  const weights = new Map(jobs.map((job) => [job, job.weight]));
  const totalWeight = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  // First a look at everything.
  const urgency = (job: Job<S>): number => ((job.isFresh ? 1e9 : 1) * weights.get(job)!) / (job.spentSeconds + 1e-3);
  const requestOf = (job: Job<S>, schedules: readonly S[]): MeasureRequest<S> => {
    const { kernel, bucket, start, startSeconds = Infinity } = job;
    const known = {
      kernel,
      module,
      bucket,
      reference: start,
      schedules,
      signal,
      ...(Number.isFinite(startSeconds) ? { referenceSeconds: startSeconds } : {}),
    };
    // A pair that is compared is timed in full.
    return job.isConfirmed || job.best === undefined ? known : { ...known, bestSeconds: job.best.seconds };
  };
  const measure = async (job: Job<S>, schedules: readonly S[]): Promise<void> => {
    for await (const measurement of until(options.measure(requestOf(job, schedules)), signal)) {
      const { schedule } = measurement;
      const failure = 'failure' in measurement ? measurement.failure : undefined;
      const seconds = 'failure' in measurement ? [] : measurement.seconds;
      records.append(job.signature, job.bucket, schedule, seconds, failure);
      job.learn({ schedule, seconds: failure === undefined ? median(seconds) : Infinity });
      job.trials++;
      report(job);
      if (isOver()) break;
    }
  };
  if (options.prepare !== undefined) {
    // In the order in which they are looked at.
    const fresh = jobs.filter((job) => job.isFresh).sort((a, b) => weights.get(b)! - weights.get(a)!);
    for (
      let at = 0;
      at < fresh.length && !isOver() && secondsLeft() > (1 - AHEAD.share) * budgetSeconds;
      at += AHEAD.jobs
    ) {
      await unlessStopped(
        options.prepare(fresh.slice(at, at + AHEAD.jobs).map((job) => requestOf(job, job.propose([])))),
        signal,
      );
    }
  }
  // Of what compiling has left.
  const secondsOfFinals = shareOfFinals * secondsLeft();
  while (!isOver() && secondsLeft() > secondsOfFinals) {
    const job = jobs
      .filter((each) => !each.isDone)
      .reduce<Job<S> | undefined>(
        (top, each) => (top === undefined || urgency(each) > urgency(top) ? each : top),
        undefined,
      );
    if (job === undefined) break;
    const winners = jobs
      .filter((other) => other.signature === job.signature && other !== job && other.best !== undefined)
      .sort((a, b) => Math.abs(a.bucketIndex - job.bucketIndex) - Math.abs(b.bucketIndex - job.bucketIndex))
      .map((other) => other.best!.schedule);
    const schedules = job.propose(winners);
    if (schedules.length === 0) {
      job.isDone = true;
      report(job);
      continue;
    }
    const from = now();
    await measure(job, schedules);
    if (options.rival !== undefined && job.rival === undefined && !isOver()) {
      job.rival = await unlessStopped(options.rival(requestOf(job, [])), signal);
      if (job.rival !== undefined) report(job);
    }
    job.spentSeconds += now() - from;
  }
  const isDecided =
    hold === undefined ||
    (await holdFinals(jobs.filter(inFinal), {
      module,
      hold: (request) => unlessStopped(hold(request), signal),
      check: measure,
      isOver,
      weightOf: (job) => weights.get(job)! / totalWeight,
      seconds: secondsOfFinals,
      secondsLeft,
      record: (job, final) => {
        records.finals.append(job.signature, job.bucket, final);
      },
      onProgress: report,
      signal,
    }));
  return summarise(jobs, buckets, isDecided);
}

/** Share of a bucket's predicted time that must have been measured before the bucket's cost is one to go by. */
const ENOUGH = 0.5;

/**
 * Seconds of each bucket: measured kernels as measured, the others as estimated, the estimates scaled by what the
 * measured ones of all buckets took against theirs. Empty where less than half of the largest bucket was measured.
 */
function costOfBuckets<S>(jobs: readonly Job<S>[], buckets: readonly Bucket[]): readonly BucketSeconds[] {
  const sum = (of: readonly Job<S>[], seconds: (job: Job<S>) => number): number =>
    of.reduce((total, job) => total + job.count * seconds(job), 0);
  const estimate = (job: Job<S>): number => job.candidates.cost(job.chosen);
  const measured = jobs.filter((job) => job.standing !== undefined);
  const largest = buckets.reduce((top, bucket, i) => (tokensIn(bucket) > tokensIn(buckets[top]!) ? i : top), 0);
  const inLargest = (job: Job<S>): boolean => job.bucketIndex === largest;
  if (
    measured.length === 0 ||
    sum(measured.filter(inLargest), estimate) < ENOUGH * sum(jobs.filter(inLargest), estimate)
  )
    return [];
  const scale = sum(measured, (job) => job.standing!.seconds) / sum(measured, estimate);
  const seconds = (job: Job<S>): number => job.standing?.seconds ?? scale * estimate(job);
  const isAttention = (job: Job<S>): boolean => job.kernel.anchor === 'attention';
  return buckets.map((bucket, i) => {
    const own = jobs.filter((job) => job.bucketIndex === i);
    return {
      ...bucket,
      seconds: sum(own, seconds),
      attentionSeconds: sum(own.filter(isAttention), seconds),
      rowSeconds: sum(
        own.filter((job) => !isAttention(job) && job.kernel.rows !== TOKENS),
        seconds,
      ),
    };
  });
}

function summarise<S>(jobs: readonly Job<S>[], buckets: readonly Bucket[], isDecided: boolean): TuneResult<S> {
  const schedules = buckets.map((_, i) =>
    Object.fromEntries(jobs.filter((job) => job.bucketIndex === i).map((job) => [job.signature, job.chosen])),
  );
  return {
    schedules,
    rows: jobs.map((job) => job.row()),
    bucketSeconds: costOfBuckets(jobs, buckets),
    isExhausted: isDecided && jobs.every((job) => job.isDone),
    trials: jobs.reduce((sum, job) => sum + job.trials, 0),
    reused: jobs.reduce((sum, job) => sum + job.reused, 0),
  };
}
