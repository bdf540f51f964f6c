/**
 * Finals: what is fastest in a burst must prove itself in what a run launches again and again, under a run's load.
 * Bursts mislead where clocks follow power and heat, and where kernels share caches with their neighbours; in a final
 * whole sequences meet, each with one kernel's schedule exchanged, and what wins must win once more, all winners
 * together.
 */
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket } from '../ir/plan.js';
import type { Final, Known } from './database.js';
import type { Job } from './searchJob.js';

export interface FinalRequest<S> {
  readonly module: KernelModule;
  readonly bucket: Bucket;
  /** In the order in which they are launched. */
  readonly kernels: readonly Kernel[];
  /** Schedules of all kernels, one list a contender; the first is what the others are compared with. */
  readonly contenders: readonly (readonly S[])[];
  /** Of the device, for all contenders together. */
  readonly seconds: number;
  /** Share of them that is load before anything counts. */
  readonly settling: number;
  /** After every round. */
  readonly onRound?: () => void;
  /** Aborted: there is no final. */
  readonly signal?: AbortSignal;
}

/**
 * seconds[contender][round] of the whole sequence; undefined where no final can be held, so that the defaults stay.
 * Throws what takes the device with it.
 */
export type HoldFinal<S> = (request: FinalRequest<S>) => Promise<readonly (readonly number[])[] | undefined>;

/** What a contender takes more than the first one, as a share of what that takes; negative: less. */
export interface Judgement {
  readonly difference: number;
  /** Standard error of the difference. */
  readonly error: number;
}

/** Differences below this share of the sequence are nobody's business. */
const TELLING = 0.002;
/** Standard errors by which a difference must exceed nothing: the best of several is chosen, so by many. */
const SIGMAS = 3;
/** Seconds of a bucket's final: its share of what all finals may take, within these. */
const SHORTEST_FINAL = 2;
const LONGEST_FINAL = 30;
/** Challengers of one kernel. */
const CHALLENGERS = 2;
/** A challenger must have come this near to the default in bursts. */
const PROMISING = 1.05;
/** Of the final's seconds: the winners' second meeting, right after the first, so with less to settle. */
const AGAIN = { seconds: 0.4, settling: 0.15 };
const SETTLING = 0.35;
/** Of the default's time: no schedule takes less, whatever noise in a sequence says. */
const LEAST_SHARE = 0.1;

/** Each contender against the first, round by round: neighbours in time share clocks and heat. */
export function judge(rounds: readonly (readonly number[])[]): readonly Judgement[] {
  const [first = []] = rounds;
  return rounds.map((own) => {
    const shares = own.map((seconds, i) => seconds / first[i]! - 1);
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    const variance = shares.reduce((sum, share) => sum + (share - mean) ** 2, 0) / Math.max(1, shares.length - 1);
    return { difference: mean, error: Math.sqrt(variance / shares.length) };
  });
}

/** What must be gained before it counts, as a share of the sequence. */
const marginOf = ({ error }: Judgement): number => Math.max(TELLING, SIGMAS * error);
const isGain = (judgement: Judgement): boolean => judgement.difference < -marginOf(judgement);

/** Who meets the default of a job: nobody where there is none to be beaten. */
export const challengersOf = <S>(job: Job<S>): readonly Known<S>[] => job.challengers(CHALLENGERS, PROMISING);

/** Finals that are left to hold, heaviest bucket first: where something was measured since the last one. */
export function dueFinals<S>(
  jobs: readonly Job<S>[],
  weightOf: (job: Job<S>) => number,
): readonly { readonly contestants: readonly Job<S>[]; readonly weight: number }[] {
  const buckets = [...new Set(jobs.map(({ bucketIndex }) => bucketIndex))];
  return buckets
    .map((bucketIndex) => jobs.filter((job) => job.bucketIndex === bucketIndex))
    .filter((own) => own.some((job) => job.hasDefault && !job.isSettled))
    .map((contestants) => ({ contestants, weight: contestants.reduce((sum, job) => sum + weightOf(job), 0) }))
    .sort((a, b) => b.weight - a.weight);
}

interface Challenge<S> {
  readonly at: number;
  readonly known: Known<S>;
}

/**
 * Holds the final of one bucket and tells each job its outcome; `record` keeps it. `jobs`: the sequence, in order. What
 * no challenger comes near is settled without the device. False where a final could not be held.
 */
