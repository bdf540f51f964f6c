/** The search for one kernel in one bucket: what is known of its schedules, and what to measure next. */
import type { Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import { defined } from '../system/defined.js';
import { type Final, type TimedSchedule, type Records, winnerOf } from './records.js';
import type { KernelWork } from './work.js';

/** What a target knows about one kernel in one bucket. */
export interface Candidates<S> {
  /** Code generation's default. */
  readonly start: S;
  /** The reference for results, used if even `start` fails. Default: none. */
  readonly fallback?: S;
  /** Estimated seconds. */
  cost(schedule: S): number;
  /** Whether a schedule, possibly read from a file, is legal and computes the same numbers as `start`. */
  mayUse(schedule: S): boolean;
  /** Every schedule worth considering, each once, in a fixed order. */
  enumerate(): readonly S[];
  /** Schedules one step from `from`, without it. */
  neighbours(from: S): readonly S[];
  readonly work: KernelWork;
  /** The vendor library's time if it was measured before. */
  readonly baseline?: VendorBaseline;
  /** Share of the machine's peak at this many seconds. */
  shareOfPeak(seconds: number): number;
}

/** How many candidates are measured at a time. */
export interface Rounds {
  /** In the first round. */
  readonly first: number;
  /** In each step of the climb. */
  readonly step: number;
  /** Candidates from the cost model in a first round that also has winners of other buckets. */
  readonly ideas: number;
  /** Share of the budget kept for finals (finals.ts), needed where bursts mislead. Absent: no finals. */
  readonly finals?: number;
  /** Share of the default's time that must be gained if bursts decide. Default: none. */
  readonly telling?: number;
}

export const ROUNDS: Rounds = { first: 6, step: 4, ideas: 2 };

/** The vendor library's time for the same contraction without its epilogue, and the algorithm's name. */
export interface VendorBaseline {
  readonly name: string;
  readonly seconds: number;
}

/** One row of the table: a kernel in a bucket. */
export interface TuneRow<S> {
  /** Model path of the first kernel with this signature. */
  readonly kernel: string;
  readonly signature: string;
  /** Number of the module's kernels that share it. */
  readonly count: number;
  readonly bucket: Bucket;
  readonly schedule: S;
  /** Number of schedules measured now or earlier. */
  readonly trials: number;
  readonly reused: number;
  /** Medians; absent if nothing was measured. */
  readonly bestSeconds?: number;
  readonly defaultSeconds?: number;
  /** Rate of the best schedule for contractions; 0 for kernels without any. */
  readonly gflops?: number;
  /** Of arithmetic for contractions, of memory bandwidth for others. May exceed 1 where data stay in caches. */
  readonly shareOfPeak?: number;
  /** Compulsory traffic of the best schedule, in bytes per second. */
  readonly bytesPerSecond?: number;
  /** The same contraction by the vendor's library. */
  readonly baseline?: VendorBaseline;
  /** Number of candidates that failed: the result differs, or the compiler refuses. */
  readonly failures: number;
  readonly isDone: boolean;
}

/** What a job is built from. */
export interface JobParts<S> {
  readonly kernel: Kernel;
  readonly signature: string;
  /** Under which trials are recorded (computationHash). */
  readonly recordKey: string;
  /** Number of the module's kernels with this signature. */
  readonly count: number;
  readonly bucketIndex: number;
  readonly bucket: Bucket;
  readonly candidates: Candidates<S>;
  readonly keyOf: (schedule: S) => string;
  readonly rounds: Rounds;
  /** Which measurements decide: finals (the default is used until one is won), or the best of all bursts. */
  readonly decidedBy: 'final' | 'bursts';
  /** Records of the database. */
  readonly known: Iterable<TimedSchedule<S>>;
  /** The newest final in the database. */
  readonly final?: Final<S> | undefined;
}

/** A neighbour is skipped if its estimate is this many times the estimate of the best measured schedule. */
const IMPLAUSIBLE = 3;

/** Search state of one (signature, bucket). */
export class SearchJob<S> {
  readonly kernel: Kernel;
  readonly signature: string;
  readonly recordKey: string;
  readonly count: number;
  readonly bucketIndex: number;
  readonly bucket: Bucket;
  readonly candidates: Candidates<S>;
  /** By schedule key. */
  readonly known = new Map<string, TimedSchedule<S>>();
  best: TimedSchedule<S> | undefined;
  /** Winner of the newest final. */
  private champion: TimedSchedule<S> | undefined;
  baseline: VendorBaseline | undefined;
  trials = 0;
  reused = 0;
  spentSeconds = 0;
  isConfirmed = false;
  isDone = false;
  private readonly keyOf: (schedule: S) => string;
  private readonly rounds: Rounds;
  private readonly isDecidedByFinal: boolean;
  /** Keys of schedules measured in this search, not only recorded. */
  private readonly seen = new Set<string>();
  private ranked: readonly S[] | undefined;

  constructor(parts: JobParts<S>) {
    this.kernel = parts.kernel;
    this.signature = parts.signature;
    this.recordKey = parts.recordKey;
    this.count = parts.count;
    this.bucketIndex = parts.bucketIndex;
    this.bucket = parts.bucket;
    this.candidates = parts.candidates;
    this.keyOf = parts.keyOf;
    this.rounds = parts.rounds;
    this.isDecidedByFinal = parts.decidedBy === 'final';
    this.baseline = parts.candidates.baseline;
    for (const known of parts.known) {
      // A file's entry is only a suggestion: it counts if it is legal and of the plan's instruction set.
      if (!this.candidates.mayUse(known.schedule)) continue;
      this.take(known);
      this.reused++;
    }
    if (parts.final !== undefined) this.conclude(parts.final);
  }

  get start(): S {
    return this.candidates.start;
  }

  /** What is known of the schedule to use; undefined if nothing is known. */
  get standing(): TimedSchedule<S> | undefined {
    const start = this.known.get(this.keyOf(this.start));
    if (start === undefined || !Number.isFinite(start.seconds)) return this.best;
    if (this.isDecidedByFinal) return this.champion ?? start;
    return this.best !== undefined && this.best.seconds > (1 - (this.rounds.telling ?? 0)) * start.seconds
      ? start
      : this.best;
  }

  /** The reference of a final: the default, or its stand-in if the default fails. */
  get incumbent(): S {
    return this.startSeconds === Infinity ? this.chosen : this.start;
  }

  get incumbentSeconds(): number {
    const seconds = this.known.get(this.keyOf(this.incumbent))?.seconds ?? Infinity;
    return Number.isFinite(seconds) ? seconds : this.candidates.cost(this.incumbent);
  }

  /** Seconds of the default; Infinity if it failed. */
  get startSeconds(): number | undefined {
    return this.known.get(this.keyOf(this.start))?.seconds;
  }

  /** Whether the default works, so that there is something to beat. */
  get hasDefault(): boolean {
    return this.startSeconds !== undefined && Number.isFinite(this.startSeconds);
  }

  /** Whether a final has been held with no newer measurement. */
  get isSettled(): boolean {
    return this.trials === 0 && this.champion !== undefined;
  }

  /** The best known schedule, else code generation's default, else, if that failed, the fallback. */
  get chosen(): S {
    const { start, fallback } = this.candidates;
    return this.standing?.schedule ?? (fallback !== undefined && this.startSeconds === Infinity ? fallback : start);
  }

  /** Whether not even the default has been measured. */
  get isFresh(): boolean {
    return !this.known.has(this.keyOf(this.start));
  }

  /** Share of the whole micro-batch's predicted time. Larger shares are tuned first. */
  get weight(): number {
    return this.count * (this.best?.seconds ?? this.candidates.cost(this.start));
  }

  /** A later measurement of a schedule replaces the earlier one. Ties go to the schedule that was learnt first. */
  learn(known: TimedSchedule<S>): void {
    this.seen.add(this.keyOf(known.schedule));
    this.take(known);
  }

  /** Learns what was measured for another bucket whose launch is the same. False if it may not be used here. */
  share(known: TimedSchedule<S>): boolean {
    if (!this.candidates.mayUse(known.schedule)) return false;
    this.learn(known);
    this.reused++;
    return true;
  }

  private take(known: TimedSchedule<S>): void {
    const key = this.keyOf(known.schedule);
    this.known.set(key, known);
    if (!Number.isFinite(known.seconds) && this.champion !== undefined && this.keyOf(this.champion.schedule) === key)
      this.champion = undefined;
    this.best = undefined;
    for (const each of this.known.values()) if (each.seconds < (this.best?.seconds ?? Infinity)) this.best = each;
  }

  /** Ends a final: its winner is used, among entries that are legal and have not failed since. */
  conclude({ entries, marginSeconds }: Final<S>): void {
    const sound = entries.filter(
      ({ schedule }) => this.candidates.mayUse(schedule) && this.known.get(this.keyOf(schedule))?.seconds !== Infinity,
    );
    this.champion = winnerOf(
      { entries: sound, marginSeconds },
      (schedule) => this.keyOf(schedule) === this.keyOf(this.start),
    );
  }

  /**
   * Schedules that compete with the default in a final: the last final's winner, and the fastest that took at most
   * `promising` times as long as the default.
   */
  challengers(most: number, promising: number): readonly TimedSchedule<S>[] {
    if (!this.hasDefault) return [];
    const start = this.keyOf(this.start),
      limit = promising * this.startSeconds!;
    const fastest = [...this.known.values()]
      .filter(({ seconds }) => seconds <= limit)
      .sort((a, b) => a.seconds - b.seconds);
    const all = new Map(
      [...(this.champion === undefined ? [] : [this.champion]), ...fastest].map((known) => [
        this.keyOf(known.schedule),
        known,
      ]),
    );
    all.delete(start);
    return [...all.values()].slice(0, most);
  }

  /** Whether the schedule is only recorded: its result has not been compared in this search. */
  isUnseen(schedule: S): boolean {
    return !this.seen.has(this.keyOf(schedule));
  }

  /**
   * What to measure next. First the default, winners of other buckets, and the model's favourites; then untried
   * neighbours of the best, lowest estimate first. Last, if bursts decide, the default and the best once more, side by
   * side, because the best of many noisy times is biased low and the machine may have been busier for the default.
   * Empty when nothing is left.
   */
  propose(winnersElsewhere: readonly S[]): readonly S[] {
    const untried = (schedules: readonly S[]): readonly S[] => {
      const keys = new Set<string>();
      return schedules.filter((schedule) => {
        const key = this.keyOf(schedule);
        if (keys.has(key) || this.known.has(key) || !this.candidates.mayUse(schedule)) return false;
        keys.add(key);
        return true;
      });
    };
    if (this.isFresh) {
      this.ranked ??= this.byCost(this.candidates.enumerate());
      // Winners are compiled already. With some of them, fewer of the model's own candidates are worth compiling.
      const ideas = this.ranked.slice(0, winnersElsewhere.length > 0 ? this.rounds.ideas : this.rounds.first);
      const first = untried([this.start, ...winnersElsewhere, ...ideas]).slice(0, this.rounds.first);
      if (first.length > 0) return first;
    }
    const centre = this.best?.schedule ?? this.start;
    const limit = IMPLAUSIBLE * this.candidates.cost(centre);
    const next = untried(
      this.byCost(this.candidates.neighbours(centre)).filter((schedule) => this.candidates.cost(schedule) <= limit),
    ).slice(0, this.rounds.step);
    if (next.length > 0 || this.isConfirmed || this.isDecidedByFinal || this.best === undefined || this.trials === 0)
      return next;
    this.isConfirmed = true;
    return this.keyOf(centre) === this.keyOf(this.start) ? [] : [this.start, centre];
  }

  /** Lowest estimate first; ties in the order of the grid. */
  private byCost(schedules: readonly S[]): readonly S[] {
    return schedules
      .map((schedule, i) => ({ schedule, i, cost: this.candidates.cost(schedule) }))
      .sort((a, b) => a.cost - b.cost || a.i - b.i)
      .map(({ schedule }) => schedule);
  }

  row(): TuneRow<S> {
    const { work } = this.candidates;
    const best = this.standing?.seconds;
    const start = this.startSeconds;
    return {
      kernel: this.kernel.path,
      signature: this.signature,
      count: this.count,
      bucket: this.bucket,
      schedule: this.chosen,
      trials: this.trials,
      reused: this.reused,
      isDone: this.isDone,
      failures: [...this.known.values()].filter(({ seconds }) => !Number.isFinite(seconds)).length,
      ...(start === undefined || !Number.isFinite(start) ? {} : { defaultSeconds: start }),
      ...defined({ baseline: this.baseline }),
      ...(best === undefined
        ? {}
        : {
            bestSeconds: best,
            gflops: work.flops / best / 1e9,
            bytesPerSecond: work.bytes / best,
            shareOfPeak: this.candidates.shareOfPeak(best),
          }),
    };
  }
}

/** Records of all places of a launch, which other buckets and functions share. A bucket's own record counts more. */
export const knownOf = <S>(records: Records<S>, key: string, places: readonly Bucket[]): readonly TimedSchedule<S>[] =>
  [...new Set(places)].flatMap((place) => [...records.known(key, place)]);

/** The share of time of each job. `isEven`: those of a bucket add up to 1. */
export function weightsOf<S>(jobs: readonly SearchJob<S>[], isEven: boolean): ReadonlyMap<SearchJob<S>, number> {
  const totals = new Map<number, number>();
  for (const { bucketIndex, weight } of jobs) totals.set(bucketIndex, (totals.get(bucketIndex) ?? 0) + weight);
  return new Map(jobs.map((job) => [job, isEven ? job.weight / totals.get(job.bucketIndex)! : job.weight]));
}

/** The other jobs that measure the same launch: kernels over tokens in buckets that differ in their paths alone. */
export function twinsOf<S>(
  jobs: readonly SearchJob<S>[],
  placeOf: (job: SearchJob<S>) => Bucket,
): ReadonlyMap<SearchJob<S>, readonly SearchJob<S>[]> {
  const groups = new Map<string, SearchJob<S>[]>();
  for (const job of jobs) {
    const key = JSON.stringify([job.recordKey, placeOf(job)]);
    const group = groups.get(key) ?? [];
    group.push(job);
    groups.set(key, group);
  }
  return new Map(
    [...groups.values()].flatMap((group) => group.map((job) => [job, group.filter((other) => other !== job)] as const)),
  );
}
