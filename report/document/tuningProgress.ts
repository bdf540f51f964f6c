/** What the tuner had found after each trial. */
import type { TuningJob, TuningMachine } from './tuning.js';

/** A trial of one kernel and bucket. */
export interface Trial {
  /** From 1, among those of its job; or of all. */
  readonly number: number;
  readonly at: number;
  readonly seconds: number | null;
  readonly schedule: string;
  /** The least time so far; null before anything worked. */
  readonly best: number | null;
}

export function trialsOf({ trials, schedules }: TuningMachine, job: number): readonly Trial[] {
  const found: Trial[] = [];
  let best: number | null = null;
  for (const [i, of] of trials.job.entries()) {
    if (of !== job) continue;
    const seconds = trials.seconds[i]!;
    if (seconds !== null) best = best === null ? seconds : Math.min(best, seconds);
    found.push({
      number: found.length + 1,
      at: trials.at[i]!,
      seconds,
      best,
      schedule: schedules[trials.schedule[i]!]!,
    });
  }
  return found;
}

/** Kernels of the largest size, whose times add up to those of a call. */
export function largest(jobs: readonly TuningJob[]): ReadonlySet<number> {
  const sizes = new Map<string, number>();
  for (const { kernel, size } of jobs) sizes.set(kernel, Math.max(size, sizes.get(kernel) ?? 0));
  return new Set(jobs.flatMap(({ kernel, size }, i) => (size === sizes.get(kernel) ? [i] : [])));
}

export interface Progress {
  readonly number: number;
  /** Seconds of the kernels of the largest calls with the best schedules so far, divided by those with the defaults. */
  readonly share: number;
}

/** How the time of the largest calls fell, from the trial on that measured the last default. */
export function progressOf(machine: TuningMachine): readonly Progress[] {
  const counted = largest(machine.jobs);
  const own = machine.jobs.map(({ standard, count }, i) =>
    counted.has(i) && standard !== undefined ? { standard: standard.seconds * count, count } : undefined,
  );
  const whole = own.reduce((sum, each) => sum + (each?.standard ?? 0), 0);
  if (whole === 0) return [];
  let now = whole;
  const best = own.map((each) => each?.standard ?? 0);
  return machine.trials.job.map((job, i): Progress => {
    const [seconds, known] = [machine.trials.seconds[i], own[job]];
    if (known !== undefined && seconds !== null && seconds !== undefined && seconds * known.count < best[job]!) {
      now -= best[job]! - seconds * known.count;
      best[job] = seconds * known.count;
    }
    return { number: i + 1, share: now / whole };
  });
}

/** What a job would take in a run: its importance beside others. */
export const weightOf = ({ best, count }: TuningJob): number => (best?.seconds ?? 0) * count;

/** The default's time divided by that of the schedule that is used; undefined where one is not known. */
export function gainOf({ standard, best, final }: TuningJob): number | undefined {
  const used = final ?? best;
  if (standard === undefined || used === undefined) return undefined;
  if (final?.isDefault === true) return 1;
  return standard.seconds / used.seconds;
}
