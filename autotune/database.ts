/**
 * Measurements as JSON lines: one record per line, appended and flushed, so that an interrupted run loses at most the
 * line it was writing. Several processes may append at once. Contents are never trusted: a line that is cut off,
 * foreign or out of bounds is counted and skipped, and a caller must check that a schedule is legal.
 */
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { UserError } from '../errors.js';
import type { Bucket } from '../ir/plan.js';
import { requireCacheDir } from '../runtime/kernelCache.js';
import { readSettings, type Settings } from '../settings.js';
import { defined } from '../system/defined.js';
import type { Peaks } from './peaks.js';
import {
  DATABASE_VERSION,
  type TuningFacts,
  type Final,
  type FinalLine,
  finalSchema,
  type JobFacts,
  jobSchema,
  type TimedSchedule,
  type RecordPlace,
  median,
  type PeaksLine,
  peaksSchema,
  type RecordFormat,
  type Records,
  type BaselineKey,
  type BaselineRecord,
  baselineRecordSchema,
  type TrialLine,
  trialSchema,
} from './records.js';

const textOf = (value: TuningFacts): string =>
  JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));

const placeOf = <T extends TuningFacts>({ key, bucket, target }: RecordPlace<T>): string =>
  JSON.stringify([
    key,
    textOf(bucket.extents),
    bucket.longest,
    textOf(target),
    ...(bucket.run === undefined ? [] : [bucket.run]),
  ]);

/** One file of measurements, read whole when opened: the records of one target, and the vendor's times. */
export class TuningDatabase<S, T extends TuningFacts> {
  readonly path: string;
  /** Number of lines that could not be used: damaged, or of another target. */
  readonly skipped: number;
  private readonly format: RecordFormat<S, T>;
  private readonly file: number;
  /** By place, then by schedule: the newest record of each. */
  private readonly trials = new Map<string, Map<string, TimedSchedule<S>>>();
  /** By place: the newest final. */
  private readonly finals = new Map<string, Final<S>>();
  private readonly baselines = new Map<string, BaselineRecord>();
  /** By its text: machines with measurements, the latest last. */
  private readonly machines = new Map<string, T>();
  private readonly rates = new Map<string, Peaks>();
  /** Whether the file ends in the middle of a line. The next record then starts a new line. */
  private isCutOff: boolean;

  private constructor(path: string, file: number, format: RecordFormat<S, T>) {
    this.path = path;
    this.file = file;
    this.format = format;
    const { lines, isCutOff } = readLines(file);
    this.isCutOff = isCutOff;
    this.skipped = lines.filter((line) => !this.remember(parseLine(line))).length;
  }

  /** Opens the database; creates it and its folder if missing. Throws UserError if it cannot be read or written. */
  static open<S, T extends TuningFacts>(path: string, format: RecordFormat<S, T>): TuningDatabase<S, T> {
    let file: number | undefined;
    try {
      mkdirSync(dirname(path), { recursive: true });
      if (existsSync(path) && !statSync(path).isFile()) throw new Error('it is no file');
      file = openSync(path, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT, 0o600);
      return new TuningDatabase(path, file, format);
    } catch (error) {
      if (file !== undefined) closeSync(file);
      throw databaseFailure(path, error);
    }
  }

  /** Opens a database for reading; undefined if there is none, or none that can be read. */
  static openExisting<S, T extends TuningFacts>(
    path: string,
    format: RecordFormat<S, T>,
  ): TuningDatabase<S, T> | undefined {
    let file: number | undefined;
    try {
      file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
      return new TuningDatabase(path, file, format);
    } catch {
      if (file !== undefined) closeSync(file);
      return undefined;
    }
  }

  /** The machines that were measured, the latest first. */
  get targets(): readonly T[] {
    return [...this.machines.values()].reverse();
  }

  /** What a machine reached when it was last tuned. */
  peaks(target: T): Peaks | undefined {
    return this.rates.get(textOf(target));
  }

