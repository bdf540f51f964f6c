/**
 * Finals: the schedule that is fastest in a burst must also win in the sequence of kernels that a run repeats, under
 * sustained load. Bursts mislead because clocks follow power and heat, and because kernels share caches with their
 * neighbours. In a final, whole sequences compete that each exchange one kernel's schedule. All winners are then
 * combined, and the combined sequence must win once more.
 */
import { defined } from '../system/defined.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import type { Final, TimedSchedule } from './records.js';
import { at } from '../system/at.js';
import type { SearchJob } from './searchJob.js';

export interface FinalRequest<S> {
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** In launch order. */
  readonly kernels: readonly Kernel[];
  /** Schedules of all kernels, one list per contender. The others are compared with the first. */
  readonly contenders: readonly (readonly S[])[];
  /** Device seconds for all contenders together. */
  readonly seconds: number;
  /** Share of them spent on load before counting starts. */
  readonly settling: number;
  /** Called after every round. */
  readonly onRound?: () => void;
  /** If aborted, there is no final. */
  readonly signal?: AbortSignal;
}

/**
 * seconds[contender][round] of the whole sequence; undefined if no final can be held, in which case the defaults stay.
 * Throws if the device becomes unusable.
 */
export type HoldFinal<S> = (request: FinalRequest<S>) => Promise<readonly (readonly number[])[] | undefined>;

/**
 * Extra time of a contender compared with the first one, as a share of the first one's time. Negative: it is faster.
 */
export interface Judgement {
  readonly difference: number;
  /** Standard error of the difference. */
  readonly error: number;
}

/** Differences below this share of the sequence are ignored. */
const TELLING = 0.002;
/** Standard errors by which a difference must exceed zero. Strict, because the best of several is chosen. */
const SIGMAS = 3;
/** Limits in seconds on one bucket's final, whose length is its share of the time for all finals. */
const SHORTEST_FINAL = 2;
const LONGEST_FINAL = 30;
/** Most challengers of one kernel. */
const CHALLENGERS = 2;
/** A challenger's time in bursts may be at most this many times the default's. */
const PROMISING = 1.05;
/**
 * The winners' second comparison, as shares of the final's seconds. It follows the first, so it needs less settling.
 */
const AGAIN = { seconds: 0.4, settling: 0.15 };
const SETTLING = 0.35;
/** Lower limit on a schedule's time as a share of the default's, whatever noise in a sequence suggests. */
const MIN_SHARE = 0.1;

/** Compares each contender with the first, round by round: adjacent times share clocks and heat. */
export function judge(rounds: readonly (readonly number[])[]): readonly Judgement[] {
  const [first = []] = rounds;
  return rounds.map((own) => {
    const shares = own.map((seconds, i) => seconds / at(first, i) - 1);
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    const variance = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / Math.max(1, shares.length - 1);
    return { difference: mean, error: Math.sqrt(variance / shares.length) };
  });
}

/** Smallest gain that counts, as a share of the sequence. */
const marginOf = ({ error }: Judgement): number => Math.max(TELLING, SIGMAS * error);
const isGain = (judgement: Judgement): boolean => judgement.difference < -marginOf(judgement);

/** The schedules that compete with a job's default; none if there is no default to beat. */
export const challengersOf = <S>(job: SearchJob<S>): readonly TimedSchedule<S>[] =>
  job.challengers(CHALLENGERS, PROMISING);

/** Finals still to hold, heaviest bucket first: those of buckets with measurements newer than their last final. */
export function dueFinals<S>(
  jobs: readonly SearchJob<S>[],
  weightOf: (job: SearchJob<S>) => number,
): readonly { readonly contestants: readonly SearchJob<S>[]; readonly weight: number }[] {
  const buckets = [...new Set(jobs.map(({ bucketIndex }) => bucketIndex))];
  return buckets
    .map((bucketIndex) => jobs.filter((job) => job.bucketIndex === bucketIndex))
    .filter((own) => own.some((job) => job.hasDefault && !job.isSettled))
    .map((contestants) => ({ contestants, weight: contestants.reduce((sum, job) => sum + weightOf(job), 0) }))
    .sort((a, b) => b.weight - a.weight);
}

interface Challenge<S> {
  /** In the sequence. */
  readonly place: number;
  readonly known: TimedSchedule<S>;
}

/** A challenge, and how its sequence compared with that of the defaults. */
type Contest<S> = Challenge<S> & Judgement;

/**
 * Holds the final of one bucket and gives each job its outcome; `record` stores it. `jobs`: the sequence, in order.
 * Jobs without a promising challenger are settled without the device. False if a final could not be held.
 */
