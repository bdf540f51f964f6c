/** Finds schedules within a time budget: ranks by the cost model, measures the best few, climbs from the winner. */
import { defaultSchedule, isLegal, kernelSignature, type CpuFacts } from '../codegen/cpu/index.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket, CpuSchedule } from '../ir/plan.js';
import type { BucketSeconds } from './bucketCost.js';
import { enumerateSpace, neighbours, scheduleKey, scheduleSpace, type Space } from './candidates.js';
import { scheduleCost, shareOfPeak, type MachineModel } from './costModel.js';
import { median, type Known, type TuningDatabase, type TuningTarget } from './database.js';
import type { Measure } from './measure.js';
import { kernelWork, type Work, type WorkSize } from './work.js';

export interface TuneOptions {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  /** What defaults and legality are judged by. */
  readonly facts: CpuFacts;
  readonly machine: MachineModel;
  /** Largest T of the plan: part of signatures. */
  readonly tokensCapacity: number;
  /** 0: only what the database knows. */
  readonly budgetSeconds: number;
  readonly database: TuningDatabase;
  readonly target: TuningTarget;
  readonly measure: Measure;
  readonly onProgress?: (progress: TuneProgress) => void;
  /** Aborted: the search ends at the next measurement and returns the best so far. */
  readonly signal?: AbortSignal;
  /** Seconds that pass; tests bring their own. */
  readonly now?: () => number;
}

/** One line of the table: a kernel in a bucket. */
export interface TuneRow {
  /** Model path of the first kernel with this signature. */
  readonly kernel: string;
  readonly signature: string;
  /** Kernels of the module that share it. */
  readonly count: number;
  readonly bucket: Bucket;
  readonly schedule: CpuSchedule;
  /** Measured now and known before. */
  readonly trials: number;
  readonly reused: number;
  /** Medians; absent where nothing was measured. */
  readonly bestSeconds?: number;
  readonly defaultSeconds?: number;
  /** Rate of the best on contractions; 0 for kernels without any. */
  readonly gflops?: number;
  /** Of arithmetic for contractions, of memory bandwidth for the rest; may exceed 1 where data stay in caches. */
  readonly shareOfPeak?: number;
  /** Candidates that failed: a result that differs, a compiler that refuses. */
  readonly failures: number;
  readonly isDone: boolean;
}

export interface TuneProgress {
  readonly rows: readonly TuneRow[];
  /** Index of the row that changed. */
  readonly changed: number;
  readonly elapsedSeconds: number;
  readonly budgetSeconds: number;
}

export interface TuneResult {
  /** schedules[bucket][signature], complete: the best known, or the default. */
  readonly schedules: readonly Readonly<Record<string, CpuSchedule>>[];
  readonly rows: readonly TuneRow[];
  /** What a micro-batch of each bucket's size costs, for bucketCostModel; empty where too little was measured to say. */
  readonly bucketSeconds: readonly BucketSeconds[];
  readonly trials: number;
  readonly reused: number;
  /** The search ended because nothing was left to try. */
  readonly isExhausted: boolean;
}

/** Candidates of the first round, and of each step of the climb. */
const FIRST_ROUND = 6;
const STEP = 4;
const IDEAS_BESIDE_WINNERS = 2;
/** A neighbour that the model puts this far above the best measured one's estimate is not tried. */
const IMPLAUSIBLE = 3;

export const sizeOf = (bucket: Bucket): WorkSize => ({ T: bucket.tokens, R: bucket.rows, longest: bucket.longest });

/** Search state of one (signature, bucket). */
class Job {
  readonly kernel: Kernel;
  readonly signature: string;
  readonly count: number;
  readonly bucketIndex: number;
  readonly start: CpuSchedule;
  readonly cost: (schedule: CpuSchedule) => number;
  readonly work: Work;
  /** By schedule key. */
  readonly known = new Map<string, Known>();
  best: Known | undefined;
  trials = 0;
  reused = 0;
  spentSeconds = 0;
  isConfirmed = false;
  isDone = false;
  private readonly space: Space;
  private ranked: readonly CpuSchedule[] | undefined;
  private readonly options: TuneOptions;

  constructor(options: TuneOptions, kernel: Kernel, signature: string, count: number, bucketIndex: number) {
    const bucket = options.buckets[bucketIndex]!;
    this.options = options;
    this.kernel = kernel;
    this.signature = signature;
    this.count = count;
    this.bucketIndex = bucketIndex;
    this.start = defaultSchedule(kernel, options.module, options.facts, bucket);
    this.space = scheduleSpace(kernel, options.module, this.start, options.facts, bucket);
    this.cost = scheduleCost(kernel, options.module, sizeOf(bucket), options.machine);
    this.work = kernelWork(kernel, options.module, sizeOf(bucket));
    for (const known of options.database.known(signature, bucket, options.target).values()) {
      // What comes from a file is a suggestion: of the plan's instruction set, and legal, or it does not count.
      if (!this.mayUse(known.schedule)) continue;
      this.learn(known);
      this.reused++;
    }
  }

