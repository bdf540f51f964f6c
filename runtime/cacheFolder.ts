/**
 * Whom the kernel cache trusts. What lies there is machine code that runs with the rights of this user, and its digests
 * lie beside it: whoever can write there can run code here. So nobody else may.
 */
import { lstat, mkdir, stat } from 'node:fs/promises';
import type { Stats } from 'node:fs';
import { join, resolve } from 'node:path';
import { UserError } from '../errors.js';
import type { Settings } from '../settings.js';
import { codeOf } from '../system/errno.js';
import { quoteForShell } from '../system/shell.js';

/** Write permission of the group and of everybody. */
const OTHERS_WRITE = 0o022;

/** Who can change this file or folder besides the user and root; undefined where nobody can. */
export function intruder({ uid, mode }: Pick<Stats, 'uid' | 'mode'>): string | undefined {
  const user = process.getuid?.();
  if (user === undefined) return undefined;
  if (uid !== user && uid !== 0) return `it belongs to user ${uid}, not to you (${user})`;
  return (mode & OTHERS_WRITE) === 0 ? undefined : 'others may write to it';
}

/** The folder of the cache. Throws UserError where the environment names none. */
export function requireCacheDir({ cacheDir }: Pick<Settings, 'cacheDir'>): string {
  if (cacheDir !== undefined) return resolve(cacheDir);
  throw new UserError(
    'There is no place for the cache of compiled kernels: neither HOME nor the user database names a home folder.',
    'Name one: export TILEWRIGHT_CACHE=/path',
  );
}

/** The error of a cache that the system refuses. */
export function unusableCache(folder: string, error: unknown): UserError {
  const reason = codeOf(error) === 'EROFS' ? 'it is read-only' : error instanceof Error ? error.message : String(error);
  return new UserError(
    `The kernel cache ${folder} cannot be used: ${reason}`,
    'Free space or permissions there, or choose another folder: TILEWRIGHT_CACHE=/path',
    { cause: error },
  );
}

/**
 * Makes a folder of the cache where it is not yet, for this user alone. Throws UserError where somebody else could put
 * code there.
 */
export async function trustedFolder(
  settings: Pick<Settings, 'cacheDir'>,
  kind: 'kernels' | 'objects' | 'cubins',
): Promise<string> {
  const root = requireCacheDir(settings);
  const folder = join(root, kind);
  await mkdir(folder, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    throw unusableCache(folder, error);
  });
  for (const path of [root, folder]) {
    const problem = intruder(await stat(path));
    if (problem === undefined) continue;
    throw new UserError(
      `The kernel cache ${path} is not to be trusted: ${problem}, and what lies there is run.`,
      problem.startsWith('others')
        ? `Take that right away: chmod go-w ${quoteForShell(path)}; or choose another folder: export ` +
            'TILEWRIGHT_CACHE=/path'
        : 'Choose a folder of your own: export TILEWRIGHT_CACHE=/path',
    );
  }
  return folder;
}

/** Whether an entry, or a file of one, is there and only this user and root can change it. A link is no entry. */
export async function isTrusted(path: string): Promise<boolean> {
  try {
    const status = await lstat(path);
    return !status.isSymbolicLink() && intruder(status) === undefined;
  } catch (error) {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return false;
    throw error;
  }
}
