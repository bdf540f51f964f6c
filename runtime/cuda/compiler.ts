/** Compiles generated CUDA kernels to cubins, several at once, and keeps each in the cache. */
import { MissingCompiler, UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import { type Header, unitDigest } from '../../ir/unit.js';
import { readSettings, type Settings } from '../../settings.js';
import { type Diagnostic, excerpt, MAX_SHOWN_ERRORS } from '../compilers.js';
import { cacheLimitBytes, pruneCaches } from '../kernelCache.js';
import { CompileQueue, type Cubins, ExpectedCubins, type MissingUnit } from './compileQueue.js';
import { type CachedCubin, CubinCache, isCubin, type KernelResources, parsePtxasLog, sha256 } from './cubinCache.js';
import { findNvrtc, type FoundNvrtc, NVRTC_INSTALL } from './findNvrtc.js';
import { compileWithNvcc, findNvcc, type FoundNvcc } from './nvcc.js';
import { type CompilerLane, openLane, versionText } from './nvrtc.js';

export type { KernelResources } from './cubinCache.js';

/** A kernel in a translation unit of its own, so that each is cached by itself. */
export interface CudaUnit {
  /** Its entry function, `extern "C"`. */
  readonly symbol: string;
  /** May be printed when it is read: only a kernel that is in no cache needs it. */
  readonly source: string;
  /** All headers that the source includes, itself or through another; read where the source is. Absent: none. */
  readonly headers?: readonly Header[];
  /** unitDigest of both, where that is known. */
  readonly digest?: string;
}

export interface CompileCubinsOptions {
  readonly arch: CudaArch;
  /** cuDriverGetVersion's number (13000 for CUDA 13.0). Without it, compilers are not checked against the driver. */
  readonly driverVersion?: number;
  readonly settings?: Settings;
  /**
   * The rank of a kernel that must be compiled: lower ranks come first, and those above 0 wait for lower(). By default
   * all have one rank.
   */
  readonly rankOf?: (symbol: string) => number;
  /** Called after each kernel, from the cache or compiled. */
  readonly onProgress?: (progress: { readonly done: number; readonly total: number; readonly symbol: string }) => void;
  /** If true, kernels that do not compile are listed in `failures`. Otherwise the first one is thrown. */
  readonly keepsGoing?: boolean;
  /** When aborted, compilers end at once; kernels not compiled by then are neither in `cubins` nor in `failures`. */
  readonly signal?: AbortSignal;
}

export interface CubinResult {
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
const CACHE_FORMAT = 3;

const nvrtcOptions = (arch: CudaArch): readonly string[] => [
  `--gpu-architecture=${arch}`,
  '--device-as-default-execution-space',
  '--std=c++20',
  '--ptxas-options=-v',
];

/** A compiler without its path: `NVRTC 13.0`. */
export const compilerVersion = ({ kind, version }: CudaCompiler): string =>
  `${kind === 'nvrtc' ? 'NVRTC' : 'nvcc'} ${versionText(version)}`;

export const compilerName = (compiler: CudaCompiler): string => `${compilerVersion(compiler)} (${compiler.path})`;

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

/** Everything about a compiler that affects code. */
const buildOf = ({ kind, build }: CudaCompiler): string => `${kind} ${build}`;

/** Key of a unit's entry in the cache. */
const keyOf = (unit: CudaUnit, arch: CudaArch, compiler: string): string =>
  sha256(
    JSON.stringify({
      format: CACHE_FORMAT,
      symbol: unit.symbol,
      source: unit.digest ?? unitDigest(unit.source, unit.headers ?? []),
      arch,
      options: nvrtcOptions(arch),
      compiler,
    }),
  );

const fileName = (symbol: string): string => `${symbol}.cu`;

function checkUnits(units: readonly CudaUnit[]): void {
  const seen = new Set<string>();
  for (const { symbol } of units) {
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,199}$/.test(symbol) || seen.has(symbol))
      throw new Error(`Bad or repeated kernel symbol ${JSON.stringify(symbol)}.`);
    seen.add(symbol);
  }
}

function nvccLane(path: string, arch: CudaArch): CompilerLane {
  const stop = new AbortController();
  return {
    compile: (unit) => compileWithNvcc(path, unit, arch, stop.signal),
    close: () => {
      stop.abort();
    },
  };
}

