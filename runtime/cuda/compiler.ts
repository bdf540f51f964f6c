/** Compiles generated CUDA kernels to cubins, several at once, and keeps each in the cache. */
import { MissingCompiler, UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import { readSettings, type Settings } from '../../settings.js';
import { kernelCompileError } from './compileLog.js';
import { cacheLimitBytes, pruneCaches } from '../kernelCache.js';
import { compileMissing, type MissingUnit } from './compileQueue.js';
import { CubinCache, isCubin, sha256, type CachedCubin } from './cubinCache.js';
import { versionText } from './cudaVersion.js';
import { findNvrtc, NVRTC_INSTALL, type FoundNvrtc } from './findNvrtc.js';
import { compileWithNvcc, findNvcc, type FoundNvcc } from './nvcc.js';
import { openLane, type Lane } from './nvrtcLanes.js';
import { parsePtxasLog, type KernelResources } from './ptxasLog.js';

export type { KernelResources } from './ptxasLog.js';

/** A kernel in a translation unit of its own, so that each is cached by itself. */
export interface CudaUnit {
  /** Its entry function, `extern "C"`. */
  readonly symbol: string;
  /** May be printed when it is read: only a kernel that is in no cache needs it. */
  readonly source: string;
  /** SHA-256 of the source, hexadecimal, where that is known. */
  readonly digest?: string;
}

export interface CompileCubinsOptions {
  readonly arch: CudaArch;
  /** cuDriverGetVersion's number (13000 for CUDA 13.0). Without it, compilers are not checked against the driver. */
  readonly driverVersion?: number;
  readonly settings?: Settings;
  /** Called after each kernel, from the cache or compiled. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number; readonly symbol: string }) => void;
  /** If true, kernels that do not compile are listed in `failures`. Otherwise the first one is thrown. */
  readonly keepsGoing?: boolean;
  /** When aborted, compilers end at once; kernels not compiled by then are neither in `cubins` nor in `failures`. */
  readonly signal?: AbortSignal;
}

export interface CompiledCubins {
  /** By symbol. */
  readonly cubins: ReadonlyMap<string, Uint8Array>;
  /** By symbol, if the compiler reports them. */
  readonly resources: ReadonlyMap<string, KernelResources>;
  /** By symbol; empty without keepsGoing. */
  readonly failures: ReadonlyMap<string, UserError>;
  /** True if nothing had to be compiled here: everything was in the cache, or another process put it there. */
  readonly isCached: boolean;
  readonly seconds: number;
  /** For messages: `NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)`. */
  readonly compiler: string;
  /** The same without its path: `NVRTC 13.0`. */
  readonly compilerVersion: string;
  /** Everything about the compiler that affects code: for keys of tuning records. */
  readonly compilerBuild: string;
}

/** The compiler that was chosen. */
export type CudaCompiler = ({ readonly kind: 'nvrtc' } & FoundNvrtc) | ({ readonly kind: 'nvcc' } & FoundNvcc);

/** Bump when the meaning of an entry or the options of a compiler change. */
const CACHE_FORMAT = 2;

const nvrtcOptions = (arch: CudaArch): readonly string[] => [
  `--gpu-architecture=${arch}`,
  '--device-as-default-execution-space',
  '--std=c++17',
  '--ptxas-options=-v',
];

const kindAndVersion = ({ kind, version }: CudaCompiler): string =>
  `${kind === 'nvrtc' ? 'NVRTC' : 'nvcc'} ${versionText(version)}`;

export const compilerName = (compiler: CudaCompiler): string => `${kindAndVersion(compiler)} (${compiler.path})`;

async function choose(arch: CudaArch, driverVersion: number | undefined, settings: Settings): Promise<CudaCompiler> {
  const prefersNvcc = settings.nvcc !== undefined && settings.nvrtc === undefined;
  const nvrtc = prefersNvcc ? [] : await findNvrtc(arch, driverVersion, settings);
  if (!('length' in nvrtc)) return { kind: 'nvrtc', ...nvrtc };
  const nvcc = await findNvcc(arch, driverVersion, settings);
  if (nvcc !== undefined && typeof nvcc !== 'string') return { kind: 'nvcc', ...nvcc };
  const problems = [...nvrtc, ...(nvcc === undefined ? [] : [nvcc])];
  throw new MissingCompiler(
    problems.length === 0
      ? 'There is no CUDA compiler: neither NVRTC (libnvrtc.so) nor nvcc was found.'
      : `No CUDA compiler can be used for ${arch}: ${problems.join('; ')}.`,
    NVRTC_INSTALL,
  );
}

const known = new Map<string, Promise<CudaCompiler>>();

/**
 * NVRTC where one of a fitting version is found, otherwise nvcc; TILEWRIGHT_NVCC alone asks for nvcc. Remembered for
 * the process. Throws UserError naming what to install.
 */
export function findCudaCompiler(
  arch: CudaArch,
  driverVersion: number | undefined,
  settings: Settings = readSettings(),
): Promise<CudaCompiler> {
  const { nvrtc, nvcc, path, libraryPath, cudaToolkits, pythonPrefixes } = settings;
  const key = JSON.stringify([arch, driverVersion, nvrtc, nvcc, path, libraryPath, cudaToolkits, pythonPrefixes]);
  let found = known.get(key);
  if (found === undefined) {
    found = choose(arch, driverVersion, settings);
    known.set(key, found);
    // A failure is not remembered: the user may install a compiler meanwhile.
    found.catch(() => known.delete(key));
  }
  return found;
}

const fileName = (symbol: string): string => `${symbol}.cu`;

function checkUnits(units: readonly CudaUnit[]): void {
  const seen = new Set<string>();
  for (const { symbol } of units) {
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,199}$/.test(symbol) || seen.has(symbol))
      throw new Error(`Bad or repeated kernel symbol ${JSON.stringify(symbol)}.`);
    seen.add(symbol);
  }
}

