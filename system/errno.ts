/** Errors of the operating system in words. */
import { UserError } from '../errors.js';

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
