/**
 * Traces of requests as CSV, also packed with gzip: a header with TIMESTAMP, ContextTokens and GeneratedTokens, as
 * Azure's public traces have it, and a line for each request.
 */
import { gunzipSync } from 'node:zlib';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { readBounded } from '../../system/read.js';

export interface TraceRow {
  /** From the first request of the file. */
  readonly atMs: number;
  readonly prompt: number;
  readonly generated: number;
}

export interface TraceLimits {
  readonly fileBytes: number;
  readonly textBytes: number;
  readonly rows: number;
  readonly tokens: number;
}

const TRACE_LIMITS: TraceLimits = { fileBytes: 256 << 20, textBytes: 1 << 30, rows: 10_000_000, tokens: 1 << 20 };
const HINT = 'expected a CSV file, or one packed with gzip, with the columns TIMESTAMP, ContextTokens, GeneratedTokens';
const COLUMNS = ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'] as const;

/** Requests in order of time. Those that ask for no token, or have no prompt, are left out, as the servers did. */
export function readTrace(path: string, limits: Partial<TraceLimits> = {}): readonly TraceRow[] {
  const { fileBytes, textBytes, rows: maxRows, tokens } = { ...TRACE_LIMITS, ...limits };
  const bytes = unpack(path, readBounded(path, fileBytes, HINT), textBytes);
  const rows: TraceRow[] = [];
  let columns: readonly number[] | undefined;
  let line = 0;
  for (const text of linesOf(bytes)) {
    line++;
    if (text === '') continue;
    const fields = text.split(',', 16);
    if (columns === undefined) {
      columns = COLUMNS.map((column) => fields.indexOf(column));
      const missing = COLUMNS.find((_, i) => columns![i]! < 0);
      if (missing !== undefined) throw new UserError(`${path}: line 1 names no column ${missing}`, HINT);
      continue;
    }
    const [time, prompt, generated] = columns.map((column) => fields[column] ?? '');
    const at = timeOf(time!);
    const where = `${path}: line ${line}`;
    if (at === undefined) throw new UserError(`${where}: ${quote(time)} is no time`, HINT);
    const row = { atMs: at, prompt: countOf(prompt!, tokens, where), generated: countOf(generated!, tokens, where) };
    if (rows.length >= maxRows) throw new UserError(`${path}: more than ${maxRows} requests`, 'use a part of the file');
    if (row.prompt > 0 && row.generated > 0) rows.push(row);
  }
  if (rows.length === 0) throw new UserError(`${path}: no requests`, HINT);
  rows.sort((a, b) => a.atMs - b.atMs);
  const first = rows[0]!.atMs;
  return rows.map((row) => ({ ...row, atMs: row.atMs - first }));
}

function unpack(path: string, bytes: Buffer, maxBytes: number): Buffer {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  try {
    return gunzipSync(bytes, { maxOutputLength: maxBytes });
  } catch (error) {
    const isLarge = error instanceof RangeError;
    const what = isLarge ? `more than ${maxBytes} bytes when unpacked` : 'not a whole gzip file';
    throw new UserError(`${path}: ${what}`, HINT, { cause: error });
  }
}

const MAX_LINE = 4096;

function* linesOf(bytes: Buffer): Iterable<string> {
  for (let from = 0; from < bytes.length;) {
    const found = bytes.indexOf(10, from);
    const end = found < 0 ? bytes.length : found;
    yield bytes.toString('latin1', from, Math.min(end, from + MAX_LINE)).trim();
    from = end + 1;
  }
}

/** Years, months and so on, with a fraction of a second of any length, in UTC; or seconds. */
const TIME = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d{1,12})?(?:Z|\+00:00)?$/;

function timeOf(text: string): number | undefined {
  if (/^\d{1,12}(\.\d{1,12})?$/.test(text)) return Number(text) * 1000;
  const found = TIME.exec(text);
  if (found === null) return undefined;
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map(Number);
  const whole = Date.UTC(year!, month! - 1, day!, hour!, minute!, second!);
  return whole + Number(`0${found[7] ?? ''}`) * 1000;
}

function countOf(text: string, most: number, where: string): number {
  const value = Number(text);
  if (/^\d{1,12}$/.test(text) && value <= most) return value;
  throw new UserError(`${where}: ${quote(text)} is no number of tokens from 0 to ${most}`, HINT);
}
