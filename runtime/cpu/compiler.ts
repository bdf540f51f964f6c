/** Compiles generated C into shared objects, and keeps them in a cache that processes can share safely. */
import { createHash } from 'node:crypto';
import { chmod, mkdtemp, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import type { CpuIsa } from '../../ir/plan.js';
import { unitDigest } from '../../ir/unit.js';
import { readSettings, type Settings } from '../../settings.js';
import { codeOf } from '../../system/process.js';
import { loadAddon } from '../addon.js';
import { runProcess, type SourceText } from '../compilers.js';
import {
  cacheLimitBytes,
  isTrusted,
  markUsed,
  pruneCaches,
  requireCacheDir,
  trustedFolder,
  unusableCache,
} from '../kernelCache.js';
import { expectedCompiler, findCompiler, type SystemCompiler } from './systemCompiler.js';
import { compileUnits, ObjectCache, type UnitBuild, writeSynced } from './units.js';

export type { SourceText } from '../compilers.js';

/**
 * No -ffast-math and no contraction: sums and products round the same way in every kernel, NaN stays NaN. No errno and
 * no traps, so that math vectorizes.
 */
const FLAGS = [
  '-O3',
  '-fPIC',
  '-std=gnu11',
  '-fno-math-errno',
  '-fno-trapping-math',
  '-ffp-contract=off',
  '-fopenmp-simd',
] as const;

const AVX512 = [
  '-mavx512f',
  '-mavx512bw',
  '-mavx512dq',
  '-mavx512vl',
  '-mfma',
  '-mf16c',
  '-mprefer-vector-width=512',
] as const;
const ISA_FLAGS: Readonly<Record<CpuIsa, readonly string[]>> = {
  portable: [],
  avx2: ['-mavx2', '-mfma', '-mf16c'],
  avx512: AVX512,
  amx: [...AVX512, '-mamx-tile', '-mamx-bf16', '-mavx512bf16'],
};

/** Half-written entries of killed processes are removed at this age. */
const STALE_MS = 24 * 3600 * 1000;
const SHARED_OBJECT = 'kernels.so';
const DIGEST = 'kernels.sha256';

export interface CcOptions {
  readonly isa: CpuIsa;
  readonly extraFlags?: readonly string[];
  readonly settings?: Settings;
  /** When aborted, compilers end at once, and the signal's reason is thrown. */
  readonly signal?: AbortSignal;
  /** Nobody waits for it: compilers take the processor time that others leave. */
  readonly isBackground?: boolean;
  /** Called after each unit, from the cache or compiled; not called if the whole library is in the cache. */
  readonly onUnit?: (unit: SourceText) => void;
}

export interface CompiledLibrary {
  /** Full path of the shared object. The sources lie beside it. */
  readonly path: string;
  /** Whether it was found in the cache. */
  readonly cached: boolean;
  readonly seconds: number;
  /** First line of the compiler's `--version`. */
  readonly compiler: string;
}

const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Whether nobody else can change the entry, and its shared object matches the digest written with it. */
async function isWhole(entry: string): Promise<boolean> {
  if (!(await isTrusted(entry)) || !(await isTrusted(join(entry, SHARED_OBJECT)))) return false;
  try {
    const [library, digest] = await Promise.all([
      readFile(join(entry, SHARED_OBJECT)),
      readFile(join(entry, DIGEST), 'utf8'),
    ]);
    return sha256(library) === digest.trim();
  } catch (error) {
    if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return false;
    throw error;
  }
}

async function build(sources: readonly SourceText[], folder: string, parts: UnitBuild): Promise<void> {
  const { compiler, signal, isBackground } = parts;
  const objects = await compileUnits(sources, folder, parts);
  const argv = ['-shared', '-o', SHARED_OBJECT, ...objects, '-lm'];
  const link = await runProcess(compiler.path, argv, folder, signal, isBackground);
  signal?.throwIfAborted();
  if (link.status !== 0)
    throw new UserError(`${compiler.path} does not link the generated kernels: ${link.stderr.trim().slice(0, 2000)}`);
  await Promise.all(objects.map((object) => rm(join(folder, object))));
  // Linkers apply the umask.
  await chmod(join(folder, SHARED_OBJECT), 0o700);
  await syncFile(join(folder, SHARED_OBJECT));
  await writeSynced(join(folder, DIGEST), `${sha256(await readFile(join(folder, SHARED_OBJECT)))}\n`);
}

/**
 * Puts a finished folder where readers look for it. Of two processes that made the same entry, one wins; both are
 * right.
 */
async function publish(folder: string, entry: string): Promise<void> {
  for (let attempt = 0; attempt < 3; attempt++) {
    try {
      await rename(folder, entry);
      return;
    } catch (error) {
      if (codeOf(error) !== 'ENOTEMPTY' && codeOf(error) !== 'EEXIST' && codeOf(error) !== 'ENOTDIR') throw error;
    }
    if (await isWhole(entry)) return;
    // A corrupt entry is moved away first: processes that have loaded it keep it, and nobody sees half of the new one.
    const aside = `${folder}.corrupt${attempt}`;
    await rename(entry, aside).catch(() => undefined);
    await rm(aside, { recursive: true, force: true });
  }
  throw new Error(`The cache entry ${entry} cannot be replaced.`);
}

async function removeStale(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    if (!name.startsWith('.tmp-')) continue;
    const path = join(root, name);
    const age = await stat(path).then(
      (status) => Date.now() - status.mtimeMs,
      () => 0,
    );
    if (age > STALE_MS) await rm(path, { recursive: true, force: true });
  }
}