  get bucket(): Bucket {
    return this.options.buckets[this.bucketIndex]!;
  }

  /** Not even the default has been measured. */
  get isFresh(): boolean {
    return !this.known.has(scheduleKey(this.start));
  }

  /** Share of the whole micro-batch's predicted time; larger is tuned first. */
  get weight(): number {
    return this.count * (this.best?.seconds ?? this.cost(this.start));
  }

  mayUse(schedule: CpuSchedule): boolean {
    const isDefault = scheduleKey(schedule) === scheduleKey(this.start);
    return isDefault || (schedule.isa === this.start.isa && isLegal(this.kernel, this.options.module, schedule, this.options.facts) === true);
  }

  /** A later measurement of a schedule replaces the earlier one. Of equals, the first that was learnt is best. */
  learn(known: Known): void {
    this.known.set(scheduleKey(known.schedule), known);
    this.best = undefined;
    for (const each of this.known.values()) if (each.seconds < (this.best?.seconds ?? Infinity)) this.best = each;
  }

  /**
   * What to measure next: first the default, what won in other buckets, and the model's favourites; then untried
   * neighbours of the best, cheapest estimate first; last the default and the best once more, side by side: the best
   * of many noisy times is too good, and the machine may have been busier then. Empty when nothing is left.
   */
  propose(winnersElsewhere: readonly CpuSchedule[]): readonly CpuSchedule[] {
    const untried = (schedules: readonly CpuSchedule[]): readonly CpuSchedule[] => {
      const keys = new Set<string>();
      return schedules.filter((schedule) => {
        const key = scheduleKey(schedule);
        if (keys.has(key) || this.known.has(key) || !this.mayUse(schedule)) return false;
        keys.add(key);
        return true;
      });
    };
    if (this.isFresh) {
      this.ranked ??= this.byCost(enumerateSpace(this.space));
      // Winners are compiled already; where there are some, fewer of the model's own ideas are worth their compile time.
      const ideas = this.ranked.slice(0, winnersElsewhere.length > 0 ? IDEAS_BESIDE_WINNERS : FIRST_ROUND);
      const first = untried([this.start, ...winnersElsewhere, ...ideas]).slice(0, FIRST_ROUND);
      if (first.length > 0) return first;
    }
    const centre = this.best?.schedule ?? this.start;
    const limit = IMPLAUSIBLE * this.cost(centre);
    const next = untried(this.byCost(neighbours(this.space, centre)).filter((schedule) => this.cost(schedule) <= limit)).slice(0, STEP);
    if (next.length > 0 || this.isConfirmed || this.trials === 0 || this.best === undefined) return next;
    this.isConfirmed = true;
    return scheduleKey(centre) === scheduleKey(this.start) ? [] : [this.start, centre];
  }

  /** Cheapest first; equal estimates in the order of the grid. */
  private byCost(schedules: readonly CpuSchedule[]): readonly CpuSchedule[] {
    return schedules.map((schedule, i) => ({ schedule, i, cost: this.cost(schedule) }))
      .sort((a, b) => a.cost - b.cost || a.i - b.i).map(({ schedule }) => schedule);
  }

  row(): TuneRow {
    const best = this.best?.seconds;
    const start = this.known.get(scheduleKey(this.start))?.seconds;
    return {
      kernel: this.kernel.path, signature: this.signature, count: this.count, bucket: this.bucket,
      schedule: this.best?.schedule ?? this.start, trials: this.trials, reused: this.reused, isDone: this.isDone,
      failures: [...this.known.values()].filter(({ seconds }) => !Number.isFinite(seconds)).length,
      ...(start === undefined || !Number.isFinite(start) ? {} : { defaultSeconds: start }),
      ...(best === undefined ? {} : {
        bestSeconds: best, gflops: this.work.flops / best / 1e9, shareOfPeak: shareOfPeak(this.work, this.options.machine, best),
      }),
    };
  }
}

/** Kernels with different signatures, the first of each, and how often each occurs. */
function distinctKernels(module: KernelModule, tokensCapacity: number): readonly { kernel: Kernel; signature: string; count: number }[] {
  const found = new Map<string, { kernel: Kernel; signature: string; count: number }>();
  for (const kernel of module.kernels) {
    const signature = kernelSignature(kernel, module, tokensCapacity);
    const known = found.get(signature);
    if (known === undefined) found.set(signature, { kernel, signature, count: 1 });
    else known.count++;
  }
  return [...found.values()];
}

/**
 * Tunes every kernel of a module for every bucket; kernels of different layers with one signature are tuned once. Time
 * goes to where the predicted run time is: of the jobs with something left to try, the one that has used least of its
 * share is next. Measurements are written to the database at once, and those already there cost nothing, so that a
 * search that was interrupted goes on. Deterministic for given measurements and clock. What `measure` throws is thrown.
 */
