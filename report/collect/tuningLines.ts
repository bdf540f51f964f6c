/**
 * The lines of tuning records, whatever target they are of. Files are untrusted: lines are bounded, fields checked by
 * the tuner's own schemas, and what is damaged or of another program is counted and left out.
 */
import { basename } from 'node:path';
import { z } from 'zod';
import {
  type BaselineRecord,
  baselineRecordSchema,
  type FinalLine,
  finalSchema,
  type JobLine,
  jobSchema,
  type PeaksLine,
  peaksSchema,
  type TrialLine,
  trialSchema,
} from '../../autotune/records.js';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { isDeeperThan, isRecord, MAX_JSON_DEPTH, parseJson } from '../../system/json.js';
import { decodeUtf8, readBounded, readRange, withFile } from '../../system/read.js';
import type { Bench } from '../document/tuning.js';
import { shortNames } from './shortNames.js';

const MAX_FILE_BYTES = 1 << 27;
/** As long as the tuner's own. */
const MAX_LINE_BYTES = 1 << 14;
/** Trials on a page. */
const MAX_TRIALS = 200_000;
export const TUNING_HINT = 'give a file of tilewright tune --database FILE, or of bench:gpu --json';

/** What measurements depend on: short texts and numbers, as each target names them. */
const machineSchema = z
  .record(z.string().max(40), z.union([z.string().max(200), z.number()]))
  .refine((facts) => Object.keys(facts).length <= 20);
export type MachineFacts = z.infer<typeof machineSchema>;

type Of<L> = Omit<L, 'target'> & { readonly machine: MachineFacts };

export type TuningLine =
  | ({ readonly kind: 'trial' } & Of<TrialLine>)
  | ({ readonly kind: 'final' } & Of<FinalLine>)
  | ({ readonly kind: 'job' } & Of<JobLine>)
  | ({ readonly kind: 'peaks' } & Of<PeaksLine>)
  | { readonly kind: 'rival'; readonly record: BaselineRecord };

/** Fields of machines, by targets. */
const FIELDS = ['target', 'cuda'] as const;

/** Undefined for a line of another format. */
function tuningLine(text: string): TuningLine | undefined {
  if (text.length > MAX_LINE_BYTES || isDeeperThan(text, MAX_JSON_DEPTH)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isRecord(value)) return undefined;
  if ('rival' in value) {
    const { data } = baselineRecordSchema.safeParse(value);
    return data && { kind: 'rival', record: data };
  }
  const field = FIELDS.find((name) => name in value);
  if (field === undefined) return undefined;
  const { [field]: target, ...rest } = value;
  const { data: machine } = machineSchema.safeParse(target);
  if (machine === undefined) return undefined;
  const line = { ...rest, target };
  if ('final' in value) return withKind('final', finalSchema.safeParse(line).data, machine);
  if ('job' in value) return withKind('job', jobSchema.safeParse(line).data, machine);
  if ('peaks' in value) return withKind('peaks', peaksSchema.safeParse(line).data, machine);
  return withKind('trial', trialSchema.safeParse(line).data, machine);
}

const withKind = <K extends string, L extends object>(
  kind: K,
  line: L | undefined,
  machine: MachineFacts,
): ({ readonly kind: K; readonly machine: MachineFacts } & L) | undefined => line && { ...line, kind, machine };

export interface TuningFile {
  readonly lines: readonly TuningLine[];
  /** Lines of other formats. */
  readonly skipped: number;
}

/** Throws UserError for a file that cannot be read, is too large, or has no record. */
export function readTuningFile(path: string): TuningFile {
  const texts = decodeUtf8(readBounded(path, MAX_FILE_BYTES, TUNING_HINT), path)
    .split('\n')
    .filter((text) => text.trim() !== '');
  if (texts.length > MAX_TRIALS)
    throw new UserError(`${path}: ${texts.length} records are more than a page can show (${MAX_TRIALS})`, TUNING_HINT);
  const lines = texts.flatMap((text) => tuningLine(text) ?? []);
  if (lines.length === 0) throw new UserError(`${path}: has no record of the tuner`, TUNING_HINT);
  return { lines, skipped: texts.length - lines.length };
}

/** Comparisons with the vendor's library: the files that `bench:gpu --json` writes. */

const MAX_BENCH_BYTES = 1 << 26;
const MAX_ROWS = 10_000;
const BEGINNING = 4096;

const text = z.string().transform((all) => all.slice(0, 200));
const seconds = z.number().positive().max(3600);

const schema = z.object({
  device: text,
  library: text,
  model: text,
  kernels: z
    .array(
      z.object({
        kernel: text,
        tokens: z.int().min(0).max(1e9),
        schedule: text,
        seconds: seconds.optional(),
        rival: z.object({ algorithm: text, seconds }).optional(),
        isBest: z.boolean(),
      }),
    )
    .max(MAX_ROWS),
});

/** Whether a file is one object over several lines; records are an object on each line. */
export const isBench = (path: string): boolean =>
  withFile(
    path,
    (fd, size) => /^\s*\{\s*\n\s*"/.test(readRange(fd, 0, Math.min(size, BEGINNING)).toString('latin1')),
    TUNING_HINT,
  );

/** Throws UserError for any other file. */
export function readBench(path: string): Bench {
  const value = parseJson(decodeUtf8(readBounded(path, MAX_BENCH_BYTES, TUNING_HINT), path), path, TUNING_HINT);
  const { data } = schema.safeParse(value);
  if (!isRecord(value) || data === undefined)
    throw new UserError(`${path}: is neither tuning records nor a file of bench:gpu --json`, TUNING_HINT);
  const { device, library, model, kernels } = data;
  return {
    file: basename(path),
    device,
    library,
    model: shortNames([model])[0]!,
    rows: kernels.flatMap(({ isBest, seconds: own, rival, kernel, tokens, schedule }) =>
      isBest && own !== undefined ? [{ kernel, tokens, schedule, seconds: own, ...defined({ rival }) }] : [],
    ),
  };
}
