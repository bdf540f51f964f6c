/** Processes, the shell, and errors of the operating system in words. */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { UserError } from '../errors.js';

// Errors of the operating system in words.

/** `ENOENT`, `ENOSPC` …; empty if the error did not come from the system. */
export const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'permission denied',
  EDQUOT: 'the disk quota is used up',
  EEXIST: 'a file of that name already exists',
  EFBIG: 'the file would exceed the size limit of this user',
  EIO: 'the disk reported an error',
  EISDIR: 'it is a folder',
  ELOOP: 'its symbolic links form a loop',
  EMFILE: 'too many open files',
  ENAMETOOLONG: 'the name is too long',
  ENOENT: 'no such file',
  ENOSPC: 'the disk is full',
  ENOTDIR: 'part of the path is a file, not a folder',
  EPERM: 'permission denied',
  EROFS: 'the file system is read-only',
};

/** The reason that the operating system gave. */
export const reasonOf = (error: unknown): string =>
  REASONS[codeOf(error)] ?? (error instanceof Error ? error.message : String(error));

/** A system error during a write, as one line. */
export const diskProblem = (path: string, error: unknown, hint: string): UserError =>
  new UserError(`cannot write ${path}: ${reasonOf(error)}`, hint, { cause: error });

// Other processes, and the names of what they have not finished.

/** Whether a process of this host with this id exists. If it does, its unfinished files must be left alone. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}

const hostMark = (): string => createHash('sha256').update(hostname()).digest('hex').slice(0, 8);

/** Names this process in the names of files that it writes: hosts share folders, and their ids of processes repeat. */
export const processMark = (): string => `${process.pid}-${hostMark()}`;

/** What `processMark` makes. */
export const PROCESS_MARK = String.raw`\d{1,10}-[0-9a-f]{8}`;

/** Whether the process of a mark has ended. Of another host's that cannot be known: it counts as running. */
export function hasEnded(mark: string): boolean {
  const [pid, host] = mark.split('-');
  return host === hostMark() && !isRunning(Number(pid));
}

// Quotes commands that a message suggests for a POSIX shell.

/** Quotes one argument. */
export const quoteForShell = (text: string): string =>
  /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** Whether work was told to stop. A function, because the signal changes while its readers wait. */
export const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true;
