/**
 * Finds schedules within a time budget: ranks candidates by a cost model, measures the best few, and climbs from the
 * winner. Shared by all targets.
 */
import { computationHash, kernelSignature } from '../codegen/signature.js';
import type { Extents } from '../ir/extents.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import { defined } from '../system/defined.js';
import { type BucketSeconds, costOfBuckets } from './buckets.js';
import { type HoldFinal, holdFinals } from './finals.js';
import {
  type Alarm,
  deadline,
  type Measure,
  measuredPlace,
  type MeasureRequest,
  realAlarm,
  unlessStopped,
  until,
} from './measurement.js';
import { type JobFacts, median, type Records } from './records.js';
import {
  type Candidates,
  SearchJob,
  knownOf,
  type VendorBaseline,
  type Rounds,
  ROUNDS,
  type TuneRow,
  twinsOf,
  weightsOf,
} from './searchJob.js';

/** What to search for, for how long, and how to measure. `S`: the target's schedules. */
export interface SearchRequest<S> {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  /** The largest call of the function. It is part of signatures. */
  readonly capacity: Extents;
  /** 0: use only what the records hold. */
  readonly budgetSeconds: number;
  /**
   * Whether every bucket gets the same share of time, as a function needs whose small calls are as frequent as its
   * large ones. Default: time goes where a call of each bucket would take longest.
   */
  readonly isEven?: boolean;
  readonly measure: Measure<S>;
  /** Required if Rounds.finals is set. */
  readonly hold?: HoldFinal<S>;
  /** Called at the start with the first requests, some at a time, to compile them in parallel. */
  readonly prepare?: (requests: readonly MeasureRequest<S>[]) => Promise<void>;
  readonly onProgress?: (progress: TuneProgress<S>) => void;
  /** When aborted, the search stops waiting and returns the best so far. */
  readonly signal?: AbortSignal;
  /** Clock in seconds. A test's own clock also replaces the alarm at the end of the budget, by default with none. */
  readonly now?: () => number;
  readonly alarm?: Alarm;
}

/** A request, with what its target knows about schedules. */
export interface SearchOptions<S> extends SearchRequest<S> {
  readonly keyOf: (schedule: S) => string;
  readonly candidates: (kernel: Kernel, bucket: Bucket) => Candidates<S>;
  readonly records: Records<S>;
  readonly rounds?: Rounds;
  /** The bare product of a contraction that a vendor's library computes, if it has one. */
  readonly product?: (kernel: Kernel, bucket: Bucket) => JobFacts<S>['product'];
  /** The vendor's time for the kernel, asked once per job that is measured. */
  readonly baseline?: (request: MeasureRequest<S>) => Promise<VendorBaseline | undefined>;
}

export interface TuneProgress<S> {
  readonly rows: readonly TuneRow<S>[];
  /** Index of the row that changed. */
  readonly changed: number;
  readonly elapsedSeconds: number;
  readonly budgetSeconds: number;
  /** The bucket whose final is being held. */
  readonly final?: Bucket;
}

export interface SearchResult<S> {
  /** schedules[bucket][signature], complete: the best known, or the default. */
  readonly schedules: readonly Readonly<Record<string, S>>[];
  readonly rows: readonly TuneRow<S>[];
  /** Cost of a micro-batch of each bucket's size, for bucketCostModel; empty if too little was measured. */
  readonly bucketSeconds: readonly BucketSeconds[];
  readonly trials: number;
  readonly reused: number;
  /** Whether the search ended because nothing was left to try. */
  readonly isExhausted: boolean;
}

export type { Candidates, VendorBaseline, TuneRow } from './searchJob.js';

/** Compiled before measuring: this many jobs at a time, for at most this share of the budget. */
const AHEAD = { jobs: 24, share: 0.15 };

/** Kernels with distinct signatures: the first of each, and how often each occurs. */
function distinctKernels(
  module: KernelModule,
  capacity: Extents,
): readonly { kernel: Kernel; signature: string; recordKey: string; count: number }[] {
  const found = new Map<string, { kernel: Kernel; signature: string; recordKey: string; count: number }>();
  for (const kernel of module.kernels) {
    const signature = kernelSignature(kernel, module, capacity);
    const known = found.get(signature);
    if (known === undefined)
      found.set(signature, { kernel, signature, recordKey: computationHash(kernel, module, capacity), count: 1 });
    else known.count++;
  }
  return [...found.values()];
}

/**
 * Tunes every kernel of a module for every bucket. Kernels of different layers that share a signature are tuned once.
 * Time is spent in proportion to predicted run time: of the jobs with something left to try, the one that has used the
 * smallest part of its share is next. Finals (finals.ts), if any, end the search. Measurements are written to the
 * database at once, and existing ones are reused, so an interrupted search can continue. Work unfinished at the end of
 * the budget is abandoned. Deterministic for given measurements and clock. Errors from `measure` are passed on.
 */
