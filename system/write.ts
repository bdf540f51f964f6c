/** Writes files: folders are tested before work begins, and files appear whole or not at all. */
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { UserError } from '../errors.js';
import { codeOf, diskProblem, hasEnded, PROCESS_MARK, processMark } from './process.js';

/**
 * Makes a folder and its parents. Node's own recursive mkdir never returns if a parent exists but cannot hold folders
 * (anything below /proc); this one throws the system's error.
 */
export function makeFolder(path: string, mode = 0o777): void {
  const missing: string[] = [];
  for (let at = resolve(path); !existsSync(at); at = dirname(at)) missing.push(at);
  if (missing.length === 0 && !statSync(path).isDirectory()) mkdirSync(path);
  for (const folder of missing.reverse()) {
    try {
      mkdirSync(folder, { mode });
    } catch (error) {
      // Another process may have made it in the meantime.
      if (codeOf(error) !== 'EEXIST' || !statSync(folder).isDirectory()) throw error;
    }
  }
}

/** Of a file's name, so that a name that is as long as names may be has a temporary one too. */
const MAX_OF_NAME = 40;
/** Names of temporary files are hidden, contain the mark of the process that writes them, and cannot be guessed. */
const temporaryName = (name: string): string =>
  `.${name.slice(0, MAX_OF_NAME)}.${processMark()}.${randomUUID().slice(0, 8)}.tmp`;
const TEMPORARY = new RegExp(`^\\..*\\.(${PROCESS_MARK})\\.[0-9a-f]{8}\\.tmp$`);

/** Removes temporary files of processes that no longer exist. */
export function removeLeftovers(folder: string): void {
  for (const name of readdirSync(folder)) {
    const mark = TEMPORARY.exec(name)?.[1];
    if (mark !== undefined && hasEnded(mark)) rmSync(join(folder, name), { force: true });
  }
}

/** Makes the folder and proves, before any work is done, that a file can be written there. Throws UserError. */
export function prepareOutput(folder: string): void {
  const probe = join(folder, temporaryName('probe'));
  try {
    makeFolder(folder);
    removeLeftovers(folder);
    const fd = openSync(probe, 'wx');
    try {
      writeSync(fd, 'probe\n');
      fsyncSync(fd);
    } finally {
      closeSync(fd);
      rmSync(probe, { force: true });
    }
  } catch (error) {
    const hint =
      codeOf(error) === 'ENOSPC'
        ? 'Free some space, or give another folder with --out'
        : 'Give a folder that can be written with --out DIR';
    throw diskProblem(folder, error, hint);
  }
}

const FLUSH_CHARACTERS = 1 << 18;

/** Writes all of it: a single write may be partial when the disk is nearly full. */
export function writeAll(fd: number, content: string | Uint8Array): void {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at);
}

/**
 * Where a file written to `path` lies: what a link points to, so that the link stays; undefined for a device, a pipe or
 * a folder, which no file may replace. Throws UserError for a link to nothing.
 */
function fileAt(path: string): string | undefined {
  try {
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return path;
  } catch {
    // Below a file, or in a folder that may not be read: whoever makes its folder says so.
    return path;
  }
  try {
    // A pipe behind /dev/stdout has no path.
    return statSync(path).isFile() ? realpathSync(path) : undefined;
  } catch (error) {
    throw diskProblem(path, error, 'Remove the link, or give another path');
  }
}

/** Proves, before any work is done, that a file can be written to `path`; a device or a pipe is not tried. */
export function prepareFile(path: string): void {
  const file = fileAt(path);
  if (file !== undefined) prepareOutput(dirname(resolve(file)));
}

/** Writes the parts one after another. */
function writeParts(fd: number, parts: Iterable<string | Uint8Array>): void {
  let held = '';
  for (const part of parts) {
    if (typeof part !== 'string') {
      writeAll(fd, held);
      held = '';
      writeAll(fd, part);
      continue;
    }
    held += part;
    if (held.length < FLUSH_CHARACTERS) continue;
    writeAll(fd, held);
    held = '';
  }
  writeAll(fd, held);
}