/** Opens lanes one by one. If no process can be started, they share this one. */
const laneOpener = (compiler: CudaCompiler, arch: CudaArch) => (): CompilerLane =>
  compiler.kind === 'nvrtc' ? openLane(compiler.path) : nvccLane(compiler.path, arch);

async function compileUnit(
  lane: CompilerLane,
  { symbol, source, headers = [] }: CudaUnit,
  compiler: CudaCompiler,
  arch: CudaArch,
): Promise<CachedCubin> {
  const name = fileName(symbol);
  const compilation = await lane.compile({ name, source, headers, options: nvrtcOptions(arch) });
  if (!compilation.isCompiled)
    throw kernelCompileError(compilerName(compiler), { name, text: source }, headers, compilation.log);
  if (!isCubin(compilation.cubin))
    throw new Error(
      `${compilerName(compiler)} gives ${compilation.cubin.length} bytes for ${symbol} that are no cubin.`,
    );
  return { cubin: compilation.cubin, resources: parsePtxasLog(compilation.log, symbol) };
}

/** Cubins of units that are in the cache, or that are being compiled into it. */
export class CubinSession implements Cubins {
  readonly compiler: CudaCompiler;
  /** Settles when every unit is there or is known not to compile, with the first error or stopped. */
  readonly done: Promise<void>;
  readonly made = new Map<string, CachedCubin>();
  readonly failures = new Map<string, UserError>();
  /** How many were compiled here. */
  compiled = 0;
  private readonly expected: ExpectedCubins;
  private readonly queue: CompileQueue;
  private readonly cache: CubinCache;
  private readonly settings: Settings;
  private isStopped = false;

  private constructor(
    units: readonly CudaUnit[],
    found: readonly (CachedCubin | undefined)[],
    keys: readonly string[],
    { arch, keepsGoing = false, onProgress, rankOf = () => 0 }: CompileCubinsOptions,
    { compiler, cache, settings }: Pick<CubinSession, 'compiler'> & { cache: CubinCache; settings: Settings },
  ) {
    this.compiler = compiler;
    this.cache = cache;
    this.settings = settings;
    this.expected = new ExpectedCubins(units.map(({ symbol }) => symbol));
    const report = (symbol: string): void =>
      onProgress?.({ done: this.made.size + this.failures.size, total: units.length, symbol });
    const take = (symbol: string, entry: CachedCubin): void => {
      this.made.set(symbol, entry);
      this.expected.resolve(symbol, entry.cubin);
      report(symbol);
    };
    const missing: MissingUnit[] = [];
    units.forEach((unit, i) => {
      const entry = found[i];
      const { symbol } = unit;
      if (entry !== undefined) take(symbol, entry);
      else
        missing.push({
          symbol,
          get source() {
            return unit.source;
          },
          get headers() {
            return unit.headers ?? [];
          },
          key: keys[i]!,
          rank: rankOf(symbol),
        });
    });
    this.queue = new CompileQueue(missing, {
      claims: cache.claims,
      keepsGoing,
      read: (unit) => cache.read(unit.key),
      openLane: laneOpener(compiler, arch),
      compile: (lane, unit) => compileUnit(lane, unit, compiler, arch),
      onCompiled: async (unit, result) => {
        if (result instanceof UserError) {
          this.failures.set(unit.symbol, result);
          this.expected.reject(unit.symbol, result);
          report(unit.symbol);
        } else {
          await cache.write(unit.key, result);
          this.compiled++;
          take(unit.symbol, result);
        }
      },
      onFound: (unit, entry) => take(unit.symbol, entry),
    });
    this.done = missing.length === 0 ? Promise.resolve() : this.run();
    // get() reports it to the caller that needs the kernel.
    this.done.catch(() => undefined);
  }

  /**
   * Looks for all units in the cache; compiling those that are missing has begun when this resolves. The key of an
   * entry covers the digest of the text, the architecture, the options and the compiler's kind, version and build; a
   * damaged entry is compiled anew. Throws UserError for a missing or unfit compiler or a cache that cannot be used.
   */
  static async open(units: readonly CudaUnit[], options: CompileCubinsOptions): Promise<CubinSession> {
    checkUnits(units);
    const { arch, driverVersion, settings = readSettings() } = options;
    cacheLimitBytes(settings);
    const cache = new CubinCache(settings);
    await cache.prepare();
    const compiler = await findCudaCompiler(arch, driverVersion, settings);
    const keys = units.map((unit) => keyOf(unit, arch, buildOf(compiler)));
    const found = await cache.readAll(keys);
    return new CubinSession(units, found, keys, options, { compiler, cache, settings });
  }

