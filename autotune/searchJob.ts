/** One kernel in one bucket under search: what is known of its schedules, and what to measure next. */
import type { Kernel } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import type { Final, Known } from './database.js';
import type { Work } from './work.js';

/** What a target says about one kernel in one bucket. */
export interface Candidates<S> {
  /** Code generation's default. */
  readonly start: S;
  /** Whose result the others are compared with: what to use where even `start` fails. Default: none. */
  readonly fallback?: S;
  /** Estimated seconds. */
  cost(schedule: S): number;
  /** Legal, and with the same numbers as `start`'s: what comes from a file need not be. */
  mayUse(schedule: S): boolean;
  /** Every schedule worth considering, each once, in a fixed order. */
  enumerate(): readonly S[];
  /** Schedules one step from `from`, without it. */
  neighbours(from: S): readonly S[];
  readonly work: Work;
  /** Measured before. */
  readonly rival?: Rival;
  /** Share of the machine's peak that so many seconds mean. */
  shareOfPeak(seconds: number): number;
}

/** How many are measured at a time. */
export interface Rounds {
  /** Of the first round. */
  readonly first: number;
  /** Of each step of the climb. */
  readonly step: number;
  /** The model's own ideas in a first round that has winners of other buckets in it. */
  readonly ideas: number;
  /**
   * Share of the budget that is kept for finals (finals.ts), where measurements in a burst mislead; absent: there are
   * none.
   */
  readonly finals?: number;
  /** Share of the default's time that must be gained where bursts decide. Default: none. */
  readonly telling?: number;
}

export const ROUNDS: Rounds = { first: 6, step: 4, ideas: 2 };

/** Somebody else's time for the same contraction without its epilogue, and what it was. */
export interface Rival {
  readonly name: string;
  readonly seconds: number;
}

/** One line of the table: a kernel in a bucket. */
export interface TuneRow<S> {
  /** Model path of the first kernel with this signature. */
  readonly kernel: string;
  readonly signature: string;
  /** Kernels of the module that share it. */
  readonly count: number;
  readonly bucket: Bucket;
  readonly schedule: S;
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
  /** Compulsory traffic of the best, bytes a second. */
  readonly bytesPerSecond?: number;
  /** The same contraction by the vendor's library. */
  readonly rival?: Rival;
  /** Candidates that failed: a result that differs, a compiler that refuses. */
  readonly failures: number;
  readonly isDone: boolean;
}

/** The fastest of a final; the default where that was not beaten clearly. Undefined of nobody. */
export function winnerOf<S>(
  { entries, marginSeconds }: Final<S>,
  isDefault: (schedule: S) => boolean,
): Known<S> | undefined {
  const first = entries.reduce<Known<S> | undefined>(
    (top, each) => (top === undefined || each.seconds < top.seconds ? each : top),
    undefined,
  );
  const start = entries.find(({ schedule }) => isDefault(schedule));
  return first !== undefined && start !== undefined && first.seconds >= start.seconds - marginSeconds ? start : first;
}

/** What a job is made of. */
export interface JobParts<S> {
  readonly kernel: Kernel;
  readonly signature: string;
  /** Kernels of the module with this signature. */
  readonly count: number;
  readonly bucketIndex: number;
  readonly bucket: Bucket;
  readonly candidates: Candidates<S>;
  readonly keyOf: (schedule: S) => string;
  readonly rounds: Rounds;
  /** What is taken: what won its final, and the default before it; or the best of all measurements. */
  readonly decidedBy: 'final' | 'bursts';
  /** What the database has. */
  readonly known: Iterable<Known<S>>;
  /** And its newest final. */
  readonly final?: Final<S> | undefined;
}

/** A neighbour that the model puts this far above the best measured one's estimate is not tried. */
const IMPLAUSIBLE = 3;

/** Search state of one (signature, bucket). */
export class Job<S> {
  readonly kernel: Kernel;
  readonly signature: string;
  readonly count: number;
  readonly bucketIndex: number;
  readonly bucket: Bucket;
  readonly candidates: Candidates<S>;
  /** By schedule key. */
  readonly known = new Map<string, Known<S>>();
  best: Known<S> | undefined;
  /** Of the newest final. */
  private champion: Known<S> | undefined;
  rival: Rival | undefined;
  trials = 0;
  reused = 0;
  spentSeconds = 0;
  isConfirmed = false;
  isDone = false;
  private readonly keyOf: (schedule: S) => string;
  private readonly rounds: Rounds;
  private readonly isDecidedByFinal: boolean;
  /** Schedules that were measured now, not only remembered. */
  private readonly seen = new Set<string>();
  private ranked: readonly S[] | undefined;

