/**
 * Compiled kernels on disk, one file each, shared between processes. A file is a line of JSON (digest and resources)
 * and then the cubin; it appears whole by rename, and its digest is checked whenever it is read.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import type { Settings } from '../../settings.js';
import { defined } from '../../system/defined.js';
import { codeOf } from '../../system/process.js';
import { isRunning } from '../../system/process.js';
import { intruder } from '../../system/read.js';
import { markUsed, requireCacheDir, trustedFolder, unusableCache } from '../kernelCache.js';

export interface CachedCubin {
  readonly cubin: Uint8Array;
  /** Undefined if the compiler does not report them. */
  readonly resources: KernelResources | undefined;
}

/** Entries that are read at a time: more than the threads that read, so that none waits for JavaScript. */
const READERS = 16;
const MAX_HEADER_BYTES = 4096;
const MAX_ENTRY_BYTES = 64 * 2 ** 20 + MAX_HEADER_BYTES;
/** Half-written files of killed processes are removed at this age. */
const STALE_MS = 24 * 3600 * 1000;
const TEMPORARY = '.tmp-';

const count = z.number().int().nonnegative();
const HEADER = z.strictObject({
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  resources: z
    .strictObject({
      registers: count,
      sharedBytes: count,
      stackBytes: count,
      spillStoreBytes: count,
      spillLoadBytes: count,
    })
    .optional(),
});

export const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

const EM_CUDA = 190;

/** True for a 64-bit little-endian ELF file of NVIDIA's machine type: what the driver loads as a module. */
export function isCubin(bytes: Uint8Array): boolean {
  if (bytes.length < 64) return false;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return (
    view.getUint32(0, false) === 0x7f454c46 && bytes[4] === 2 && bytes[5] === 1 && view.getUint16(18, true) === EM_CUDA
  );
}

/** The parts of an entry; undefined if it is damaged. */
function parse(data: Uint8Array): CachedCubin | undefined {
  const end = data.subarray(0, MAX_HEADER_BYTES).indexOf(10);
  if (end < 0) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(data.subarray(0, end)));
  } catch {
    return undefined;
  }
  const header = HEADER.safeParse(value);
  // A copy, so that the code is aligned and does not keep the header alive.
  const cubin = data.slice(end + 1);
  if (!header.success || sha256(cubin) !== header.data.sha256 || !isCubin(cubin)) return undefined;
  return { cubin, resources: header.data.resources };
}

export class CubinCache {
  readonly #settings: Pick<Settings, 'cacheDir'>;
  readonly #folder: string;
  /** Which process compiles what is missing. */
  readonly claims: CompileClaims;