export async function holdFinal<S>(
  jobs: readonly SearchJob<S>[],
  hold: HoldFinal<S>,
  {
    module,
    seconds,
    record,
    ...others
  }: Pick<FinalRequest<S>, 'module' | 'seconds' | 'onRound' | 'signal'> & {
    readonly record: (job: SearchJob<S>, final: Final<S>) => void;
  },
): Promise<boolean> {
  const defaults = jobs.map((job) => job.incumbent);
  const challenges = jobs.flatMap((job, place): Challenge<S>[] =>
    challengersOf(job).map((known) => ({ place, known })),
  );
  const meet = (contenders: readonly (readonly S[])[], share: number, settling: number): ReturnType<HoldFinal<S>> =>
    hold({
      module,
      bucket: at(jobs, 0).bucket,
      kernels: jobs.map(({ kernel }) => kernel),
      contenders: [defaults, ...contenders],
      seconds: share * seconds,
      settling,
      ...others,
    });
  const replaced = (changes: ReadonlyMap<number, S>): readonly S[] =>
    defaults.map((schedule, place) => changes.get(place) ?? schedule);
  let contests: readonly Contest<S>[] = [];
  if (challenges.length > 0) {
    const rounds = await meet(
      challenges.map(({ place, known }) => replaced(new Map([[place, known.schedule]]))),
      1,
      SETTLING,
    );
    if (rounds === undefined) return false;
    const [, ...judgements] = judge(rounds);
    contests = challenges.map((challenge, i) => ({ ...challenge, ...at(judgements, i) }));
  }
  // Place in the sequence → the challenge that gains most.
  const winners = new Map<number, Contest<S>>();
  for (const contest of contests) {
    const top = winners.get(contest.place);
    if (isGain(contest) && (top === undefined || contest.difference < top.difference))
      winners.set(contest.place, contest);
  }
  let isConfirmed = true;
  if (winners.size > 0) {
    const again = await meet(
      [replaced(new Map([...winners].map(([place, { known }]) => [place, known.schedule])))],
      AGAIN.seconds,
      AGAIN.settling,
    );
    if (again === undefined) return false;
    isConfirmed = isGain(at(judge(again), 1));
  }
  const total = jobs.reduce((sum, job) => sum + job.incumbentSeconds, 0);
  for (const [place, job] of jobs.entries()) {
    // Unchecked results, or a stand-in for a failed default, do not count.
    if (!job.hasDefault) continue;
    const winner = isConfirmed ? winners.get(place) : undefined;
    // Leaves out entries that only noise put before the winner, and those whose win did not hold.
    const own = contests.filter(
      (contest) =>
        contest.place === place && (winner === undefined ? !isGain(contest) : contest.difference >= winner.difference),
    );
    const entries = own.map(({ known: { schedule }, difference }) => ({
      schedule,
      seconds: Math.max(MIN_SHARE * job.incumbentSeconds, job.incumbentSeconds + difference * total),
    }));
    const marginSeconds = total * (winner === undefined ? Math.max(TELLING, ...own.map(marginOf)) : marginOf(winner));
    const final: Final<S> = {
      entries: [{ schedule: job.incumbent, seconds: job.incumbentSeconds }, ...entries],
      marginSeconds,
    };
    record(job, final);
    job.conclude(final);
    job.trials += own.length;
  }
  return true;
}

export interface FinalsOptions<S> extends Pick<FinalRequest<S>, 'module' | 'signal'> {
  readonly hold: HoldFinal<S>;
  /** Measures a job's recorded schedules whose results have not been compared in this search. */
  readonly check: (job: SearchJob<S>, schedules: readonly S[]) => Promise<void>;
  /** Share of a whole run's time. */
  readonly weightOf: (job: SearchJob<S>) => number;
  /** Seconds for all finals together. */
  readonly seconds: number;
  readonly secondsLeft: () => number;
  /** Whether the time is used up, so that nothing new is started. */
  readonly isOver: () => boolean;
  readonly record: (job: SearchJob<S>, final: Final<S>) => void;
  /** Called before a final and after each of its rounds with its bucket; after the final, without. */
  readonly onProgress: (job: SearchJob<S>, final?: Bucket) => void;
}

/** Holds all due finals, as far as time allows. True if none is left. */
export async function holdFinals<S>(
  jobs: readonly SearchJob<S>[],
  { module, hold, check, weightOf, seconds, secondsLeft, isOver, record, onProgress, signal }: FinalsOptions<S>,
): Promise<boolean> {
  const finals = dueFinals(jobs, weightOf);
  let held = 0;
  for (const { contestants, weight } of finals) {
    for (const job of contestants) {
      const unseen = (): readonly S[] =>
        challengersOf(job)
          .map(({ schedule }) => schedule)
          .filter((schedule) => job.isUnseen(schedule));
      // A challenger that fails is replaced by the next one.
      for (let next = unseen(); next.length > 0 && !isOver(); next = unseen()) await check(job, next);
    }
    // A shorter final is not conclusive.
    if (isOver() || secondsLeft() < SHORTEST_FINAL) break;
    const [first] = contestants;
    const onRound = (): void => {
      onProgress(first!, first!.bucket);
    };
    onRound();
    const own = Math.max(
      SHORTEST_FINAL,
      Math.min(LONGEST_FINAL, seconds * weight, secondsLeft() / (1 + AGAIN.seconds)),
    );
    if (
      await holdFinal(contestants, hold, {
        module,
        seconds: own,
        record,
        onRound,
        ...defined({ signal }),
      })
    )
      held++;
    onProgress(first!);
  }
  return held === finals.length;
}