  /** All measurements of one kernel and bucket on one machine, by schedule: the newest record of each. */
  known(key: string, bucket: Bucket, target: T): ReadonlyMap<string, TimedSchedule<S>> {
    return this.trials.get(placeOf({ key, bucket, target })) ?? new Map();
  }

  /** The newest final of a kernel and bucket. */
  final(key: string, bucket: Bucket, target: T): Final<S> | undefined {
    return this.finals.get(placeOf({ key, bucket, target }));
  }

  /** The vendor's time for a contraction, if it was measured. */
  knownBaseline(key: BaselineKey): { readonly name: string; readonly seconds: number } | undefined {
    const record = this.baselines.get(textOf(key));
    return record === undefined ? undefined : { name: record.name, seconds: median(record.seconds) };
  }

  /** The fastest known schedule by median; undefined if none worked. Ties go to the schedule with the least text. */
  best(key: string, bucket: Bucket, target: T): TimedSchedule<S> | undefined {
    let best: TimedSchedule<S> | undefined;
    for (const [, known] of [...this.known(key, bucket, target)].sort(([a], [b]) => (a < b ? -1 : 1))) {
      if (Number.isFinite(known.seconds) && (best === undefined || known.seconds < best.seconds)) best = known;
    }
    return best;
  }

  /** What a search on one machine reads and writes. */
  recordsFor(target: T): Records<S> {
    return {
      describe: (key, bucket, job) => this.describe({ key, bucket, target, job }),
      known: (key, bucket) => this.known(key, bucket, target).values(),
      append: (key, bucket, schedule, seconds, reason) => {
        this.append({ key, bucket, target, schedule, seconds, ...defined({ failure: reason }) });
      },
      finals: {
        known: (key, bucket) => this.final(key, bucket, target),
        append: (key, bucket, { entries, marginSeconds }) => {
          this.appendFinal({ key, bucket, target, final: entries, marginSeconds });
        },
      },
    };
  }

  /** Writes one record and flushes it to disk. Throws UserError if the disk is full, Error for an invalid record. */
  append(
    trial: RecordPlace<T> & { readonly schedule: S; readonly seconds: readonly number[]; readonly failure?: string },
    now: Date = new Date(),
  ): void {
    this.writePlaced(trial, now);
  }

  /** What the trials that follow are of. */
  describe(of: RecordPlace<T> & { readonly job: JobFacts<S> }, now: Date = new Date()): void {
    this.writePlaced(of, now);
  }

  appendFinal(
    final: RecordPlace<T> & { readonly final: readonly TimedSchedule<S>[]; readonly marginSeconds: number },
    now: Date = new Date(),
  ): void {
    this.writePlaced(final, now);
  }

  appendPeaks(target: T, peaks: Peaks, now: Date = new Date()): void {
    const { field } = this.format;
    this.write({ version: DATABASE_VERSION, peaks, [field]: target, timestamp: now.toISOString() });
  }

  appendBaseline(record: Omit<BaselineRecord, 'version' | 'timestamp'>, now: Date = new Date()): void {
    this.write({ version: DATABASE_VERSION, ...record, timestamp: now.toISOString() });
  }

  close(): void {
    closeSync(this.file);
  }

  /** A record as written in a line: `target` is stored under the format's own field name. */
  private writePlaced({ target, ...record }: RecordPlace<T>, now: Date): void {
    this.write({
      version: DATABASE_VERSION,
      ...record,
      [this.format.field]: target,
      timestamp: now.toISOString(),
    });
  }

  /** Refuses to write a record that could not be read back. */
  private write(record: unknown): void {
    const text = JSON.stringify(record);
    if (!this.remember(parseLine(text))) throw new Error(`Invalid measurement record: ${text.slice(0, 500)}`);
    try {
      const line = Buffer.from(`${this.isCutOff ? '\n' : ''}${text}\n`);
      const written = writeSync(this.file, line);
      this.isCutOff = written < line.length;
      if (this.isCutOff) throw new Error('only part of a line could be written: the disk is full');
      fsyncSync(this.file);
    } catch (error) {
      throw databaseFailure(this.path, error);
    }
  }