export async function tune(options: TuneOptions): Promise<TuneResult> {
  const { buckets, module, tokensCapacity, budgetSeconds, database, target, signal } = options;
  const now = options.now ?? ((): number => performance.now() / 1000);
  const started = now();
  const isOver = (): boolean => now() - started >= budgetSeconds || signal?.aborted === true;
  const jobs = distinctKernels(module, tokensCapacity)
    .flatMap(({ kernel, signature, count }) => buckets.map((_, i) => new Job(options, kernel, signature, count, i)));
  const report = (changed: Job): void => {
    options.onProgress?.({ rows: jobs.map((job) => job.row()), changed: jobs.indexOf(changed), elapsedSeconds: now() - started, budgetSeconds });
  };
  // Weights are those of the start: a job that got faster keeps the time it was promised.
  const weights = new Map(jobs.map((job) => [job, job.weight]));
  const urgency = (job: Job): number => (job.isFresh ? 1e9 : 1) * weights.get(job)! / (job.spentSeconds + 1e-3);
  while (!isOver()) {
    const job = jobs.filter((each) => !each.isDone).reduce<Job | undefined>((top, each) => (top === undefined || urgency(each) > urgency(top) ? each : top), undefined);
    if (job === undefined) break;
    const winners = jobs.filter((other) => other.signature === job.signature && other !== job && other.best !== undefined)
      .sort((a, b) => Math.abs(a.bucketIndex - job.bucketIndex) - Math.abs(b.bucketIndex - job.bucketIndex)).map((other) => other.best!.schedule);
    const schedules = job.propose(winners);
    if (schedules.length === 0) {
      job.isDone = true;
      report(job);
      continue;
    }
    const from = now();
    const best = job.best?.seconds;
    // A pair that is compared is timed in full.
    const bound = job.isConfirmed || best === undefined ? {} : { bestSeconds: best };
    const request = { kernel: job.kernel, module, bucket: job.bucket, reference: job.start, schedules, ...bound };
    for await (const measurement of options.measure(request)) {
      const record = { key: job.signature, bucket: job.bucket, target, schedule: measurement.schedule };
      if ('failure' in measurement) {
        database.append({ ...record, seconds: [], failure: measurement.failure });
        job.learn({ schedule: measurement.schedule, seconds: Infinity });
      } else {
        database.append({ ...record, seconds: [...measurement.seconds] });
        job.learn({ schedule: measurement.schedule, seconds: median(measurement.seconds) });
      }
      job.trials++;
      report(job);
      if (isOver()) break;
    }
    job.spentSeconds += now() - from;
  }
  return summarise(jobs, buckets);
}

/** Share of a bucket's predicted time that must have been measured before the bucket's cost is one to go by. */
const ENOUGH = 0.5;

/**
 * Seconds of each bucket: measured kernels as measured, the others as estimated, the estimates scaled by what the
 * measured ones of all buckets took against theirs. Empty where less than half of the largest bucket was measured.
 */
function costOfBuckets(jobs: readonly Job[], buckets: readonly Bucket[]): readonly BucketSeconds[] {
  const sum = (of: readonly Job[], seconds: (job: Job) => number): number => of.reduce((total, job) => total + job.count * seconds(job), 0);
  const estimate = (job: Job): number => job.cost(job.best?.schedule ?? job.start);
  const measured = jobs.filter((job) => job.best !== undefined);
  const largest = buckets.reduce((top, bucket, i) => (bucket.tokens > buckets[top]!.tokens ? i : top), 0);
  const inLargest = (job: Job): boolean => job.bucketIndex === largest;
  if (measured.length === 0 || sum(measured.filter(inLargest), estimate) < ENOUGH * sum(jobs.filter(inLargest), estimate)) return [];
  const scale = sum(measured, (job) => job.best!.seconds) / sum(measured, estimate);
  const seconds = (job: Job): number => job.best?.seconds ?? scale * estimate(job);
  const isAttention = (job: Job): boolean => job.kernel.anchor === 'attention';
  return buckets.map((bucket, i) => {
    const own = jobs.filter((job) => job.bucketIndex === i);
    return {
      ...bucket, seconds: sum(own, seconds), attentionSeconds: sum(own.filter(isAttention), seconds),
      rowSeconds: sum(own.filter((job) => !isAttention(job) && job.kernel.rows === 'R'), seconds),
    };
  });
}

function summarise(jobs: readonly Job[], buckets: readonly Bucket[]): TuneResult {
  const schedules = buckets.map((_, i) => Object.fromEntries(jobs.filter((job) => job.bucketIndex === i).map((job) => [job.signature, job.best?.schedule ?? job.start])));
  return {
    schedules, rows: jobs.map((job) => job.row()), bucketSeconds: costOfBuckets(jobs, buckets), isExhausted: jobs.every((job) => job.isDone),
    trials: jobs.reduce((sum, job) => sum + job.trials, 0), reused: jobs.reduce((sum, job) => sum + job.reused, 0),
  };
}
