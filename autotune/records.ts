/** What the tuning database holds and a search reads of it, whatever the target. */
import { z } from 'zod';
import type { Scheduling } from '../codegen/scheduling.js';
import { EXTENT_NAME } from '../ir/extents.js';
import type { Bucket } from '../ir/plan.js';
import { scoringBucket } from '../ir/scoring.js';
import { MAX_KEYS } from '../ir/stepping.js';
import { PEAK_SOURCES } from './peaks.js';

/** A schedule and its time. */
export interface TimedSchedule<S> {
  readonly schedule: S;
  /** Median of its repeats; Infinity if it failed. */
  readonly seconds: number;
}

/** Schedules compared under sustained load. */
export interface Final<S> {
  readonly entries: readonly TimedSchedule<S>[];
  /** Smallest gain that counts as beating the default. */
  readonly marginSeconds: number;
}

/** What was measured and where: kernel signature, bucket, and what else the measurement depends on. */
export interface RecordPlace<T> {
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
  known(signature: string, bucket: Bucket): Iterable<TimedSchedule<S>>;
  /** Writes one record at once. Empty `seconds` means that the schedule failed; `failure` says why. */
  append(signature: string, bucket: Bucket, schedule: S, seconds: readonly number[], failure?: string): void;
  /** Reads the newest final and writes a new one. */
  readonly finals: {
    known(signature: string, bucket: Bucket): Final<S> | undefined;
    append(signature: string, bucket: Bucket, final: Final<S>): void;
  };
}

/** Incremented when a record's meaning changes. Records of other versions are skipped. */
export const DATABASE_VERSION = 1;

/** Steps have the most: entries of the list of keys. */
const extent = z.int().min(1).max(MAX_KEYS);
/** A name reported by a machine or a tool. */
export const recordText = z.string().min(1).max(200);
/** A digest of code, hexadecimal. */
export const recordDigest = z.string().regex(/^[0-9a-f]{1,64}$/);
/** A version number. */
export const recordVersion = z
  .int()
  .min(0)
  .max(1 << 20);

const seconds = z.number().positive().max(3600);
/** ISO 8601. */
const timestamp = z.iso.datetime();

/** What a measurement depends on besides the kernel: the machine, its tools, the text of generated code. */
export type TuningFacts = Readonly<Record<string, string | number>>;

/** How the records of one target are written. `S`: its schedules. `T`: what its measurements depend on. */
export interface RecordFormat<S, T extends TuningFacts> {
  /** The field of a line that holds `T`. */
  readonly field: string;
  readonly target: z.ZodType<T>;
  readonly scheduling: Pick<Scheduling<S, never>, 'schema' | 'key'>;
}

/** Extents by name. The form with `tokens` and `rows` is accepted for records of scoring. */
const bucket = z.union([
  z.strictObject({
    extents: z.record(z.string().regex(EXTENT_NAME), extent),
    longest: extent,
    run: extent.exactOptional(),
  }),
  z.strictObject({ tokens: extent, rows: extent, longest: extent }).transform(scoringBucket),
]);

/** What was measured. A RecordFormat defines `target` and the schedules. */
const place = {
  version: z.literal(DATABASE_VERSION),
  /** Kernel signature. */
  key: z.string().regex(/^[0-9a-f]{8,64}$/),
  bucket,
  target: z.unknown(),
};

/** One candidate, measured in a burst. */
export const trialSchema = z
  .strictObject({
    ...place,
    schedule: z.unknown(),
    /** Seconds of each repeat; empty where the candidate failed. */
    seconds: z.array(seconds).max(1000),
    /** Why it may not be used, for example because its result differs or it does not compile. */
    failure: z.string().max(500).exactOptional(),
    timestamp,
  })
  .refine(
    (record) => (record.failure === undefined) === record.seconds.length > 0,
    'a record has either seconds or a failure',
  );
export type TrialLine = z.infer<typeof trialSchema>;

/** The fastest schedules of a search, compared with each other and the default under load. The newest final decides. */
export const finalSchema = z.strictObject({
  ...place,
  /** Seconds per launch. */
  final: z
    .array(z.strictObject({ schedule: z.unknown(), seconds }))
    .min(1)
    .max(16),
  /** The final's resolution: a schedule that gains less than this has not beaten the default. */
  marginSeconds: z.number().min(0).max(3600),
  timestamp,
});
export type FinalLine = z.infer<typeof finalSchema>;

const BASELINE_DTYPES = ['f16', 'bf16', 'e4m3'] as const;

/** A bare contraction C[m, n] = A[m, k]·W[n, k]ᵀ by the vendor's library. */
export const baselineRecordSchema = z.strictObject({
  version: z.literal(DATABASE_VERSION),
  rival: z.strictObject({
    /** Name and version, such as `cuBLASLt 13.0`. */
    library: recordText,
    gpu: recordText,
    driver: recordVersion,
    dtype: z.enum(BASELINE_DTYPES),
    m: extent,
    n: extent,
    k: extent,
  }),
  /** Name of the fastest algorithm. */
  name: recordText,
  seconds: z.array(seconds).min(1).max(1000),
  timestamp,
});
export type BaselineRecord = z.infer<typeof baselineRecordSchema>;
export type BaselineKey = BaselineRecord['rival'];

/** A rate, and whether it was measured or is known of the machine's kind. */
const peak = z.strictObject({ perSecond: z.number().min(1).max(1e20), source: z.enum(PEAK_SOURCES) });

/** What the machine reached when it was tuned: the roof that kernels are compared with. */
export const peaksSchema = z.strictObject({
  version: z.literal(DATABASE_VERSION),
  peaks: z.strictObject({ arithmetic: peak, memory: peak }),
  target: z.unknown(),
  timestamp,
});
export type PeaksLine = z.infer<typeof peaksSchema>;

/**
 * What the trials of a place are of, for people: written once by each search, before its first trial there. Readers
 * that do not know it skip it.
 */
export const jobSchema = z.strictObject({
  ...place,
  job: z.strictObject({
    /** Model path of the first kernel with this signature, and the number of them. */
    kernel: z.string().min(1).max(300),
    count: z
      .int()
      .min(1)
      .max(1 << 20),
    /** Under which finals are recorded. */
    signature: z.string().regex(/^[0-9a-f]{8,64}$/),
    /** Code generation's default, with which all others are compared. */
    schedule: z.unknown(),
    /** Work of a launch, and the cost model's estimate for the default. */
    flops: z.number().min(0).max(1e20),
    bytes: z.number().min(0).max(1e18),
    estimateSeconds: z.number().min(0).max(3600),
    /** The bare product that a vendor's library would compute. */
    product: z.strictObject({ dtype: z.enum(BASELINE_DTYPES), m: extent, n: extent, k: extent }).exactOptional(),
  }),
  timestamp,
});
export type JobLine = z.infer<typeof jobSchema>;

/** The fastest entry of a final, or the default if it was not beaten clearly. Undefined if there are no entries. */
export function winnerOf<S>(
  { entries, marginSeconds }: Final<S>,
  isDefault: (schedule: S) => boolean,
): TimedSchedule<S> | undefined {
  const first = entries.reduce<TimedSchedule<S> | undefined>(
    (top, each) => (top === undefined || each.seconds < top.seconds ? each : top),
    undefined,
  );
  const start = entries.find(({ schedule }) => isDefault(schedule));
  return first !== undefined && start !== undefined && first.seconds >= start.seconds - marginSeconds ? start : first;
}

export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('The median of an empty list is undefined.');
  return sorted.length % 2 === 1 ? upper : (sorted[middle - 1]! + upper) / 2;
}
