/** Finds installed copies of NVRTC, and the first of them whose version is usable. */
import type { Stats } from 'node:fs';
import { lstat, readdir, readFile, readlink, stat } from 'node:fs/promises';
import { basename, delimiter, dirname, isAbsolute, join, resolve } from 'node:path';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import type { Settings } from '../../settings.js';
import { intruder } from '../../system/read.js';
import { writeAtomically } from '../../system/write.js';
import { requireCacheDir } from '../kernelCache.js';
import { type CudaVersion, openNvrtc, versionProblem, versionText } from './nvrtc.js';

export interface FoundNvrtc {
  /** A full path, or a name that the system's loader resolves. */
  readonly path: string;
  readonly version: CudaVersion;
  /** Distinguishes builds of one version: part of cache keys. */
  readonly build: string;
}

/** What to type if there is no usable NVRTC. */
export const NVRTC_INSTALL =
  'Install one: pip install nvidia-cuda-nvrtc (any Python on PATH), or the CUDA toolkit ' +
  '(developer.nvidia.com/cuda-downloads). ' +
  'Or name one: TILEWRIGHT_NVRTC=/path/to/libnvrtc.so, TILEWRIGHT_NVCC=/path/to/nvcc';

/** Newest first; what ldconfig knows. */
const DEFAULT_NAMES = ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'] as const;
const LIBRARY = /^libnvrtc\.so((?:\.\d+)*)$/;
const MAX_ENTRIES = 2000;
const MAX_LINKS = 8;

const names = async (folder: string): Promise<string[]> =>
  (await readdir(folder).catch(() => [])).slice(0, MAX_ENTRIES);

const numbers = (name: string): number[] => (name.match(/\d+/g) ?? []).map(Number);

/** Newest version in a name first: cuda-13.0 before cuda-12.8, python3.12 before python3.9. */
function newestFirst(a: string, b: string): number {
  const [left, right] = [numbers(a), numbers(b)];
  for (let i = 0; i < Math.max(left.length, right.length); i++) {
    const difference = (right[i] ?? -1) - (left[i] ?? -1);
    if (difference !== 0) return difference;
  }
  return a < b ? -1 : a > b ? 1 : 0;
}

/** Folders below `folder` whose name matches. */
export const below = async (folder: string, pattern: RegExp): Promise<string[]> =>
  (await names(folder))
    .filter((name) => pattern.test(name))
    .sort(newestFirst)
    .map((name) => join(folder, name));

const absoluteFolders = (list: string): string[] => list.split(delimiter).filter((folder) => isAbsolute(folder));

/**
 * The prefixes of a Python: of its path and of every link on the way to the real one (a virtual environment is one).
 */
async function prefixes(python: string): Promise<string[]> {
  const found: string[] = [];
  for (let path = python, links = 0; links < MAX_LINKS; links++) {
    found.push(dirname(dirname(path)));
    const next = await readlink(path).catch(() => undefined);
    if (next === undefined) break;
    path = resolve(dirname(path), next);
  }
  return found;
}

/** Paths whose last part may be a pattern: `*` stands for a version. */
export async function expand(patterns: readonly string[]): Promise<string[]> {
  const expanded = await Promise.all(
    patterns.map(async (pattern) => {
      const name = basename(pattern);
      return name.endsWith('*') ? below(dirname(pattern), new RegExp(`^${name.slice(0, -1)}\\d[\\w.]*$`)) : [pattern];
    }),
  );
  return expanded.flat();
}

async function pythonPrefixes(settings: Settings): Promise<string[]> {
  const onPath: string[] = [];
  for (const folder of absoluteFolders(settings.path)) {
    const python = (await names(folder)).find((name) => name === 'python3' || name === 'python');
    if (python !== undefined) onPath.push(...(await prefixes(join(folder, python))));
  }
  return [...onPath, ...(await expand(settings.pythonPrefixes))];
}

/** `nvidia/<wheel>/lib` of a Python's package folders: a wheel for each library up to CUDA 12, cu13 for all since. */
async function wheelFolders(prefix: string, wheel: RegExp): Promise<string[]> {
  const pythons = await below(join(prefix, 'lib'), /^python3(\.\d+)?$/);
  const sites = pythons.flatMap((python) => [join(python, 'site-packages'), join(python, 'dist-packages')]);
  const wheels = await Promise.all(sites.map((site) => below(join(site, 'nvidia'), wheel)));
  return wheels.flat().map((wheel) => join(wheel, 'lib'));
}

const toolkitFolders = (toolkit: string): string[] => [
  join(toolkit, 'lib64'),
  join(toolkit, 'targets', 'x86_64-linux', 'lib'),
];

/**
 * Every folder that may hold a library of CUDA's, in order of preference; each once. `wheel`: names of its Python
 * wheels.
 */