export async function holdFinal<S>(
  jobs: readonly Job<S>[],
  hold: HoldFinal<S>,
  {
    module,
    seconds,
    record,
    ...others
  }: Pick<FinalRequest<S>, 'module' | 'seconds' | 'onRound' | 'signal'> & {
    readonly record: (job: Job<S>, final: Final<S>) => void;
  },
): Promise<boolean> {
  const defaults = jobs.map((job) => job.incumbent);
  const challenges = jobs.flatMap((job, at): Challenge<S>[] => challengersOf(job).map((known) => ({ at, known })));
  const meet = (contenders: readonly (readonly S[])[], share: number, settling: number): ReturnType<HoldFinal<S>> =>
    hold({
      module,
      bucket: jobs[0]!.bucket,
      kernels: jobs.map(({ kernel }) => kernel),
      contenders: [defaults, ...contenders],
      seconds: share * seconds,
      settling,
      ...others,
    });
  const replaced = (changes: ReadonlyMap<number, S>): readonly S[] =>
    defaults.map((schedule, at) => changes.get(at) ?? schedule);
  let judged: readonly Judgement[] = [];
  if (challenges.length > 0) {
    const rounds = await meet(
      challenges.map(({ at, known }) => replaced(new Map([[at, known.schedule]]))),
      1,
      SETTLING,
    );
    if (rounds === undefined) return false;
    judged = judge(rounds).slice(1);
  }
  // Place in the sequence → the challenge that gains most.
  const winners = new Map<number, number>();
  for (const [i, { at }] of challenges.entries()) {
    const top = winners.get(at);
    if (isGain(judged[i]!) && (top === undefined || judged[i]!.difference < judged[top]!.difference))
      winners.set(at, i);
  }
  let isConfirmed = true;
  if (winners.size > 0) {
    const again = await meet(
      [replaced(new Map([...winners].map(([at, i]) => [at, challenges[i]!.known.schedule])))],
      AGAIN.seconds,
      AGAIN.settling,
    );
    if (again === undefined) return false;
    isConfirmed = isGain(judge(again)[1]!);
  }
  const total = jobs.reduce((sum, job) => sum + job.incumbentSeconds, 0);
  for (const [at, job] of jobs.entries()) {
    // Nobody has looked at it, or a stand-in took part that had nobody to beat.
    if (!job.hasDefault) continue;
    const winner = isConfirmed ? winners.get(at) : undefined;
    // Without those that only noise has put before the winner, or that won in vain.
    const own = [...challenges.keys()].filter(
      (i) =>
        challenges[i]!.at === at &&
        (winner === undefined ? !isGain(judged[i]!) : judged[i]!.difference >= judged[winner]!.difference),
    );
    const entries = own.map((i) => ({
      schedule: challenges[i]!.known.schedule,
      seconds: Math.max(LEAST_SHARE * job.incumbentSeconds, job.incumbentSeconds + judged[i]!.difference * total),
    }));
    const marginSeconds =
      total *
      (winner === undefined ? Math.max(TELLING, ...own.map((i) => marginOf(judged[i]!))) : marginOf(judged[winner]!));
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
  /** Measures schedules of a job that are only remembered: nobody has compared their results in this search. */
  readonly check: (job: Job<S>, schedules: readonly S[]) => Promise<void>;
  /** Share of the time of a whole run. */
  readonly weightOf: (job: Job<S>) => number;
  /** For all finals. */
  readonly seconds: number;
  readonly secondsLeft: () => number;
  /** Nothing new is begun. */
  readonly isOver: () => boolean;
  readonly record: (job: Job<S>, final: Final<S>) => void;
  /** Before a final and after each of its rounds, with its bucket; after it, without. */
  readonly onProgress: (job: Job<S>, final?: Bucket) => void;
}

/** Holds all finals that are due, as far as time allows. True where none is left. */
export async function holdFinals<S>(
  jobs: readonly Job<S>[],
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
      // Whoever fails makes room for the next one.
      for (let next = unseen(); next.length > 0 && !isOver(); next = unseen()) await check(job, next);
    }
    // A shorter one tells nothing.
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
        ...(signal === undefined ? {} : { signal }),
      })
    )
      held++;
    onProgress(first!);
  }
  return held === finals.length;
}