function nvccLane(path: string, arch: CudaArch): Lane {
  const stop = new AbortController();
  return {
    compile: ({ name, source }) => compileWithNvcc(path, name, source, arch, stop.signal),
    close: () => {
      stop.abort();
    },
  };
}

/** Opens lanes one by one. If no process can be started, they share this one. */
const laneOpener = (compiler: CudaCompiler, arch: CudaArch) => (): Lane =>
  compiler.kind === 'nvrtc' ? openLane(compiler.path) : nvccLane(compiler.path, arch);

async function compileUnit(
  lane: Lane,
  { symbol, source }: CudaUnit,
  compiler: CudaCompiler,
  arch: CudaArch,
): Promise<CachedCubin> {
  const name = fileName(symbol);
  const compilation = await lane.compile({ name, source, options: nvrtcOptions(arch) });
  if (!compilation.isCompiled) throw kernelCompileError(compilerName(compiler), name, source, compilation.log);
  if (!isCubin(compilation.cubin))
    throw new Error(
      `${compilerName(compiler)} gives ${compilation.cubin.length} bytes for ${symbol} that are no cubin.`,
    );
  return { cubin: compilation.cubin, resources: parsePtxasLog(compilation.log, symbol) };
}

/**
 * A cubin for each kernel, from the cache or compiled now. The key of an entry covers the text, by its digest, the architecture, the
 * options and the compiler's kind, version and build; a damaged entry is compiled anew.
 * Throws UserError for a missing or unfit compiler, a text that does not compile (with its lines), or a cache that
 * cannot be used.
 */
export async function compileCubins(
  units: readonly CudaUnit[],
  options: CompileCubinsOptions,
): Promise<CompiledCubins> {
  checkUnits(units);
  const started = performance.now();
  const { arch, driverVersion, settings = readSettings(), onProgress, keepsGoing = false, signal } = options;
  cacheLimitBytes(settings);
  const compiler = await findCudaCompiler(arch, driverVersion, settings);
  const compilerBuild = `${compiler.kind} ${compiler.build}`;
  const cache = new CubinCache(settings);
  await cache.prepare();
  const key = (unit: CudaUnit): string =>
    sha256(
      JSON.stringify({
        format: CACHE_FORMAT,
        symbol: unit.symbol,
        source: unit.digest ?? sha256(unit.source),
        arch,
        options: nvrtcOptions(arch),
        compiler: compilerBuild,
      }),
    );

  const made = new Map<string, CachedCubin>();
  const failures = new Map<string, UserError>();
  let compiled = 0;
  const report = (symbol: string): void =>
    onProgress?.({ done: made.size + failures.size, total: units.length, symbol });
  const missing: MissingUnit[] = [];
  for (const unit of units) {
    const { symbol } = unit;
    const entry = await cache.read(key(unit));
    if (entry === undefined) missing.push({ symbol, source: unit.source, key: key(unit) });
    else {
      made.set(symbol, entry);
      report(symbol);
    }
  }
  if (missing.length > 0) {
    await cache.removeStale();
    await compileMissing(missing, {
      claims: cache.claims,
      keepsGoing,
      signal,
      read: (unit) => cache.read(unit.key),
      openLane: laneOpener(compiler, arch),
      compile: (lane, unit) => compileUnit(lane, unit, compiler, arch),
      onCompiled: async (unit, result) => {
        if (result instanceof UserError) failures.set(unit.symbol, result);
        else {
          await cache.write(unit.key, result);
          made.set(unit.symbol, result);
          compiled++;
        }
        report(unit.symbol);
      },
      onFound: (unit, entry) => {
        made.set(unit.symbol, entry);
        report(unit.symbol);
      },
    });
    await pruneCaches(settings);
  }
  return {
    cubins: new Map([...made].map(([symbol, { cubin }]) => [symbol, cubin])),
    resources: new Map(
      [...made].flatMap(([symbol, { resources }]) => (resources === undefined ? [] : [[symbol, resources]])),
    ),
    failures,
    isCached: compiled === 0 && failures.size === 0,
    seconds: (performance.now() - started) / 1000,
    compiler: compilerName(compiler),
    compilerVersion: kindAndVersion(compiler),
    compilerBuild,
  };
}
