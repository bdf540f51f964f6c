/** What the tuning database holds and a search reads of it, whatever the target. */
import type { Bucket } from '../ir/plan.js';
import type { JobLine } from './recordSchemas.js';

/** A schedule and its time. */
export interface Known<S> {
  readonly schedule: S;
  /** Median of its repeats; Infinity if it failed. */
  readonly seconds: number;
}

/** Schedules compared under sustained load. */
export interface Final<S> {
  readonly entries: readonly Known<S>[];
  /** Smallest gain that counts as beating the default. */
  readonly marginSeconds: number;
}

/** What was measured and where: kernel signature, bucket, and what else the measurement depends on. */
export interface Measured<T> {
  readonly key: string;
  readonly bucket: Bucket;
  readonly target: T;
}

/** What the trials of a place are of. */
export type JobFacts<S> = Omit<JobLine['job'], 'schedule'> & { readonly schedule: S };

/** Measurements on one machine, which outlive a search. */
export interface Records<S> {
  /** Says once what the trials that follow are of. */
  describe(signature: string, bucket: Bucket, job: JobFacts<S>): void;
  known(signature: string, bucket: Bucket): Iterable<Known<S>>;
  /** Writes one record at once. Empty `seconds` means that the schedule failed; `failure` says why. */
  append(signature: string, bucket: Bucket, schedule: S, seconds: readonly number[], failure?: string): void;
  /** Reads the newest final and writes a new one. */
  readonly finals: {
    known(signature: string, bucket: Bucket): Final<S> | undefined;
    append(signature: string, bucket: Bucket, final: Final<S>): void;
  };
}