  /** For messages. */
  get compilerName(): string {
    return compilerName(this.compiler);
  }

  known(symbol: string): Uint8Array | undefined {
    return this.expected.at(symbol);
  }

  get(symbol: string): Promise<Uint8Array> {
    return this.expected.get(symbol);
  }

  prefer(symbols: Iterable<string>): void {
    this.queue.prefer(new Set(symbols));
  }

  lower(): void {
    this.queue.lower();
  }

  async stop(): Promise<void> {
    this.isStopped = true;
    this.queue.stop();
    this.expected.end(new Error('Compiling kernels was stopped.'));
    await this.done.catch(() => undefined);
  }

  private async run(): Promise<void> {
    try {
      await this.cache.removeStale();
      await this.queue.run();
      if (!this.isStopped) await pruneCaches(this.settings);
    } catch (error) {
      this.expected.end(error);
      throw error;
    }
  }
}

/**
 * A cubin for each kernel, from the cache or compiled now. Throws UserError as CubinSession.open does, and for a text
 * that does not compile, with its lines.
 */
export async function compileCubins(units: readonly CudaUnit[], options: CompileCubinsOptions): Promise<CubinResult> {
  const started = performance.now();
  const { signal } = options;
  const session = await CubinSession.open(units, options);
  const stop = (): void => void session.stop();
  if (signal?.aborted === true) stop();
  signal?.addEventListener('abort', stop, { once: true });
  await session.done.finally(() => signal?.removeEventListener('abort', stop));
  const { made, failures, compiler, compiled } = session;
  return {
    cubins: new Map([...made].map(([symbol, { cubin }]) => [symbol, cubin])),
    resources: new Map(
      [...made].flatMap(([symbol, { resources }]) => (resources === undefined ? [] : [[symbol, resources]])),
    ),
    failures,
    isCached: compiled === 0 && failures.size === 0,
    seconds: (performance.now() - started) / 1000,
    compiler: compilerName(compiler),
    compilerVersion: compilerVersion(compiler),
    compilerBuild: buildOf(compiler),
  };
}

// Turns a CUDA compiler's error about a generated kernel into one error that shows the lines in question.

const MAX_LOG = 2000;

/** `name.cu(12): error: words`, as NVRTC and nvcc write it, of one of these files. */
function diagnosticsOf(files: readonly Header[], log: string): (Diagnostic & { readonly file: Header })[] {
  const named = new Map(files.map((file) => [file.name, file]));
  return log.split('\n').flatMap((text) => {
    // nvcc finds headers by way of a folder.
    const match = /^(?:\.\/)?(\S+)\((\d+)\): (?:catastrophic )?(error[^:]*: .*)$/.exec(text.trim());
    const file = named.get(match?.[1] ?? '');
    return file === undefined ? [] : [{ file, line: Number(match?.[2]), message: match?.[3] ?? '' }];
  });
}

/** The assembler refers to lines of PTX, which is not kept, so only its message is shown. */
const assemblerErrors = (log: string): string[] =>
  log.split('\n').filter((line) => /^ptxas .*(error|fatal)\b/i.test(line.trim()));

/** The error, with the kernel, the compiler's message and the lines of the unit and of its headers. */
export function kernelCompileError(compiler: string, unit: Header, headers: readonly Header[], log: string): UserError {
  const diagnostics = diagnosticsOf([unit, ...headers], log);
  const assembler = assemblerErrors(log);
  const shown = [
    ...diagnostics
      .slice(0, MAX_SHOWN_ERRORS)
      .map(({ file, line, message }) => `${file.name}:${line}: ${message}\n${excerpt(file.text, line)}`),
    ...assembler.slice(0, MAX_SHOWN_ERRORS),
  ];
  const hidden = Math.max(0, diagnostics.length - MAX_SHOWN_ERRORS) + Math.max(0, assembler.length - MAX_SHOWN_ERRORS);
  const details =
    shown.length > 0 ? shown.join('\n') + (hidden > 0 ? `\n… and ${hidden} more` : '') : log.trim().slice(0, MAX_LOG);
  return new UserError(
    `${compiler} does not compile the generated ${unit.name}:\n${details}`,
    'Try another compiler with TILEWRIGHT_NVRTC=/path/to/libnvrtc.so or TILEWRIGHT_NVCC=/path/to/nvcc; ' +
      'if it fails too, this is a bug in code generation.',
  );
}