  constructor(settings: Pick<Settings, 'cacheDir'>) {
    this.#settings = settings;
    this.#folder = join(requireCacheDir(settings), 'cubins');
    this.claims = new CompileClaims(this.#folder);
  }

  #path(key: string): string {
    if (!/^[0-9a-f]{64}$/.test(key)) throw new Error(`${JSON.stringify(key)} is no cache key.`);
    return join(this.#folder, `${key}.twc`);
  }

  #failure(error: unknown): unknown {
    if (error instanceof UserError || codeOf(error) === '') return error;
    return unusableCache(this.#folder, error);
  }

  /** Makes the folder. Throws UserError if another user could put code there. */
  async prepare(): Promise<void> {
    await trustedFolder(this.#settings, 'cubins');
  }

  /** The entries of keys, in order, read side by side. */
  async readAll(keys: readonly string[]): Promise<readonly (CachedCubin | undefined)[]> {
    const entries: (CachedCubin | undefined)[] = keys.map(() => undefined);
    let next = 0;
    const read = async (): Promise<void> => {
      for (let i = next++; i < keys.length; i = next++) entries[i] = await this.read(keys[i]!);
    };
    await Promise.all(Array.from({ length: Math.min(READERS, keys.length) }, read));
    return entries;
  }

  /** The entry of a key; undefined if it is absent, damaged, not a file, or writable by others. */
  async read(key: string): Promise<CachedCubin | undefined> {
    try {
      const file = await open(this.#path(key), 'r');
      try {
        const status = await file.stat();
        if (!status.isFile() || intruder(status) !== undefined || status.size > MAX_ENTRY_BYTES) return undefined;
        const data = new Uint8Array(status.size);
        const { bytesRead } = await file.read(data, 0, data.length, 0);
        const entry = bytesRead === data.length ? parse(data) : undefined;
        if (entry !== undefined) await markUsed(this.#path(key), status.mtimeMs);
        return entry;
      } finally {
        await file.close();
      }
    } catch (error) {
      if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(codeOf(error))) return undefined;
      throw this.#failure(error);
    }
  }

  /** Publishes an entry. Of two processes that write the same one, the last wins; both are right. */
  async write(key: string, { cubin, resources }: CachedCubin): Promise<void> {
    const path = this.#path(key);
    const temporary = join(this.#folder, `${TEMPORARY}${randomUUID()}`);
    try {
      const file = await open(temporary, 'wx', 0o600);
      try {
        await file.writeFile(`${JSON.stringify({ sha256: sha256(cubin), ...defined({ resources }) })}\n`);
        await file.writeFile(cubin);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(temporary, path).catch(async (error: unknown) => {
        // Something other than a file is in the entry's place.
        if (codeOf(error) !== 'EISDIR') throw error;
        await rm(path, { recursive: true, force: true });
        await rename(temporary, path);
      });
      await markUsed(path);
    } catch (error) {
      throw this.#failure(error);
    } finally {
      await rm(temporary, { force: true }).catch(() => undefined);
    }
  }

  /** Removes files of killed processes. */
  async removeStale(): Promise<void> {
    for (const name of await readdir(this.#folder).catch(() => [])) {
      if (!name.startsWith(TEMPORARY) && !name.startsWith(CLAIM)) continue;
      const path = join(this.#folder, name);
      const age = await stat(path).then(
        (status) => Date.now() - status.mtimeMs,
        () => 0,
      );
      if (age > STALE_MS) await rm(path, { force: true }).catch(() => undefined);
    }
  }
}

// The assembler's report about a kernel: `--ptxas-options=-v` of nvcc and NVRTC alike.

/** What one kernel takes of a multiprocessor. Dynamic shared memory is not in it: the launch asks for that. */
export interface KernelResources {
  /** Per thread. */
  readonly registers: number;
  /** Statically declared bytes per block. */
  readonly sharedBytes: number;
  /** Bytes per thread: the stack frame holds arrays that are indexed at run time, and spilled registers. */
  readonly stackBytes: number;
  readonly spillStoreBytes: number;
  readonly spillLoadBytes: number;
}

const number = (pattern: RegExp, text: string): number => Number(pattern.exec(text)?.[1] ?? 0);

/** The resources of the entry function `symbol`; undefined where the log does not tell. */
export function parsePtxasLog(log: string, symbol: string): KernelResources | undefined {
  const lines = log.split('\n');
  const start = lines.findIndex((line) => /Compiling entry function '([^']*)'/.exec(line)?.[1] === symbol);
  if (start < 0) return undefined;
  let registers: number | undefined;
  let sharedBytes = 0,
    stackBytes = 0,
    spillStoreBytes = 0,
    spillLoadBytes = 0;
  for (let i = start + 1; i < lines.length; i++) {
    const line = lines[i] ?? '';
    if (line.includes('Compiling entry function')) break;
    if (/Function properties for (\S+)/.exec(line)?.[1] === symbol) {
      const properties = lines[i + 1] ?? '';
      stackBytes = number(/(\d+) bytes stack frame/, properties);
      spillStoreBytes = number(/(\d+) bytes spill stores/, properties);
      spillLoadBytes = number(/(\d+) bytes spill loads/, properties);
    }
    const used = /Used (\d+) registers/.exec(line);
    if (used !== null && registers === undefined) {
      registers = Number(used[1]);
      sharedBytes = number(/(\d+)(?:\+\d+)? bytes smem/, line);
    }
  }
  return registers === undefined ? undefined : { registers, sharedBytes, stackBytes, spillStoreBytes, spillLoadBytes };
}

// Decides which process compiles which kernel, so that processes that start together share the work instead of
// repeating it. A claim is a file beside the cache's entries that names its owner. Claims only save work: if two
// processes take the same one, both compile, and both results are right.

/** A claim of this age has expired: no kernel takes that long to compile, and the process id may have been reused. */
const STALE_CLAIM_MS = 5 * 60_000;
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
  if (Math.abs(Date.now() - status.mtimeMs) > STALE_CLAIM_MS) return true;
  const text = await readFile(path, 'utf8').catch(() => '');
  const [, host, pid] = /^(\S+) (\d{1,10})$/.exec(text) ?? [];
  // The owner may be between creating the file and writing its name.
  if (host === undefined || pid === undefined) return false;
  return host === hostname() && !isRunning(Number(pid));
}
