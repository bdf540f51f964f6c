/**
 * Measurements as JSON lines: one record a line, appended and flushed, so that an interrupted run loses at most the
 * line it was writing. Several processes may append at once. What is read is never trusted: a line that is cut off,
 * foreign or out of bounds is counted and skipped, and a schedule must still be found legal by whoever uses it.
 */
import { closeSync, constants, fstatSync, fsyncSync, mkdirSync, openSync, readSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import type { CudaSchedule } from '../ir/cuda.js';
import type { Bucket, CpuSchedule } from '../ir/plan.js';
import { readSettings, type Settings } from '../settings.js';
import { scheduleKey } from './candidates.js';
import {
  cudaFinalSchema,
  cudaRecordSchema,
  DATABASE_VERSION,
  recordSchema,
  rivalRecordSchema,
  type CudaFinalRecord,
  type CudaTuningRecord,
  type CudaTuningTarget,
  type RivalKey,
  type RivalRecord,
  type TuningRecord,
  type TuningTarget,
} from './recordSchemas.js';

export {
  DATABASE_VERSION,
  type CudaTuningTarget,
  type RivalKey,
  type TuningRecord,
  type TuningTarget,
} from './recordSchemas.js';

/** Larger files are read from this far before their end: the newest records count. */
const MAX_FILE_BYTES = 64 << 20;
const MAX_LINE_BYTES = 1 << 14;

/** Best of what is known: where its repeats lie in the middle. */
export interface Known<S = CpuSchedule> {
  readonly schedule: S;
  /** Median; Infinity for a failure. */
  readonly seconds: number;
}

/** Schedules that met under load. */
export interface Final<S> {
  readonly entries: readonly Known<S>[];
  /** By more than this the default must be beaten. */
  readonly marginSeconds: number;
}

/** Middle value; mean of the two middle ones for an even count. Throws where there are none. */
export function median(values: ArrayLike<number>): number {
  const sorted = Float64Array.from(values).sort();
  const middle = sorted.length >> 1;
  const upper = sorted[middle];
  if (upper === undefined) throw new Error('The median of nothing.');
  return sorted.length % 2 === 1 ? upper : (sorted[middle - 1]! + upper) / 2;
}

const textOf = (value: Readonly<Record<string, string | number>>): string =>
  JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));

const placeOf = (key: string, bucket: Bucket, target: TuningTarget | CudaTuningTarget): string =>
  JSON.stringify([key, bucket.tokens, bucket.rows, bucket.longest, textOf(target)]);

/** A CUDA schedule as text: equal texts are equal schedules. */
export function cudaScheduleKey(s: CudaSchedule): string {
  switch (s.kind) {
    case 'gemm':
      return `${s.skeleton} ${s.tm}×${s.tn}×${s.tk} s${s.stages} c${s.cluster} r${s.raster} ${s.mode}${s.lastTn === undefined ? '' : ` l${s.lastTn}`}`;
    case 'attention':
      return `${s.skeleton} q${s.queries} k${s.keys}`;
    case 'loop':
      return `t${s.threads}`;
    default:
      return s satisfies never;
  }
}

/** Medians by place and schedule: the newest record of each. */
class Memory<S> {
  private readonly places = new Map<string, Map<string, Known<S>>>();

  at(place: string): ReadonlyMap<string, Known<S>> {
    return this.places.get(place) ?? new Map();
  }

  put(place: string, key: string, schedule: S, seconds: readonly number[]): void {
    const known = this.places.get(place) ?? new Map<string, Known<S>>();
    known.set(key, { schedule, seconds: seconds.length === 0 ? Infinity : median(seconds) });
    this.places.set(place, known);
  }
}

type AnyRecord = TuningRecord | CudaTuningRecord | CudaFinalRecord | RivalRecord;

