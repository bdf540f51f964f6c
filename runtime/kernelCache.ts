/** Keeps the caches of kernels, tokenizers and plans within a size limit: the least recently used entries go first. */
import { randomUUID } from 'node:crypto';
import { lstat, mkdir, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { readSettings, type Settings } from '../settings.js';
import { codeOf, reasonOf } from '../system/process.js';
import { quoteForShell } from '../system/process.js';
import { intruder } from '../system/read.js';

const DEFAULT_LIMIT = '2GiB';
const UNITS: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** Entries used in the last few minutes stay, because another process may have found one and not loaded it yet. */
const RECENT_MS = 10 * 60_000;
/** A tuner compiles continuously, and scanning the caches takes longer than compiling a small kernel. */
const REST_MS = 60_000;

/** Bytes of a size such as `500MiB`; undefined if the text is not a size. */
export function sizeInBytes(text: string): number | undefined {
  const [, number = '', unit = ''] = /^(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]iB)$/.exec(text) ?? [];
  const factor = UNITS[unit];
  return factor === undefined ? undefined : Number(number) * factor;
}

/**
 * What the caches of Settings.cacheDir may hold together, in bytes. Throws UserError where TILEWRIGHT_CACHE_LIMIT is no
 * size.
 */
export function cacheLimitBytes({ cacheLimit }: Pick<Settings, 'cacheLimit'> = readSettings()): number {
  const limit = cacheLimit ?? DEFAULT_LIMIT;
  if (limit === 'none') return Infinity;
  const bytes = sizeInBytes(limit);
  if (bytes === undefined) {
    throw new UserError(
      `TILEWRIGHT_CACHE_LIMIT is ${JSON.stringify(limit.slice(0, 100))}, which is no size.`,
      `export TILEWRIGHT_CACHE_LIMIT=${DEFAULT_LIMIT} (KiB, MiB, GiB or TiB; none: without limit)`,
    );
  }
  return bytes;
}

interface CacheEntry {
  readonly folder: string;
  readonly name: string;
  readonly bytes: number;
  readonly usedMs: number;
}

/** Entries by folder of the cache: a folder for each C library, a file for each of the others. */
const ENTRIES: Readonly<Record<string, RegExp>> = {
  kernels: /^[0-9a-f]{64}$/,
  objects: /^[0-9a-f]{64}\.two$/,
  cubins: /^[0-9a-f]{64}\.twc$/,
  tokenizers: /^[0-9a-f]{64}\.json$/,
  plans: /^[0-9a-f]{64}\.tw[pk]$/,
  code: /^[0-9a-f]{24}\.code$/,
  compilers: /^[0-9a-f]{64}\.txt$/,
  overlays: /^[0-9a-f]{64}\.safetensors$/,
};

/** Names of entries that this process was given and may load at any time. */
const ours = new Set<string>();

/**
 * To be called whenever an entry is made or found. A cache that cannot be written keeps its order. `usedMs`: when it
 * was last marked, where that is known; one that was marked a moment ago is not marked again.
 */
export async function markUsed(path: string, usedMs = 0): Promise<void> {
  ours.add(basename(path));
  const now = new Date();
  if (Math.abs(now.getTime() - usedMs) < RECENT_MS / 2) return;
  await utimes(path, now, now).catch(() => undefined);
}

async function entryAt(folder: string, name: string): Promise<CacheEntry | undefined> {
  const path = join(folder, name);
  const status = await lstat(path).catch(() => undefined);
  if (status === undefined) return undefined; // Another process removed it.
  let bytes = status.size;
  if (status.isDirectory()) {
    const files = await readdir(path).catch(() => []);
    for (const file of files) bytes += (await lstat(join(path, file)).catch(() => undefined))?.size ?? 0;
  }
  return { folder, name, bytes, usedMs: status.mtimeMs };
}

async function entriesOf(cacheDir: string): Promise<CacheEntry[]> {
  const found: CacheEntry[] = [];
  for (const [kind, pattern] of Object.entries(ENTRIES)) {
    const folder = join(cacheDir, kind);
    for (const name of await readdir(folder).catch(() => [])) {
      const entry = pattern.test(name) ? await entryAt(folder, name) : undefined;
      if (entry !== undefined) found.push(entry);
    }
  }
  return found;
}

/**
 * Moves the entry away at once, then takes it apart: no process sees half of it, and a process that has it loaded keeps
 * it. False where it stays: another process used it meanwhile, or the cache is not writable.
 */
async function remove({ folder, name, usedMs }: CacheEntry): Promise<boolean> {
  const aside = join(folder, `.tmp-${randomUUID()}`);
  try {
    if ((await lstat(join(folder, name))).mtimeMs !== usedMs) return false;
    await rename(join(folder, name), aside);
  } catch (error) {
    return codeOf(error) === 'ENOENT'; // Another process was faster.
  }
  await rm(aside, { recursive: true, force: true }).catch(() => undefined);
  return true;
}

const lastLooked = new Map<string, number>();

/**
 * Removes entries of the caches until they are within the limit again, longest unused first; those that this process
 * uses or that were used a few minutes ago stay. To be called after a compilation; looks once a minute at most. Throws
 * only as cacheLimitBytes does.
 */
export async function pruneCaches(settings: Settings): Promise<void> {
  const cacheDir = requireCacheDir(settings);
  const limit = cacheLimitBytes(settings);
  const now = Date.now();
  if (limit === Infinity || now - (lastLooked.get(cacheDir) ?? 0) < REST_MS) return;
  lastLooked.set(cacheDir, now);
  const entries = await entriesOf(cacheDir);
  let bytes = entries.reduce((sum, entry) => sum + entry.bytes, 0);
  for (const entry of entries.sort((a, b) => a.usedMs - b.usedMs)) {
    if (bytes <= limit || now - entry.usedMs < RECENT_MS) return;
    if (!ours.has(entry.name) && (await remove(entry))) bytes -= entry.bytes;
  }
}

// Whom the kernel cache trusts. What lies there is machine code that runs with the rights of this user, and its
// digests lie beside it: writing there means running code here, so nobody else may write.

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
 * Makes a folder of the cache where it is not yet, for this user alone. Throws UserError if others could put code
 * there.
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