function checkNames(sources: readonly SourceText[]): void {
  if (sources.length === 0) throw new Error('compileShared needs at least one source.');
  const names = new Set<string>();
  for (const { name } of sources) {
    if (!/^[A-Za-z0-9_]{1,100}\.c$/.test(name) || names.has(name))
      throw new Error(`Bad or repeated source name ${JSON.stringify(name)}.`);
    names.add(name);
  }
}

const identityOf = (source: SourceText): readonly string[] => [
  source.name,
  source.digest ?? unitDigest(source.text, source.headers ?? []),
];

/** The entry of a key, made by `make` in a folder of its own where it is not there yet. */
async function entryOf(
  key: string,
  settings: Settings,
  signal: AbortSignal | undefined,
  make: (folder: string) => Promise<void>,
): Promise<Omit<CompiledLibrary, 'compiler'>> {
  const started = performance.now();
  const root = await trustedFolder(settings, 'kernels');
  const entry = join(root, key);
  const done = (cached: boolean): Omit<CompiledLibrary, 'compiler'> => ({
    path: join(entry, SHARED_OBJECT),
    cached,
    seconds: (performance.now() - started) / 1000,
  });
  try {
    if (await isWhole(entry)) {
      await markUsed(entry);
      return done(true);
    }
    await removeStale(root);
    const folder = await mkdtemp(join(root, '.tmp-'));
    try {
      await make(folder);
      await publish(folder, entry);
      await markUsed(entry);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
    await pruneCaches(settings);
    return done(false);
  } catch (error) {
    if (signal?.aborted === true || error instanceof UserError || codeOf(error) === '') throw error;
    throw unusableCache(root, error);
  }
}

/**
 * Puts a shared object that was compiled elsewhere into the cache, where nobody can change it between the check of its
 * bytes and its loading. The caller answers for what it does.
 */
export async function installShared(bytes: Uint8Array, settings: Settings = readSettings()): Promise<string> {
  cacheLimitBytes(settings);
  const key = sha256(JSON.stringify({ installed: sha256(bytes) }));
  const { path } = await entryOf(key, settings, undefined, async (folder) => {
    await writeSynced(join(folder, SHARED_OBJECT), bytes);
    await chmod(join(folder, SHARED_OBJECT), 0o700);
    await writeSynced(join(folder, DIGEST), `${sha256(bytes)}\n`);
  });
  return path;
}

const running = new Map<string, { readonly job: Promise<CompiledLibrary>; readonly signal: AbortSignal | undefined }>();

/**
 * Compiles C sources, in parallel, into one shared object, or finds it in the cache, for which no process is started.
 * The key covers the texts, their headers, the flags, the compiler's version, the kernel ABI and the instruction set.
 * Throws UserError for a missing compiler, a text that does not compile (with its lines), a cache that cannot be
 * written or an invalid limit of its size.
 */
export async function compileShared(sources: readonly SourceText[], options: CcOptions): Promise<CompiledLibrary> {
  checkNames(sources);
  const settings = options.settings ?? readSettings();
  cacheLimitBytes(settings);
  const cacheDir = requireCacheDir(settings);
  const flags = [...FLAGS, ...ISA_FLAGS[options.isa], ...(options.extraFlags ?? [])];
  const texts = sources.map(identityOf);
  const { signal, onUnit, isBackground = false } = options;
  const compileBy = async (compiler: SystemCompiler): Promise<CompiledLibrary> => {
    const identity = { flags, compiler: compiler.version, abi: loadAddon().abi, isa: options.isa };
    const key = sha256(JSON.stringify({ sources: texts, ...identity }));
    const place = JSON.stringify([cacheDir, key]);
    const other = running.get(place);
    if (other !== undefined) {
      // Whoever began it may have given it up.
      const library = await other.job.catch((error: unknown) => {
        if (other.signal?.aborted !== true || signal?.aborted === true) throw error;
        return compileBy(compiler);
      });
      signal?.throwIfAborted();
      return library;
    }
    const job = entryOf(key, settings, signal, async (folder) => {
      const found = await findCompiler(settings);
      if (found.version !== compiler.version) throw new OtherCompiler(found);
      const objects = await ObjectCache.open(settings);
      await build(sources, folder, { compiler: found, flags, identity, signal, isBackground, onUnit, objects });
    })
      .then((library) => ({ ...library, compiler: compiler.version }))
      .finally(() => running.delete(place));
    running.set(place, { job, signal });
    return job;
  };
  try {
    return await compileBy(await expectedCompiler(settings));
  } catch (error) {
    if (!(error instanceof OtherCompiler)) throw error;
    return compileBy(error.compiler);
  }
}

/** The compiler is not the one that was expected. */
class OtherCompiler extends Error {
  readonly compiler: SystemCompiler;

  constructor(compiler: SystemCompiler) {
    super(`The C compiler is ${compiler.version} now.`);
    this.compiler = compiler;
  }
}
