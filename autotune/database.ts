/**
 * Measurements as JSON lines: one record a line, appended and flushed, so that an interrupted run loses at most the
 * line it was writing. Several processes may append at once. What is read is never trusted: a line that is cut off,
 * foreign or out of bounds is counted and skipped, and a schedule must still be found legal by whoever uses it.
 */
import { closeSync, constants, fstatSync, fsyncSync, mkdirSync, openSync, readSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { CPU_ISAS, type Bucket, type CpuSchedule } from '../ir/plan.js';
import { readSettings, type Settings } from '../settings.js';
import { scheduleKey } from './candidates.js';

/** Bump when a record's meaning changes. Records of other versions are skipped. */
export const DATABASE_VERSION = 1;

/** Larger files are read from this far before their end: the newest records count. */
const MAX_FILE_BYTES = 64 << 20;
const MAX_LINE_BYTES = 1 << 14;

const extent = z.int().min(1).max(1 << 20);
const text = z.string().min(1).max(200);

const scheduleSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('gemm'), isa: z.enum(CPU_ISAS), mr: extent, nr: extent, kc: extent, mb: extent, nb: extent }),
  z.strictObject({ kind: z.literal('attention'), isa: z.enum(CPU_ISAS), queries: extent, keys: extent }),
  z.strictObject({ kind: z.literal('loop'), isa: z.enum(CPU_ISAS), rows: extent }),
]);

const bucketSchema = z.strictObject({ tokens: extent, rows: extent, longest: extent });

/** Everything about the machine and the tools that changes a measurement. */
const targetSchema = z.strictObject({
  /** Architecture and strongest instruction set of the plan: `x64/avx512`. */
  isa: text,
  cpu: text,
  threads: z.int().min(1).max(4096),
  /** First line of the compiler's --version. */
  compiler: text,
  /** TW_ABI of generated kernels. */
  abi: z.int().min(0).max(1 << 20),
  /** Digest of the skeletons that kernels are printed from. */
  codegen: z.string().regex(/^[0-9a-f]{1,64}$/),
});
export type TuningTarget = z.infer<typeof targetSchema>;

const recordSchema = z.strictObject({
  version: z.literal(DATABASE_VERSION),
  /** Kernel signature. */
  key: z.string().regex(/^[0-9a-f]{8,64}$/),
  bucket: bucketSchema,
  target: targetSchema,
  schedule: scheduleSchema,
  /** Seconds of each repeat; empty where the candidate failed. */
  seconds: z.array(z.number().positive().max(3600)).max(1000),
  /** Why it may not be used: its result differs, it does not compile. */
  failure: z.string().max(500).optional(),
  /** ISO 8601. */
  timestamp: z.iso.datetime(),
}).refine((record) => (record.failure === undefined) === (record.seconds.length > 0), 'seconds or a failure');
export type TuningRecord = z.infer<typeof recordSchema>;

/** Best of what is known: where its repeats lie in the middle. */
export interface Known<S = CpuSchedule> {
  readonly schedule: S;
  /** Median; Infinity for a failure. */
  readonly seconds: number;
}

/** Middle value; mean of the two middle ones for an even count. Throws where there are none. */
export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('The median of nothing.');
  return sorted.length % 2 === 1 ? upper : (sorted[middle - 1]! + upper) / 2;
}

const placeOf = (key: string, bucket: Bucket, target: TuningTarget): string =>
  JSON.stringify([key, bucket.tokens, bucket.rows, bucket.longest, target.isa, target.cpu, target.threads, target.compiler, target.abi, target.codegen]);

/** One file of measurements, read whole when opened. */
export class TuningDatabase {
  readonly path: string;
  /** Lines that could not be used. */
  readonly skipped: number;
  private readonly file: number;
  private readonly records = new Map<string, Map<string, Known>>();
  /** The file ends in the middle of a line: the next record starts a new one. */
  private isCutOff: boolean;

