/**
 * Versions of libraries that were loaded before, kept in the cache: where all kernels are cached too, a start loads no
 * compiler. An entry counts only while its file is the same by size and by the times of its content and its place.
 */
import type { Stats } from 'node:fs';
import { lstat, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { Settings } from '../../settings.js';
import { intruder } from '../../system/read.js';
import { writeAtomically } from '../../system/write.js';
import { requireCacheDir } from '../cacheFolder.js';
import type { CudaVersion } from './cudaVersion.js';

const FILE = 'nvrtc.json';
const MAX_BYTES = 1 << 16;
const MOST = 32;

const number = z.number().finite().nonnegative();
const part = z.number().int().min(0).max(9999);
const ENTRY = z.strictObject({
  path: z.string().max(1024),
  bytes: number,
  modifiedMs: number,
  changedMs: number,
  major: part,
  minor: part,
});
type Entry = z.infer<typeof ENTRY>;
const ENTRIES = z.array(ENTRY).max(MOST);

const isOf = (entry: Entry, status: Stats): boolean =>
  entry.bytes === status.size && entry.modifiedMs === status.mtimeMs && entry.changedMs === status.ctimeMs;

/** What the file holds; nothing where it is missing, damaged, or somebody else's to change. */
async function readEntries(path: string): Promise<readonly Entry[]> {
  try {
    const status = await lstat(path);
    if (!status.isFile() || status.size > MAX_BYTES || intruder(status) !== undefined) return [];
    return ENTRIES.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return [];
  }
}

export class KnownVersions {
  private readonly path: string;
  private entries: readonly Entry[];

  private constructor(path: string, entries: readonly Entry[]) {
    this.path = path;
    this.entries = entries;
  }

  static async read(settings: Pick<Settings, 'cacheDir'>): Promise<KnownVersions> {
    const path = join(requireCacheDir(settings), FILE);
    return new KnownVersions(path, await readEntries(path));
  }

  /** The version of the library at an absolute path, or what `probe` says, which is kept. Throws as `probe` does. */
  async of(path: string, probe: () => Promise<CudaVersion>): Promise<CudaVersion> {
    const status = await stat(path).catch(() => undefined);
    const known = this.entries.find((entry) => entry.path === path);
    if (status !== undefined && known !== undefined && isOf(known, status))
      return { major: known.major, minor: known.minor };
    const version = await probe();
    if (status !== undefined) this.keep({ path, ...version }, status);
    return version;
  }

  private keep({ path, major, minor }: { readonly path: string } & CudaVersion, status: Stats): void {
    const entry = { path, bytes: status.size, modifiedMs: status.mtimeMs, changedMs: status.ctimeMs, major, minor };
    this.entries = [entry, ...this.entries.filter((each) => each.path !== path)].slice(0, MOST);
    try {
      writeAtomically(this.path, [`${JSON.stringify(this.entries)}\n`]);
    } catch {
      // A cache that cannot be written says so when a kernel is kept.
    }
  }
}
