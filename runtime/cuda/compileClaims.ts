/**
 * Decides which process compiles which kernel, so that processes that start together share the work instead of
 * repeating it. A claim is a file beside the cache's entries that names its owner. Claims only save work: if two
 * processes take the same one, both compile, and both results are right.
 */
import { mkdir, open, readFile, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { codeOf, isRunning } from '../../system/process.js';

/** A claim of this age has expired: no kernel takes that long to compile, and the process id may have been reused. */
const STALE_MS = 5 * 60_000;
/** Longest claim that is read: a host's name and a process id. */
const MAX_BYTES = 300;

/** Prefix of claims' names. */
export const CLAIM = '.claim-';

const owner = (): string => `${hostname()} ${process.pid}`;

export class CompileClaims {
  readonly #folder: string;
  readonly #held = new Set<string>();

  /** `folder`: the folder of the cache's entries. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  #path = (key: string): string => join(this.#folder, `${CLAIM}${key}`);

  /**
   * True if the caller is now to compile `key`, and must release the claim. False if another process is compiling it.
   */
  async acquire(key: string): Promise<boolean> {
    const path = this.#path(key);
    for (let attempt = 0; attempt < 2; attempt++) {
      try {
        await mkdir(this.#folder, { recursive: true, mode: 0o700 });
        const file = await open(path, 'wx', 0o600);
        try {
          await file.writeFile(owner());
        } finally {
          await file.close();
        }
        this.#held.add(key);
        return true;
      } catch (error) {
        // A cache that cannot be written reports this when an entry is written. Until then every process compiles.
        if (codeOf(error) !== 'EEXIST') return true;
      }
      if (!(await isStale(path))) return false;
      await rm(path, { recursive: true, force: true }).catch(() => undefined);
    }
    return true;
  }

  async release(key: string): Promise<void> {
    if (this.#held.delete(key)) await rm(this.#path(key), { force: true }).catch(() => undefined);
  }
}

/** Whether the owner of a claim is gone. A process on another host counts as present until the claim expires. */
async function isStale(path: string): Promise<boolean> {
  const status = await stat(path).catch(() => undefined);
  if (status === undefined || !status.isFile() || status.size > MAX_BYTES) return true;
  if (Math.abs(Date.now() - status.mtimeMs) > STALE_MS) return true;
  const text = await readFile(path, 'utf8').catch(() => '');
  const [, host, pid] = /^(\S+) (\d{1,10})$/.exec(text) ?? [];
  // The owner may be between creating the file and writing its name.
  if (host === undefined || pid === undefined) return false;
  return host === hostname() && !isRunning(Number(pid));
}