export async function cudaLibraryFolders(settings: Settings, wheel: RegExp): Promise<readonly string[]> {
  const toolkits = await expand(settings.cudaToolkits);
  const wheels = await Promise.all((await pythonPrefixes(settings)).map((prefix) => wheelFolders(prefix, wheel)));
  return [
    ...new Set([...absoluteFolders(settings.libraryPath), ...toolkits.flatMap(toolkitFolders), ...wheels.flat()]),
  ];
}

/** Every folder that may hold NVRTC. */
export const nvrtcFolders = (settings: Settings): Promise<readonly string[]> =>
  cudaLibraryFolders(settings, /^(cu\d+|cuda_nvrtc)$/);

/** The library in a folder under its most specific name. */
const libraryIn = async (folder: string): Promise<string[]> => (await below(folder, LIBRARY)).slice(0, 1);

async function candidates(settings: Settings): Promise<string[]> {
  if (settings.nvrtc !== undefined) {
    const path = resolve(settings.nvrtc);
    const isFolder = await stat(path).then(
      (status) => status.isDirectory(),
      () => false,
    );
    if (!isFolder) return [path];
    const inside = await libraryIn(path);
    if (inside.length === 0)
      throw new UserError(
        `TILEWRIGHT_NVRTC: there is no libnvrtc.so in ${path}.`,
        'Name the library itself: TILEWRIGHT_NVRTC=/path/to/libnvrtc.so.13',
      );
    return inside;
  }
  const found = await Promise.all((await nvrtcFolders(settings)).map(libraryIn));
  return [...found.flat(), ...DEFAULT_NAMES];
}

/** Where the loader found a library that was asked for by name. */
async function loadedPath(name: string): Promise<string> {
  const maps = await readFile('/proc/self/maps', 'utf8').catch(() => '');
  const paths = maps
    .split('\n')
    .map((line) => line.slice(line.indexOf('/')))
    .filter((path) => path.startsWith('/'));
  return (
    paths.find(
      (path) => basename(path) === name || (LIBRARY.test(basename(path)) && basename(path).startsWith(name)),
    ) ?? name
  );
}

/** The version that a library gives when it is loaded. Throws an Error that says why it cannot be. */
const probe = async (path: string): Promise<CudaVersion> => openNvrtc(path).version;

/** Size and time of the file: two builds of one version differ in them. */
async function buildOf(path: string, version: CudaVersion): Promise<string> {
  const status = await stat(path).catch(() => undefined);
  return [versionText(version), ...(status === undefined ? [] : [status.size, Math.floor(status.mtimeMs)])].join(' ');
}

const reasonOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';

/**
 * The first NVRTC that loads and whose version suits; otherwise why each one that was found is of no use. One that was
 * loaded before is not loaded again.
 * Throws UserError where TILEWRIGHT_NVRTC names something unusable: what was asked for is not replaced in silence.
 */
export async function findNvrtc(
  arch: CudaArch,
  driverVersion: number | undefined,
  settings: Settings,
): Promise<FoundNvrtc | readonly string[]> {
  const problems: string[] = [];
  const known = await KnownVersions.read(settings);
  for (const candidate of await candidates(settings)) {
    try {
      const load = (): Promise<CudaVersion> => probe(candidate);
      // What a bare name stands for is the loader's to say.
      const version = isAbsolute(candidate) ? await known.of(candidate, load) : await load();
      const problem = versionProblem(version, arch, driverVersion);
      const path = isAbsolute(candidate) ? candidate : await loadedPath(candidate);
      if (problem === undefined) return { path, version, build: await buildOf(path, version) };
      problems.push(`NVRTC ${path}: ${problem}`);
    } catch (error) {
      // A default name that the loader cannot resolve is not reported as a problem.
      if (isAbsolute(candidate)) problems.push(`NVRTC ${candidate}: ${reasonOf(error)}`);
    }
  }
  if (settings.nvrtc !== undefined)
    throw new UserError(`TILEWRIGHT_NVRTC cannot be used: ${problems.join('; ')}.`, NVRTC_INSTALL);
  return [...new Set(problems)];
}

// Versions of libraries that were loaded before, kept in the cache: where all kernels are cached too, a start loads
// no compiler. An entry counts only while its file is the same by size and by the times of its content and its
// place.

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
type KnownVersion = z.infer<typeof ENTRY>;
const ENTRIES = z.array(ENTRY).max(MOST);

const isOf = (entry: KnownVersion, status: Stats): boolean =>
  entry.bytes === status.size && entry.modifiedMs === status.mtimeMs && entry.changedMs === status.ctimeMs;

/** The contents of the file; nothing if it is missing, damaged, or writable by others. */
async function readEntries(path: string): Promise<readonly KnownVersion[]> {
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
  private entries: readonly KnownVersion[];

  private constructor(path: string, entries: readonly KnownVersion[]) {
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
