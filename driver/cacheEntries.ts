/**
 * Entries of the cache that this program reads without checking what they mean: plans, and what is known of their
 * kernels. They are as trustworthy as the machine code beside them, which is run: only this user and root can write
 * there. An entry carries a digest, so that a damaged, truncated or renamed entry is ignored.
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, futimesSync, lstatSync, openSync, rmSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pruneCaches } from '../runtime/kernelCache.js';
import { readSettings, type Settings } from '../settings.js';
import { intruder, readRange } from '../system/read.js';
import { makeFolder, removeLeftovers, writeAtomically } from '../system/write.js';

type CacheSettings = Pick<Settings, 'cacheDir' | 'usesPlanCache'>;

/** What is kept: a file name's ending for each. */
const ENDINGS = { plan: '.twp', kernels: '.twk' } as const;
export type EntryKind = keyof typeof ENDINGS;

const MAX_BYTES = 64 << 20;
const KEY = /^[0-9a-f]{64}$/;
const DIGEST_BYTES = 32;

/** The folder of the entries; undefined if there is no cache, or others can write to it. */
function trustedFolder({ cacheDir, usesPlanCache }: CacheSettings, makes: boolean): string | undefined {
  if (cacheDir === undefined || !usesPlanCache) return undefined;
  const root = resolve(cacheDir);
  const folder = join(root, 'plans');
  if (makes) makeFolder(folder, 0o700);
  return [root, folder].every((path) => intruder(statSync(path)) === undefined) ? folder : undefined;
}

const nameOf = (kind: EntryKind, key: string): string => {
  if (!KEY.test(key)) throw new Error(`${JSON.stringify(key)} is no cache key.`);
  return `${key}${ENDINGS[kind]}`;
};

/** The name is part of it: a renamed entry is ignored. */
const digestOf = (name: string, content: Uint8Array): Buffer =>
  createHash('sha256').update(`${name}\n`).update(content).digest();

/** What `run` returns; undefined where the system forbids it. A cache that fails is no error. */
function attempt<T>(run: () => T): T | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}

/** The bytes of an entry; undefined where there is none that is whole and only this user and root can change. */
export function readCacheEntry(
  kind: EntryKind,
  key: string,
  settings: CacheSettings = readSettings(),
): Buffer | undefined {
  const name = nameOf(kind, key);
  return attempt(() => {
    const folder = trustedFolder(settings, false);
    if (folder === undefined) return undefined;
    // A link is no entry, and opening a pipe must not wait for its writer.
    const fd = openSync(join(folder, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const status = fstatSync(fd);
      if (!status.isFile() || intruder(status) !== undefined || status.size > MAX_BYTES) return undefined;
      const bytes = readRange(fd, 0, status.size);
      const content = bytes.subarray(DIGEST_BYTES);
      if (!digestOf(name, content).equals(bytes.subarray(0, DIGEST_BYTES))) return undefined;
      // Entries that were unused longest are removed first. Where that cannot be noted they keep their order.
      const now = new Date();
      attempt(() => futimesSync(fd, now, now));
      return content;
    } finally {
      closeSync(fd);
    }
  });
}

/** Keeps an entry, where there is a cache that can be written. Of two processes that write one, the last wins. */
export function keepCacheEntry(
  kind: EntryKind,
  key: string,
  content: Uint8Array,
  settings: Settings = readSettings(),
): void {
  if (content.length > MAX_BYTES - DIGEST_BYTES) return;
  const name = nameOf(kind, key);
  attempt(() => {
    const folder = trustedFolder(settings, true);
    if (folder === undefined) return;
    removeLeftovers(folder);
    const path = join(folder, name);
    // Anything that is not a regular file is replaced, never written to.
    if (lstatSync(path, { throwIfNoEntry: false })?.isFile() === false) rmSync(path, { recursive: true, force: true });
    writeAtomically(path, [digestOf(name, content), content], undefined, 0o600);
    pruneCaches(settings).catch(() => undefined);
  });
}