/**
 * Opens what is at `path` already and is no file. To open a pipe that nobody reads would wait for a reader, and no
 * signal could end that.
 */
function openDevice(path: string): number {
  if (!statSync(path).isFIFO()) return openSync(path, 'w');
  let first: number;
  try {
    first = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (codeOf(error) !== 'ENXIO') throw error;
    throw new UserError(
      `${path}: is a pipe that nobody reads`,
      'start what reads it before this writes, or name a file',
    );
  }
  // A reader would see the end if it had no writer in between.
  try {
    return openSync(path, 'w');
  } finally {
    closeSync(first);
  }
}

/** Writes to what is at `path` already and is no file: /dev/stdout, a pipe. */
function writeInto(path: string, parts: Iterable<string | Uint8Array>, hint: string): void {
  try {
    const fd = openDevice(path);
    try {
      writeParts(fd, parts);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (codeOf(error) === '') throw error;
    throw diskProblem(path, error, hint);
  }
}

/**
 * Writes the parts one after another to a temporary file beside `path`, syncs it to disk and renames it into place. On
 * failure nothing is left behind. What is at `path` and is no regular file, such as a device, is never replaced: it is
 * written to. `mode`: who may do what with a new file, before the umask. Throws UserError for system errors.
 */
export function writeAtomically(
  path: string,
  parts: Iterable<string | Uint8Array>,
  hint = 'Free some space, or give another path',
  mode = 0o666,
): void {
  const file = fileAt(path);
  if (file === undefined) return writeInto(path, parts, hint);
  const temporary = join(dirname(file), temporaryName(basename(file)));
  try {
    const fd = openSync(temporary, 'wx', mode);
    try {
      writeParts(fd, parts);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    if (codeOf(error) === '') throw error;
    throw diskProblem(path, error, hint);
  }
  syncFolder(dirname(file));
}

/** A temporary file beside others of a run, for what is written long before it is complete. */
export class Scratch {
  readonly #path: string;
  readonly #hint: string;
  readonly #fd: number;

  /** Throws UserError for system errors. */
  constructor(path: string, hint: string) {
    this.#path = join(dirname(path), temporaryName(basename(path)));
    this.#hint = hint;
    this.#fd = this.#guarded(() => openSync(this.#path, 'wx+'));
  }

  #guarded<T>(action: () => T): T {
    try {
      return action();
    } catch (error) {
      if (codeOf(error) === '') throw error;
      throw diskProblem(this.#path, error, this.#hint);
    }
  }

  append(lines: Iterable<string>): void {
    this.#guarded(() => writeParts(this.#fd, lines));
  }

  /** All that was appended, in parts. */
  *parts(): Generator<string> {
    const decoder = new StringDecoder('utf8');
    const bytes = Buffer.alloc(FLUSH_CHARACTERS);
    for (let at = 0; ;) {
      const count = this.#guarded(() => readSync(this.#fd, bytes, 0, bytes.length, at));
      if (count === 0) break;
      at += count;
      yield decoder.write(bytes.subarray(0, count));
    }
    yield decoder.end();
  }

  /** Removes the file. */
  close(): void {
    closeSync(this.#fd);
    rmSync(this.#path, { force: true });
  }
}

/**
 * Writes `text` to `path` where nothing is there yet: of several processes that try at once, one gets true. Whoever
 * gets false finds a whole file. Throws UserError for system errors.
 */
export function writeIfAbsent(path: string, text: string): boolean {
  const temporary = join(dirname(path), temporaryName(basename(path)));
  try {
    writeFileSync(temporary, text, { flag: 'wx', flush: true });
    linkSync(temporary, path);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw diskProblem(path, error, 'Give a folder that can be written');
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** Syncing a folder makes renames and new names in it survive a power cut. Not every file system supports this. */
export function syncFolder(folder: string): void {
  let fd: number | undefined;
  try {
    fd = openSync(folder, 'r');
    fsyncSync(fd);
  } catch (error) {
    if (codeOf(error) === '') throw error;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}
