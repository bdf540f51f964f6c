/**
 * Whom the kernel cache trusts. What lies there is machine code that runs with the rights of this user, and its digests
 * lie beside it: writing there means running code here, so nobody else may write.
 */
import { lstat, mkdir, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { UserError } from '../errors.js';
import type { Settings } from '../settings.js';
import { codeOf, quoteForShell, reasonOf } from '../system/process.js';
import { intruder } from '../system/read.js';

/** The folder of the cache. Throws UserError where the environment names none. */
export function requireCacheDir({ cacheDir }: Pick<Settings, 'cacheDir'>): string {
  if (cacheDir !== undefined) return resolve(cacheDir);
  throw new UserError(
    'There is no place for the cache of compiled kernels: neither HOME nor the user database names a home folder.',
    'Name one: export TILEWRIGHT_CACHE=/path',
  );
}

/** What helps against a refusal of the system, besides another folder. */
function remedyOf(code: string): string {
  switch (code) {
    case 'ENOSPC':
    case 'EDQUOT':
      return 'Free space there';
    case 'EACCES':
    case 'EPERM':
      return 'Take the right to write there';
    default:
      return '';
  }
}

/** The error of a cache that the system refuses, in one line. */
export function unusableCache(folder: string, error: unknown): UserError {
  const code = codeOf(error);
  const reason = code === 'ENOENT' ? 'a part of its path is missing and cannot be made' : reasonOf(error);
  const remedy = remedyOf(code);
  return new UserError(
    `Compiled kernels are kept in the cache folder ${folder}, which cannot be used: ${reason.split('\n')[0]!}`,
    `${remedy === '' ? 'Choose' : `${remedy}, or choose`} a folder on a disk that can be written: export ` +
      'TILEWRIGHT_CACHE=/path',
    { cause: error },
  );
}

/**
 * Makes a folder and those above it, for this user alone. Node's own recursive mkdir never returns where a folder that
 * exists says that it does not, as /proc does.
 */
async function makeFolders(folder: string): Promise<void> {
  const make = (): Promise<void> => mkdir(folder, { mode: 0o700 });
  try {
    await make().catch(async (error: unknown) => {
      if (codeOf(error) !== 'ENOENT' || dirname(folder) === folder) throw error;
      await makeFolders(dirname(folder));
      await make();
    });
  } catch (error) {
    // It is there already, or another process made it meanwhile.
    if (codeOf(error) !== 'EEXIST' || !(await stat(folder)).isDirectory()) throw error;
  }
}

/**
 * Makes a folder of the cache where it is not yet, for this user alone. Throws UserError where somebody else could put
 * code there.
 */
export async function trustedFolder(
  settings: Pick<Settings, 'cacheDir'>,
  kind: 'kernels' | 'objects' | 'cubins' | 'compilers',
): Promise<string> {
  const root = requireCacheDir(settings);
  const folder = join(root, kind);
  await makeFolders(folder).catch((error: unknown) => {
    throw unusableCache(folder, error);
  });
  for (const path of [root, folder]) {
    const status = await stat(path).catch((error: unknown) => {
      throw unusableCache(folder, error);
    });
    const problem = intruder(status);
    if (problem === undefined) continue;
    throw new UserError(
      `The kernel cache ${path} is not to be trusted: ${problem}, and what lies there is run.`,
      problem.startsWith('others')
        ? `Take that right away: chmod go-w ${quoteForShell(path)}; or choose another folder: ` +
            'export TILEWRIGHT_CACHE=/path'
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
