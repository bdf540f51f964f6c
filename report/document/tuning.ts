/** The section on tuning: trials on each machine, in the order in which they were made. */
import type { TracePeak } from './machine.js';

/** A time of the vendor's library for the bare product of a kernel. */
export interface VendorBaseline {
  /** `cuBLASLt 13.0.2`. */
  readonly library: string;
  readonly algorithm: string;
  readonly seconds: number;
  /** Where the figure is from: the records themselves, or a file of `bench:gpu --json`. */
  readonly source: string;
}

export interface TuningResult {
  /** The schedule as text. */
  readonly schedule: string;
  readonly seconds: number;
}

/** A kernel in a bucket. */
export interface TuningJob {
  /** Model path of the first kernel of its kind; its key where records do not say. */
  readonly kernel: string;
  readonly isNamed: boolean;
  /** Extents of its bucket: `1,024 T, 512 R`. */
  readonly bucket: string;
  /** The largest extent: of two buckets, the one that says more of a long run. */
  readonly size: number;
  /** Kernels of the model that it stands for; 1 where records do not say. */
  readonly count: number;
  /** Of a launch. */
  readonly flops?: number;
  readonly bytes?: number;
  /** Code generation's default, once it was measured. */
  readonly standard?: TuningResult;
  /** The fastest that worked. */
  readonly best?: TuningResult;
  /** What a final under load chose, where one was held. */
  readonly final?: TuningResult & { readonly isDefault: boolean };
  readonly rival?: VendorBaseline;
  /** Least time that the roofline allows, divided by the best; where peaks and work are known. */
  readonly shareOfPeak?: number;
  readonly trials: number;
  readonly failures: number;
}

/** Trials as columns, in the order of the records. */
export interface Trials {
  /** Index of the job. */
  readonly job: readonly number[];
  /** Seconds since the first trial of the machine. */
  readonly at: readonly number[];
  /** Median; null where the schedule failed. */
  readonly seconds: readonly (number | null)[];
  /** Index into the machine's schedules. */
  readonly schedule: readonly number[];
}

/** Trials that were made on one machine with the same tools. */
export interface TuningMachine {
  readonly name: string;
  /** What its measurements depend on, as its records say. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** The date of the first trial. */
  readonly begin: string;
  readonly peaks?: { readonly arithmetic: TracePeak; readonly memory: TracePeak };
  readonly schedules: readonly string[];
  /** Reasons for which schedules failed, most frequent first. */
  readonly failures: readonly { readonly reason: string; readonly count: number }[];
  readonly jobs: readonly TuningJob[];
  readonly trials: Trials;
}

/** A comparison with the vendor's library of `bench:gpu --json`. */
export interface BenchRow {
  readonly kernel: string;
  readonly tokens: number;
  readonly schedule: string;
  readonly seconds: number;
  readonly rival?: { readonly algorithm: string; readonly seconds: number };
}

export interface Bench {
  readonly file: string;
  readonly device: string;
  readonly library: string;
  readonly model: string;
  /** The fastest of each kernel and size. */
  readonly rows: readonly BenchRow[];
}

export interface TuningDocument {
  readonly files: readonly string[];
  readonly machines: readonly TuningMachine[];
  readonly benches: readonly Bench[];
}

/** What the tuner had found after each trial. */

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
