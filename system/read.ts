/** Reads untrusted files: every size is checked before anything is allocated. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { UserError } from '../errors.js';
import { codeOf, reasonOf } from './errno.js';
import { isRecord, parsePythonJson, quote } from './json.js';

/** What is at a path, links followed; undefined if nothing is there, or it cannot be examined. Throws nothing. */
export function kindAt(path: string): 'file' | 'folder' | 'other' | undefined {
  try {
    const stat = statSync(path);
    return stat.isDirectory() ? 'folder' : stat.isFile() ? 'file' : 'other';
  } catch {
    return undefined;
  }
}

export const isFolder = (path: string): boolean => kindAt(path) === 'folder';

/** Size in bytes of a regular file; undefined if it does not exist. Throws UserError if it cannot be examined. */
export function fileSize(path: string, hint?: string): number | undefined {
  try {
    const stat = statSync(path);
    if (!stat.isFile()) {
      const what = stat.isDirectory() ? 'a folder' : stat.isFIFO() ? 'a pipe' : 'a device or socket';
      throw new UserError(`${path}: not a regular file but ${what}`, hint ?? 'put the file itself there');
    }
    return stat.size;
  } catch (error) {
    if (error instanceof UserError) throw error;
    if (codeOf(error) === 'ENOENT') return undefined;
    throw new UserError(`${path}: cannot be read: ${reasonOf(error)}`, hint, { cause: error });
  }
}

/** Runs `use` on an open file and closes it; a system error becomes a UserError that names the path. */
export function withFile<T>(path: string, use: (fd: number, sizeBytes: number) => T, hint?: string): T {
  const size = fileSize(path, hint);
  if (size === undefined) throw new UserError(`${path}: no such file`, hint);
  let fd: number | undefined;
  try {
    fd = openSync(path, 'r');
    return use(fd, size);
  } catch (error) {
    if (error instanceof UserError) throw error;
    if (codeOf(error) !== '')
      throw new UserError(`${path}: cannot be read: ${reasonOf(error)}`, hint, { cause: error });
    throw error;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

/** `length` bytes from byte `offset`, or fewer if the file ends earlier. The caller has bounded `length`. */
export const readRange = (fd: number, offset: number, length: number): Buffer =>
  readInto(fd, offset, Buffer.alloc(length));

/** Fills `bytes` from byte `offset` on; returns as much of them as the file has. */
export function readInto(fd: number, offset: number, bytes: Buffer): Buffer {
  const { length } = bytes;
  let filled = 0;
  while (filled < length) {
    const count = readSync(fd, bytes, filled, length - filled, offset + filled);
    if (count === 0) break;
    filled += count;
  }
  return bytes.subarray(0, filled);
}

/** The whole file, at most `maxBytes`. */
export function readBounded(path: string, maxBytes: number, hint?: string): Buffer {
  return withFile(
    path,
    (fd, size) => {
      if (size > maxBytes)
        throw new UserError(`${path}: ${size} bytes, more than the limit of ${maxBytes} for such a file`, hint);
      return readRange(fd, 0, size);
    },
    hint,
  );
}

/** Decodes strict UTF-8. A byte order mark is kept, so that it does not go unnoticed in a valid file. */
export function decodeUtf8(bytes: Uint8Array, where: string, hint?: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw new UserError(`${where}: not valid UTF-8`, hint, { cause: error });
  }
}

/** A JSON object, as Python may have written it, from a file of at most `maxBytes`; with its text. */
export function readJsonObject(
  path: string,
  maxBytes: number,
  hint?: string,
): { readonly value: Readonly<Record<string, unknown>>; readonly text: string } {
  const text = decodeUtf8(readBounded(path, maxBytes, hint), path, hint);
  const value = parsePythonJson(text, path, hint);
  if (!isRecord(value)) throw new UserError(`${path}: expected a JSON object, got ${quote(value)}`, hint);
  return { value, text };
}