/** One file of measurements, read whole when opened. */
export class TuningDatabase {
  readonly path: string;
  /** Lines that could not be used. */
  readonly skipped: number;
  private readonly file: number;
  private readonly cpu = new Memory<CpuSchedule>();
  private readonly gpu = new Memory<CudaSchedule>();
  /** By place: the newest final. */
  private readonly finals = new Map<string, Final<CudaSchedule>>();
  private readonly rivals = new Map<string, RivalRecord>();
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

  /**
   * Opens the database, making it and its folder where missing. Throws UserError where it cannot be read or written.
   */
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
    return this.cpu.at(placeOf(key, bucket, target));
  }

  /** The same of a GPU. */
  knownCuda(key: string, bucket: Bucket, target: CudaTuningTarget): ReadonlyMap<string, Known<CudaSchedule>> {
    return this.gpu.at(placeOf(key, bucket, target));
  }

  /** The newest final of a kernel and bucket on a GPU. */
  finalCuda(key: string, bucket: Bucket, target: CudaTuningTarget): Final<CudaSchedule> | undefined {
    return this.finals.get(placeOf(key, bucket, target));
  }

  /** The vendor's time for a contraction, where it was measured. */
  knownRival(rival: RivalKey): { readonly name: string; readonly seconds: number } | undefined {
    const record = this.rivals.get(textOf(rival));
    return record === undefined ? undefined : { name: record.name, seconds: median(record.seconds) };
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
    this.write(recordSchema.parse({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() }));
  }

  appendCuda(record: Omit<CudaTuningRecord, 'version' | 'timestamp'>, now: Date = new Date()): void {
    this.write(cudaRecordSchema.parse({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() }));
  }

  appendCudaFinal(record: Omit<CudaFinalRecord, 'version' | 'timestamp'>, now: Date = new Date()): void {
    this.write(cudaFinalSchema.parse({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() }));
  }

  appendRival(record: Omit<RivalRecord, 'version' | 'timestamp'>, now: Date = new Date()): void {
    this.write(rivalRecordSchema.parse({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() }));
  }

  private write(record: AnyRecord): void {
    try {
      const line = Buffer.from(`${this.isCutOff ? '\n' : ''}${JSON.stringify(record)}\n`);
      const written = writeSync(this.file, line);
      this.isCutOff = written < line.length;
      if (this.isCutOff) throw new Error('only a part of a line could be written: the disk is full');
      fsyncSync(this.file);
    } catch (error) {
      throw failure(this.path, error);
    }
    this.remember(record);
  }

  close(): void {
    closeSync(this.file);
  }

  private remember(record: AnyRecord): void {
    if ('rival' in record) this.rivals.set(textOf(record.rival), record);
    else if ('final' in record)
      this.finals.set(placeOf(record.key, record.bucket, record.cuda), {
        entries: record.final,
        marginSeconds: record.marginSeconds,
      });
    else if ('cuda' in record)
      this.gpu.put(
        placeOf(record.key, record.bucket, record.cuda),
        cudaScheduleKey(record.schedule),
        record.schedule,
        record.seconds,
      );
    else
      this.cpu.put(
        placeOf(record.key, record.bucket, record.target),
        scheduleKey(record.schedule),
        record.schedule,
        record.seconds,
      );
  }
}

/** Where measurements are kept unless the caller says otherwise: beside compiled kernels in the cache folder. */
export const defaultDatabasePath = (settings: Settings = readSettings()): string =>
  join(settings.cacheDir, 'tuning.jsonl');

function failure(path: string, error: unknown): Error {
  if (error instanceof z.ZodError || error instanceof UserError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new UserError(
    `The tuning database ${path} cannot be used: ${reason}`,
    'Free space or permissions there, or name another file: tilewright tune … --database FILE',
    { cause: error },
  );
}

const anyRecord = z.union([recordSchema, cudaRecordSchema, cudaFinalSchema, rivalRecordSchema]);

function parseRecord(line: string): AnyRecord | undefined {
  if (Buffer.byteLength(line) > MAX_LINE_BYTES) return undefined;
  try {
    const parsed = anyRecord.safeParse(JSON.parse(line));
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
