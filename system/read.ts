/** Reads untrusted files: every size is checked before anything is allocated. */
import { closeSync, openSync, readSync, realpathSync, statSync, type Stats } from 'node:fs';
import { join, sep } from 'node:path';
import { UserError } from '../errors.js';
import { isRecord, parsePythonJson, quote } from './json.js';
import { codeOf, reasonOf } from './process.js';

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

// Names of files inside an untrusted folder: none may lead out of it.

/** Plain names, below each other: no `..`, nothing hidden, nothing absolute. */
const NAME = /^(?!\.)[\w.-]{1,200}(\/(?!\.)[\w.-]{1,200}){0,3}$/;

/**
 * Path of `name` in `folder`. Throws UserError where the name, or a symbolic link, leads out of the folder. A file that
 * is missing is left to whoever opens it.
 */
export function pathInside(folder: string, name: string, hint?: string): string {
  if (!NAME.test(name)) throw new UserError(`${folder}: ${quote(name)} is no name of a file in it`, hint);
  const path = join(folder, name);
  try {
    if (!realpathSync(path).startsWith(`${realpathSync(folder)}${sep}`))
      throw new UserError(`${path}: a symbolic link leads out of the folder`, hint);
  } catch (error) {
    if (error instanceof UserError) throw error;
    if (codeOf(error) !== 'ENOENT')
      throw new UserError(`${path}: cannot be read: ${reasonOf(error)}`, hint, { cause: error });
  }
  return path;
}

// Names that match patterns with `*`, `?`, `[…]` and `**`, as fsspec and Python's fnmatch have them.

/** A step of a pattern: a character, `?` or `[…]`, or a way on over any number of characters. */
type GlobStep = { readonly one: (character: string) => boolean } | 'star' | 'globstar' | 'folders';

const MAX_PATTERN = 500;

function stepsOf(pattern: string): GlobStep[] {
  const steps: GlobStep[] = [];
  for (let i = 0; i < pattern.length;) {
    const set = /^\[(!?)([^\]/]+)\]/.exec(pattern.slice(i));
    if (pattern.startsWith('**/', i)) {
      steps.push('folders');
      i += 3;
    } else if (pattern.startsWith('**', i)) {
      steps.push('globstar');
      i += 2;
    } else if (set !== null) {
      const expression = new RegExp(`^[${set[1] === '' ? '' : '^'}${set[2]!.replace(/[\\^[]/g, '\\$&')}]$`, 's');
      steps.push({ one: (character) => expression.test(character) });
      i += set[0].length;
    } else {
      const mark = pattern.charAt(i++);
      steps.push(mark === '*' ? 'star' : { one: (c) => (mark === '?' ? c !== '/' : c === mark) });
    }
  }
  return steps;
}

/** Takes time in proportion to the steps times the length of the name, whatever the pattern is. */
function isMatch(steps: readonly GlobStep[], name: string): boolean {
  let ends = new Set([0]);
  for (const step of steps) {
    const next = new Set<number>();
    for (const from of ends) {
      if (typeof step === 'object') {
        if (from < name.length && step.one(name.charAt(from))) next.add(from + 1);
        continue;
      }
      for (let at = from; at <= name.length && !next.has(at); at++) {
        if (step !== 'folders' || at === from || name.charAt(at - 1) === '/') next.add(at);
        if (step === 'star' && name.charAt(at) === '/') break;
      }
    }
    ends = next;
    if (ends.size === 0) return false;
  }
  return ends.has(name.length);
}

/**
 * Those of the files that match one of the patterns: `*` and `?` stay within a name, `**` does not. Hidden files match
 * only patterns that name them. Throws RangeError for a pattern that is too long.
 */
export function matching(patterns: readonly string[], files: readonly string[]): string[] {
  const found = new Set<string>();
  for (const pattern of patterns) {
    const plain = pattern.replace(/^\.\//, '');
    if (plain.length > MAX_PATTERN) throw new RangeError(`a pattern of ${plain.length} characters`);
    const steps = stepsOf(plain);
    const start = /^[^*?[]*/.exec(plain)?.[0] ?? '';
    for (const file of files)
      if (file.startsWith(start) && isMatch(steps, file) && (!isHidden(file) || isHidden(plain))) found.add(file);
  }
  return files.filter((file) => found.has(file));
}

/** Below a folder that starts with a dot or two underscores, or named so itself. */
export const isHidden = (file: string): boolean => /(?:^|\/)(?:\.|__)/.test(file);

/** Write permission of the group and of everybody. */
const OTHERS_WRITE = 0o022;

/** Who can change this file or folder besides the user and root; undefined where nobody can. */
export function intruder({ uid, mode }: Pick<Stats, 'uid' | 'mode'>): string | undefined {
  const user = process.getuid?.();
  if (user === undefined) return undefined;
  if (uid !== user && uid !== 0) return `it belongs to user ${uid}, not to you (${user})`;
  return (mode & OTHERS_WRITE) === 0 ? undefined : 'others may write to it';
}
