/** Writing results: folders that are known to work before a run, files that appear whole or not at all. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../errors.js';

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

const REASONS: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'permission is denied',
  EPERM: 'permission is denied',
  ENOTDIR: 'part of the path is a file, not a folder',
  EEXIST: 'a file of that name is in the way',
  EISDIR: 'a folder of that name is in the way',
  ENAMETOOLONG: 'the name is too long',
  EFBIG: 'the file would exceed the size limit of this user',
  EIO: 'the disk reported an error',
};

/** A system error as one clear line. */
export function diskProblem(path: string, error: unknown, hint: string): UserError {
  const reason = REASONS[codeOf(error)] ?? (error instanceof Error ? error.message : String(error));
  return new UserError(`cannot write ${path}: ${reason}`, hint, { cause: error });
}

/** A model's name as a folder name, by the public harness's rule; never '.', '..' or empty. */
export function sanitiseModelName(name: string): string {
  const cleaned = name.replace(/["<>:/|\\?*[\]]+/g, '__').replace(/[\0-\x1f]/g, '_');
  return /^\.*$/.test(cleaned) ? `__${cleaned}` : cleaned;
}

/** Where the files of a model go. */
export const modelFolder = (out: string, modelName: string): string => join(out, sanitiseModelName(modelName));

/**
 * Makes a folder and those above it. Node's own recursive mkdir never returns where a parent is there but cannot hold
 * folders (anything below /proc); this one throws the system's error.
 */
export function makeFolder(path: string, mode = 0o777): void {
  const missing: string[] = [];
  for (let at = resolve(path); !existsSync(at); at = dirname(at)) missing.push(at);
  if (missing.length === 0 && !statSync(path).isDirectory()) mkdirSync(path);
  for (const folder of missing.reverse()) {
    try {
      mkdirSync(folder, { mode });
    } catch (error) {
      // Another process may have made it meanwhile.
      if (codeOf(error) !== 'EEXIST' || !statSync(folder).isDirectory()) throw error;
    }
  }
}

/** What prepareOutput and writeAtomically call their temporary files: the number is that of the writing process. */
const TEMPORARY = /^\.(?:probe-(\d{1,10})|(?:samples|results)_.*\.(\d{1,10})\.tmp)$/;

/** Whether a process of this number exists: what it has half-written is its own. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}

/** Removes temporary files of processes that were killed. */
function removeLeftovers(folder: string): void {
  for (const name of readdirSync(folder)) {
    const match = TEMPORARY.exec(name);
    const pid = match?.[1] ?? match?.[2];
    if (pid !== undefined && !isRunning(Number(pid))) rmSync(join(folder, name), { force: true });
  }
}

/** Makes the folder and proves that a file can be written there. Call it before the run. Throws UserError. */
export function prepareOutput(folder: string): void {
  const probe = join(folder, `.probe-${process.pid}`);
  try {
    makeFolder(folder);
    removeLeftovers(folder);
    const fd = openSync(probe, 'w');
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

/** All of the text: one write may take less than it was given, where the disk is nearly full. */
export function writeAll(fd: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at, bytes.length - at);
}

/**
 * Writes the parts one after another to a temporary file beside `path`, forces it to disk and moves it into place.
 * On failure nothing is left behind. Throws UserError for system errors.
 */
export function writeAtomically(path: string, parts: Iterable<string>): void {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    const fd = openSync(temporary, 'w');
    try {
      let held = '';
      for (const part of parts) {
        held += part;
        if (held.length < FLUSH_CHARACTERS) continue;
        writeAll(fd, held);
        held = '';
      }
      writeAll(fd, held);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    if (codeOf(error) === '') throw error;
    throw diskProblem(
      path,
      error,
      'Free some space or fix the folder, then run the same command with --resume: finished questions are in the journal',
    );
  }
  syncFolder(dirname(path));
}

/** The move itself survives a power cut once the folder is on disk. Not every file system can do it. */
function syncFolder(folder: string): void {
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