  private constructor(path: string, file: number) {
    this.path = path;
    this.file = file;
    const { lines, isCutOff } = readLines(file);
    this.isCutOff = isCutOff;
    let skipped = 0;
    for (const line of lines) {
      const record = parseRecord(line);
      if (record === undefined) skipped++;
      else this.remember(record);
    }
    this.skipped = skipped;
  }

  /** Opens the database, making it and its folder where missing. Throws UserError where it cannot be read or written. */
  static open(path: string): TuningDatabase {
    let file: number | undefined;
    try {
      mkdirSync(dirname(path), { recursive: true });
      file = openSync(path, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT, 0o600);
      return new TuningDatabase(path, file);
    } catch (error) {
      if (file !== undefined) closeSync(file);
      throw failure(path, error);
    }
  }

  /** Everything known of one kernel and bucket on one target, by schedule: the newest record of each. */
  known(key: string, bucket: Bucket, target: TuningTarget): ReadonlyMap<string, Known> {
    return this.records.get(placeOf(key, bucket, target)) ?? new Map();
  }

  /** The fastest schedule known, by median; undefined where none worked. Equal times: the one whose text is least. */
  best(key: string, bucket: Bucket, target: TuningTarget): Known | undefined {
    let best: Known | undefined;
    for (const [, known] of [...this.known(key, bucket, target)].sort(([a], [b]) => (a < b ? -1 : 1))) {
      if (Number.isFinite(known.seconds) && (best === undefined || known.seconds < best.seconds)) best = known;
    }
    return best;
  }

  /** Writes one record and flushes it to the disk. Throws UserError where the disk is full, Error for a bad record. */
  append(record: Omit<TuningRecord, 'version' | 'timestamp'>, now: Date = new Date()): void {
    const whole = recordSchema.parse({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() });
    try {
      const line = Buffer.from(`${this.isCutOff ? '\n' : ''}${JSON.stringify(whole)}\n`);
      const written = writeSync(this.file, line);
      this.isCutOff = written < line.length;
      if (this.isCutOff) throw new Error('only a part of a line could be written: the disk is full');
      fsyncSync(this.file);
    } catch (error) {
      throw failure(this.path, error);
    }
    this.remember(whole);
  }

  close(): void {
    closeSync(this.file);
  }

  private remember(record: TuningRecord): void {
    const place = placeOf(record.key, record.bucket, record.target);
    const known = this.records.get(place) ?? new Map<string, Known>();
    known.set(scheduleKey(record.schedule), { schedule: record.schedule, seconds: record.failure === undefined ? median(record.seconds) : Infinity });
    this.records.set(place, known);
  }
}

/** Where measurements are kept unless the caller says otherwise: beside compiled kernels in the cache folder. */
export const defaultDatabasePath = (settings: Settings = readSettings()): string => join(settings.cacheDir, 'tuning.jsonl');

function failure(path: string, error: unknown): Error {
  if (error instanceof z.ZodError || error instanceof UserError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new UserError(`The tuning database ${path} cannot be used: ${reason}`, 'Free space or permissions there, or name another file: tilewright tune … --database FILE', { cause: error });
}

function parseRecord(line: string): TuningRecord | undefined {
  if (Buffer.byteLength(line) > MAX_LINE_BYTES) return undefined;
  try {
    const parsed = recordSchema.safeParse(JSON.parse(line));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

/** Lines that are not empty; the last one may lack its end. */
function readLines(file: number): { readonly lines: readonly string[]; readonly isCutOff: boolean } {
  const status = fstatSync(file);
  if (!status.isFile()) throw new Error('it is not a file');
  const start = Math.max(0, status.size - MAX_FILE_BYTES);
  const bytes = Buffer.alloc(status.size - start);
  let length = 0;
  while (length < bytes.length) {
    const count = readSync(file, bytes, length, bytes.length - length, start + length);
    if (count === 0) break;
    length += count;
  }
  const lines = bytes.toString('utf8', 0, length).split('\n');
  return { lines: lines.filter((line) => line.trim() !== ''), isCutOff: lines.at(-1) !== '' };
}