export async function searchSchedules<S>(options: SearchOptions<S>): Promise<SearchResult<S>> {
  const { budgetSeconds, now } = options;
  const alarm = options.alarm ?? (now === undefined ? realAlarm : () => () => undefined);
  const stop = deadline(budgetSeconds, options.signal, alarm);
  try {
    return await search({ ...options, signal: stop.signal });
  } finally {
    stop.end();
  }
}

async function search<S>(options: SearchOptions<S> & { readonly signal: AbortSignal }): Promise<SearchResult<S>> {
  const { buckets, module, capacity, budgetSeconds, keyOf, records, signal, rounds = ROUNDS } = options;
  const now = options.now ?? ((): number => performance.now() / 1000);
  const started = now();
  const secondsLeft = (): number => Math.max(0, budgetSeconds - (now() - started));
  const isOver = (): boolean => secondsLeft() === 0 || signal.aborted;
  const { hold } = options;
  const shareOfFinals = hold === undefined ? 0 : (rounds.finals ?? 0);
  const distinct = distinctKernels(module, capacity);
  // Kernels that occur many times are adjacent in the module: they form a layer, which dominates a run.
  const hasLayers = distinct.some(({ count }) => count > 1);
  const inFinal = ({ count }: { readonly count: number }): boolean => shareOfFinals > 0 && (count > 1 || !hasLayers);
  const jobs = distinct.flatMap(({ kernel, signature, recordKey, count }) =>
    buckets.map(
      (bucket, bucketIndex) =>
        new SearchJob({
          kernel,
          signature,
          recordKey,
          count,
          bucketIndex,
          bucket,
          candidates: options.candidates(kernel, bucket),
          keyOf,
          rounds,
          decidedBy: inFinal({ count }) ? 'final' : 'bursts',
          known: knownOf(records, recordKey, [measuredPlace(kernel, module, bucket), bucket]),
          final: records.finals.known(signature, bucket),
        }),
    ),
  );
  const report = (changed: SearchJob<S>, final?: Bucket): void => {
    options.onProgress?.({
      rows: jobs.map((job) => job.row()),
      changed: jobs.indexOf(changed),
      elapsedSeconds: now() - started,
      budgetSeconds,
      ...defined({ final }),
    });
  };
  // Weights are fixed at the start: a job that becomes faster keeps its share of time.
  const weights = weightsOf(jobs, options.isEven === true);
  const twins = twinsOf(jobs, (job) => measuredPlace(job.kernel, module, job.bucket));
  const totalWeight = [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  // Every job gets one round first.
  const urgency = (job: SearchJob<S>): number =>
    ((job.isFresh ? 1e9 : 1) * weights.get(job)!) / (job.spentSeconds + 1e-3);
  const requestOf = (job: SearchJob<S>, schedules: readonly S[]): MeasureRequest<S> => {
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
    // A pair under comparison is timed in full.
    return job.isConfirmed || job.best === undefined ? known : { ...known, bestSeconds: job.best.seconds };
  };
  const described = new Set<SearchJob<S>>();
  const describe = (job: SearchJob<S>, place: Bucket): void => {
    if (described.has(job)) return;
    described.add(job);
    const { kernel, count, signature, start: schedule } = job;
    const { flops, bytes } = job.candidates.work;
    const product = options.product?.(kernel, job.bucket);
    records.describe(job.recordKey, place, {
      kernel: kernel.path,
      count,
      signature,
      schedule,
      flops,
      bytes,
      estimateSeconds: job.candidates.cost(schedule),
      ...defined({ product }),
    });
  };
  const measure = async (job: SearchJob<S>, schedules: readonly S[]): Promise<void> => {
    for await (const measurement of until(options.measure(requestOf(job, schedules)), signal)) {
      const { schedule } = measurement;
      const failure = 'failure' in measurement ? measurement.failure : undefined;
      const seconds = 'failure' in measurement ? [] : measurement.seconds;
      const known = { schedule, seconds: failure === undefined ? median(seconds) : Infinity };
      const place = measuredPlace(job.kernel, module, job.bucket);
      describe(job, place);
      records.append(job.recordKey, place, schedule, seconds, failure);
      job.learn(known);
      job.trials++;
      for (const twin of twins.get(job) ?? []) if (twin.share(known)) report(twin);
      report(job);
      if (isOver()) break;
    }
  };
  if (options.prepare !== undefined) {
    // In the order of the first rounds.
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
  // A share of the time that compiling has left.
  const secondsOfFinals = shareOfFinals * secondsLeft();
  while (!isOver() && secondsLeft() > secondsOfFinals) {
    const job = jobs
      .filter((each) => !each.isDone)
      .reduce<SearchJob<S> | undefined>(
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
    if (options.baseline !== undefined && job.baseline === undefined && !isOver()) {
      job.baseline = await unlessStopped(options.baseline(requestOf(job, [])), signal);
      if (job.baseline !== undefined) report(job);
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
  return summarize(jobs, buckets, isDecided);
}

function summarize<S>(jobs: readonly SearchJob<S>[], buckets: readonly Bucket[], isDecided: boolean): SearchResult<S> {
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