  /** False if the record belongs to another target or is damaged. */
  private remember(record: unknown): boolean {
    if (typeof record !== 'object' || record === null) return false;
    const baseline = baselineRecordSchema.safeParse(record);
    if (baseline.success) {
      this.baselines.set(textOf(baseline.data.rival), baseline.data);
      return true;
    }
    const { field } = this.format;
    const { [field]: target, ...rest }: Readonly<Record<string, unknown>> = { ...record };
    // Another target's field stays in `rest`, where the strict schemas reject it.
    if ('target' in rest) return false;
    const line = { ...rest, target };
    const trial = trialSchema.safeParse(line);
    if (trial.success) return this.rememberTrial(trial.data);
    const final = finalSchema.safeParse(line);
    if (final.success) return this.rememberFinal(final.data);
    const rates = peaksSchema.safeParse(line);
    return rates.success ? this.rememberPeaks(rates.data) : jobSchema.safeParse(line).success;
  }

  private rememberPeaks({ peaks, target }: PeaksLine): boolean {
    const parsed = this.format.target.safeParse(target);
    if (parsed.success) this.rates.set(textOf(parsed.data), peaks);
    return parsed.success;
  }

  private rememberTrial({ key, bucket, target, schedule, seconds }: TrialLine): boolean {
    const known = this.knownOf(schedule, seconds.length === 0 ? Infinity : median(seconds));
    const place = this.placeOf(key, bucket, target);
    if (known === undefined || place === undefined) return false;
    const all = this.trials.get(place) ?? new Map<string, TimedSchedule<S>>();
    all.set(this.format.scheduling.key(known.schedule), known);
    this.trials.set(place, all);
    return true;
  }

  private rememberFinal({ key, bucket, target, final, marginSeconds }: FinalLine): boolean {
    const entries = final.flatMap(({ schedule, seconds }) => this.knownOf(schedule, seconds) ?? []);
    const place = this.placeOf(key, bucket, target);
    if (place === undefined || entries.length < final.length) return false;
    this.finals.set(place, { entries, marginSeconds });
    return true;
  }

  private knownOf(schedule: unknown, seconds: number): TimedSchedule<S> | undefined {
    const parsed = this.format.scheduling.schema.safeParse(schedule);
    return parsed.success ? { schedule: parsed.data, seconds } : undefined;
  }

  /** Where a measurement belongs; its machine is remembered. */
  private placeOf(key: string, bucket: Bucket, target: unknown): string | undefined {
    const parsed = this.format.target.safeParse(target);
    if (!parsed.success) return undefined;
    const text = textOf(parsed.data);
    this.machines.delete(text);
    this.machines.set(text, parsed.data);
    return placeOf({ key, bucket, target: parsed.data });
  }
}

/** Larger files are read from this many bytes before their end: the newest records count. */
const MAX_FILE_BYTES = 64 << 20;
const MAX_LINE_BYTES = 1 << 14;

/** Default place of the measurements: beside the compiled kernels in the cache folder. */
export const defaultDatabasePath = (settings: Settings = readSettings()): string =>
  join(requireCacheDir(settings), 'tuning.jsonl');

/** The error for a file that cannot be opened, read or written, with what to do about it. */
export function databaseFailure(path: string, error: unknown): Error {
  if (error instanceof UserError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new UserError(
    `The tuning database ${path} cannot be used: ${reason}`,
    'Check free space and permissions there, or name another file: tilewright tune … --database FILE',
    { cause: error },
  );
}

/** A line's parsed value; undefined if it is not JSON or is longer than any record. */
export function parseLine(line: string): unknown {
  if (Buffer.byteLength(line) > MAX_LINE_BYTES) return undefined;
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** Non-empty lines of an open file. The last one may be incomplete. Throws where it is not a file. */
export function readLines(file: number): { readonly lines: readonly string[]; readonly isCutOff: boolean } {
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
