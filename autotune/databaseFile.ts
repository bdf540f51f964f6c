/** The file of the tuning database: where it is, and its lines as they are, whatever they say. */
import { fstatSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../errors.js';
import { requireCacheDir } from '../runtime/cacheFolder.js';
import { readSettings, type Settings } from '../settings.js';

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
