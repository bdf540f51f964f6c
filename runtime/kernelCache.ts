/** Keeps the caches of kernels, tokenizers and plans within a size limit: the least recently used entries go first. */
import { randomUUID } from 'node:crypto';
import { lstat, readdir, rename, rm, utimes } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { UserError } from '../errors.js';
import { readSettings, type Settings } from '../settings.js';
import { codeOf } from '../system/process.js';
import { requireCacheDir } from './cacheFolder.js';

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

interface Entry {
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

async function entryAt(folder: string, name: string): Promise<Entry | undefined> {
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

async function entriesOf(cacheDir: string): Promise<Entry[]> {
  const found: Entry[] = [];
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
 * Moves the entry away at once, then takes it apart: no process sees half of it, and whoever has it loaded keeps it.
 * False where it stays: somebody used it meanwhile, or the cache is not ours to write.
 */
async function remove({ folder, name, usedMs }: Entry): Promise<boolean> {
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