  constructor(parts: JobParts<S>) {
    this.kernel = parts.kernel;
    this.signature = parts.signature;
    this.count = parts.count;
    this.bucketIndex = parts.bucketIndex;
    this.bucket = parts.bucket;
    this.candidates = parts.candidates;
    this.keyOf = parts.keyOf;
    this.rounds = parts.rounds;
    this.isDecidedByFinal = parts.decidedBy === 'final';
    this.rival = parts.candidates.rival;
    for (const known of parts.known) {
      // What comes from a file is a suggestion: of the plan's instruction set, and legal, or it does not count.
      if (!this.candidates.mayUse(known.schedule)) continue;
      this.take(known);
      this.reused++;
    }
    if (parts.final !== undefined) this.conclude(parts.final);
  }

  get start(): S {
    return this.candidates.start;
  }

  /** What is known of the schedule to take; undefined where nothing is. */
  get standing(): Known<S> | undefined {
    const start = this.known.get(this.keyOf(this.start));
    if (start === undefined || !Number.isFinite(start.seconds)) return this.best;
    if (this.isDecidedByFinal) return this.champion ?? start;
    return this.best !== undefined && this.best.seconds > (1 - (this.rounds.telling ?? 0)) * start.seconds
      ? start
      : this.best;
  }

  /** What is compared with in a final: the default, or what stands in for one that fails. */
  get incumbent(): S {
    return this.startSeconds === Infinity ? this.chosen : this.start;
  }

  get incumbentSeconds(): number {
    const seconds = this.known.get(this.keyOf(this.incumbent))?.seconds ?? Infinity;
    return Number.isFinite(seconds) ? seconds : this.candidates.cost(this.incumbent);
  }

  /** Of the default; Infinity where it failed. */
  get startSeconds(): number | undefined {
    return this.known.get(this.keyOf(this.start))?.seconds;
  }

  /** The default works: there is something to beat. */
  get hasDefault(): boolean {
    return this.startSeconds !== undefined && Number.isFinite(this.startSeconds);
  }

  /** A final has been held, and nothing measured since. */
  get isSettled(): boolean {
    return this.trials === 0 && this.champion !== undefined;
  }

  /** The best known; what code generation would choose; or, where that was found to fail, what cannot. */
  get chosen(): S {
    const { start, fallback } = this.candidates;
    return this.standing?.schedule ?? (fallback !== undefined && this.startSeconds === Infinity ? fallback : start);
  }

  /** Not even the default has been measured. */
  get isFresh(): boolean {
    return !this.known.has(this.keyOf(this.start));
  }

  /** Share of the whole micro-batch's predicted time; larger is tuned first. */
  get weight(): number {
    return this.count * (this.best?.seconds ?? this.candidates.cost(this.start));
  }

  /** A later measurement of a schedule replaces the earlier one. Of equals, the first that was learnt is best. */
  learn(known: Known<S>): void {
    this.seen.add(this.keyOf(known.schedule));
    this.take(known);
  }

  private take(known: Known<S>): void {
    const key = this.keyOf(known.schedule);
    this.known.set(key, known);
    if (!Number.isFinite(known.seconds) && this.champion !== undefined && this.keyOf(this.champion.schedule) === key)
      this.champion = undefined;
    this.best = undefined;
    for (const each of this.known.values()) if (each.seconds < (this.best?.seconds ?? Infinity)) this.best = each;
  }

  /** A final has ended: its winner is taken, of those that may be used and have not failed since. */
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
   * Who may meet the default in a final: the last one's winner, and the fastest that took at most `promising` times as
   * long as the default.
   */
  challengers(most: number, promising: number): readonly Known<S>[] {
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

  /** Only remembered: nobody has compared its result in this search. */
  isUnseen(schedule: S): boolean {
    return !this.seen.has(this.keyOf(schedule));
  }

  /**
   * What to measure next: first the default, what won in other buckets, and the model's favourites; then untried
   * neighbours of the best, cheapest estimate first; last, where bursts decide, the default and the best once more,
   * side by side: the best of many noisy times is too good, and the machine may have been busier then. Empty when
   * nothing is left.
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
      // Winners are compiled already; where there are some, fewer of the model's own ideas are worth their compile
      // time.
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

  /** Cheapest first; equal estimates in the order of the grid. */
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
      ...(this.rival === undefined ? {} : { rival: this.rival }),
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
