/** The section on tuning: trials on each machine, in the order in which they were made. */
import type { TracePeak } from './trace.js';

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
