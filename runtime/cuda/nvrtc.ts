/** NVRTC, CUDA's run-time compiler, through FFI: a shared library of its own that needs neither a GPU nor a driver. */
import { fork } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { setPriority } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { KoffiFunc } from 'koffi';
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import type { Header } from '../../ir/unit.js';
import { loadKoffi } from './loadKoffi.js';

/** What compiling one text gave. A failed one has the compiler's complaints as its log. */
export type Compilation =
  | { readonly isCompiled: true; readonly cubin: Uint8Array; readonly log: string }
  | { readonly isCompiled: false; readonly log: string };

export interface Nvrtc {
  readonly version: CudaVersion;
  /** Compiles a whole translation unit in another thread. `name` stands for the file in messages. */
  compile(unit: LaneRequest): Promise<Compilation>;
}

const MAX_CUBIN_BYTES = 64 * 2 ** 20;
const MAX_LOG_BYTES = 16 * 2 ** 20;
const COMPILATION_ERROR = 6;

/** An opaque nvrtcProgram, as koffi hands it out. */
type NvrtcProgram = unknown;
type NvrtcStatus = number;

interface NvrtcFunctions {
  readonly getVersion: KoffiFunc<(major: Int32Array, minor: Int32Array) => NvrtcStatus>;
  readonly getErrorString: KoffiFunc<(status: NvrtcStatus) => string>;
  readonly createProgram: KoffiFunc<
    (
      program: NvrtcProgram[],
      source: string,
      name: string,
      headers: number,
      texts: readonly string[] | null,
      names: readonly string[] | null,
    ) => NvrtcStatus
  >;
  readonly destroyProgram: KoffiFunc<(program: NvrtcProgram[]) => NvrtcStatus>;
  readonly compileProgram: KoffiFunc<(program: NvrtcProgram, count: number, options: readonly string[]) => NvrtcStatus>;
  readonly getLogSize: KoffiFunc<(program: NvrtcProgram, bytes: BigUint64Array) => NvrtcStatus>;
  readonly getLog: KoffiFunc<(program: NvrtcProgram, log: Uint8Array) => NvrtcStatus>;
  readonly getCubinSize: KoffiFunc<(program: NvrtcProgram, bytes: BigUint64Array) => NvrtcStatus>;
  readonly getCubin: KoffiFunc<(program: NvrtcProgram, cubin: Uint8Array) => NvrtcStatus>;
}

function bind(path: string): NvrtcFunctions {
  const library = loadKoffi().load(path);
  return {
    getVersion: library.func('int nvrtcVersion(_Out_ int *major, _Out_ int *minor)'),
    getErrorString: library.func('const char *nvrtcGetErrorString(int result)'),
    createProgram: library.func(
      'int nvrtcCreateProgram(_Out_ void **prog, const char *src, const char *name, ' +
        'int numHeaders, const char **headers, const char **includeNames)',
    ),
    destroyProgram: library.func('int nvrtcDestroyProgram(_Inout_ void **prog)'),
    compileProgram: library.func('int nvrtcCompileProgram(void *prog, int numOptions, const char **options)'),
    getLogSize: library.func('int nvrtcGetProgramLogSize(void *prog, _Out_ size_t *bytes)'),
    getLog: library.func('int nvrtcGetProgramLog(void *prog, _Out_ uint8_t *log)'),
    getCubinSize: library.func('int nvrtcGetCUBINSize(void *prog, _Out_ size_t *bytes)'),
    getCubin: library.func('int nvrtcGetCUBIN(void *prog, _Out_ uint8_t *cubin)'),
  };
}

/**
 * NVRTC loads its built-in declarations by bare name when it first compiles. Loaded here from beside it, they are found
 * also where the loader's search would not reach (a Python wheel's folder), and they are of the same version.
 */
function loadBuiltins(path: string): void {
  const folder = dirname(path);
  if (folder === '.') return;
  for (const name of readdirSync(folder).filter((each) => /^libnvrtc-builtins\.so(\.\d+)*$/.test(each))) {
    try {
      loadKoffi().load(join(folder, name), { global: true });
    } catch {
      // NVRTC may still find another; if not, its log says so.
    }
  }
}

class LoadedNvrtc implements Nvrtc {
  readonly version: CudaVersion;
  readonly #functions: NvrtcFunctions;

  constructor(path: string) {
    this.#functions = bind(path);
    const [major, minor] = [new Int32Array(1), new Int32Array(1)];
    this.#check('nvrtcVersion', this.#functions.getVersion(major, minor));
    this.version = { major: major[0] ?? 0, minor: minor[0] ?? 0 };
    loadBuiltins(path);
  }

  #check(call: string, status: NvrtcStatus): void {
    if (status !== 0) throw new Error(`${call} fails: ${this.#functions.getErrorString(status)} (${status})`);
  }

  /** A text or code whose size NVRTC says first. Sizes of a library that lies are bounded. */
  #bytes(
    call: string,
    program: NvrtcProgram,
    size: NvrtcFunctions['getLogSize'],
    read: NvrtcFunctions['getLog'],
    limit: number,
  ): Uint8Array {
    const bytes = new BigUint64Array(1);
    this.#check(`${call}Size`, size(program, bytes));
    const count = Number(bytes[0] ?? 0n);
    if (count > limit) throw new Error(`${call}Size gives ${count} bytes; at most ${limit} are taken`);
    const data = new Uint8Array(count);
    if (count > 0) this.#check(call, read(program, data));
    return data;
  }

  #log(program: NvrtcProgram): string {
    const data = this.#bytes(
      'nvrtcGetProgramLog',
      program,
      this.#functions.getLogSize,
      this.#functions.getLog,
      MAX_LOG_BYTES,
    );
    const end = data.indexOf(0);
    return new TextDecoder().decode(end < 0 ? data : data.subarray(0, end));
  }

  async compile({ name, source, headers, options }: LaneRequest): Promise<Compilation> {
    const { createProgram, compileProgram, destroyProgram, getErrorString, getCubinSize, getCubin } = this.#functions;
    const program: NvrtcProgram[] = [null];
    const [texts, names] =
      headers.length === 0 ? [null, null] : [headers.map(({ text }) => text), headers.map((header) => header.name)];
    this.#check('nvrtcCreateProgram', createProgram(program, source, name, headers.length, texts, names));
    try {
      const [handle] = program;
      const status = await new Promise<NvrtcStatus>((resolve, reject) => {
        compileProgram.async(handle, options.length, options, (error: unknown, result: NvrtcStatus) => {
          if (error === null || error === undefined) resolve(result);
          else reject(error instanceof Error ? error : new Error(String(error)));
        });
      });
      const log = this.#log(handle);
      if (status === COMPILATION_ERROR) return { isCompiled: false, log };
      if (status !== 0)
        return { isCompiled: false, log: `nvrtcCompileProgram: ${getErrorString(status)} (${status})\n${log}` };
      return {
        isCompiled: true,
        cubin: this.#bytes('nvrtcGetCUBIN', handle, getCubinSize, getCubin, MAX_CUBIN_BYTES),
        log,
      };
    } finally {
      destroyProgram(program);
    }
  }
}

/**
 * Loads NVRTC from a path or a name that the system's loader knows. Throws an Error that says what is wrong with it.
 */
export const openNvrtc = (path: string): Nvrtc => new LoadedNvrtc(path);

// Lanes that compile with NVRTC side by side. Each is a process: NVRTC holds locks of its own within one, and a
// compiler that crashes on a text takes nothing with it. Processes need the compiled nvrtcProcess.js beside this
// file; where only TypeScript sources are (tests), the one lane is this process.

/** A unit to be compiled. */
export interface LaneRequest {
  readonly name: string;
  readonly source: string;
  /** All that the source includes, itself or through another. */
  readonly headers: readonly Header[];
  readonly options: readonly string[];
}

/** The same for a lane's process, which keeps headers: each is sent once. */
export interface LaneMessage extends Omit<LaneRequest, 'headers'> {
  /** Names, in order. */
  readonly headers: readonly string[];
  /** Those of them that the process does not have, or has with another text. */
  readonly sent: readonly Header[];
}

export type LaneReply = { readonly compilation: Compilation } | { readonly error: string };

/** Compiles one text at a time. */
export interface CompilerLane {
  compile(request: LaneRequest): Promise<Compilation>;
  /** Lowers its priority from now on. Absent if it has no process of its own. */
  lower?(): void;
  /** Ends a compilation that is under way, too: it rejects. */
  close(): void;
}

/** Of 19: foreground work comes first, and idle processors are still used. */
const LOW_PRIORITY = 10;
/** Standard error that is kept to explain a crash. */
const MAX_STDERR = 4000;

function processLane(file: string, path: string): CompilerLane {
  const child = fork(file, [path], {
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let settle: { resolve(compilation: Compilation): void; reject(error: Error): void; name: string } | undefined;
  /** Headers that the process has. */
  const sent = new Map<string, string>();
  let failure: string | undefined;
  let stderr = '';
  child.stderr?.on('data', (data: Buffer) => {
    stderr = (stderr + data.toString()).slice(-MAX_STDERR);
  });
  const crash = (name: string, reason: string): UserError =>
    new UserError(
      `NVRTC (${path}) ${reason} while it compiled the generated ${name}.${stderr === '' ? '' : `\n${stderr.trim()}`}`,
      'Try another compiler: TILEWRIGHT_NVRTC=/path/to/libnvrtc.so or TILEWRIGHT_NVCC=/path/to/nvcc',
    );
  const fail = (reason: string): void => {
    failure ??= reason;
    settle?.reject(crash(settle.name, failure));
    settle = undefined;
  };
  child.on('message', (reply: LaneReply) => {
    if ('error' in reply) settle?.reject(new Error(reply.error));
    else settle?.resolve(reply.compilation);
    settle = undefined;
  });
  child.on('error', (error) => fail(`could not be run (${error.message})`));
  child.on('close', (code, signal) =>
    fail(signal === null ? `ended with status ${code ?? 0}` : `was killed by ${signal}`),
  );
  return {
    compile: ({ headers, ...unit }) =>
      new Promise((resolve, reject) => {
        if (failure !== undefined) return reject(crash(unit.name, failure));
        settle = { resolve, reject, name: unit.name };
        const message: LaneMessage = {
          ...unit,
          headers: headers.map(({ name }) => name),
          sent: headers.filter(({ name, text }) => sent.get(name) !== text),
        };
        for (const { name, text } of message.sent) sent.set(name, text);
        child.send(message, (error) => {
          if (error !== null) fail(`could not be reached (${error.message})`);
        });
      }),
    lower: () => {
      try {
        if (child.pid !== undefined && failure === undefined) setPriority(child.pid, LOW_PRIORITY);
      } catch {
        // It has just ended, or the system does not allow it: then it runs as it did.
      }
    },
    close: () => {
      settle?.reject(new Error(`NVRTC was stopped while it compiled ${settle.name}`));
      settle = undefined;
      child.kill('SIGKILL');
    },
  };
}

function localLane(path: string): CompilerLane {
  let nvrtc: Nvrtc | undefined;
  return {
    compile: async (unit) => {
      nvrtc ??= openNvrtc(path);
      return nvrtc.compile(unit);
    },
    close: () => {},
  };
}

/** A lane of the NVRTC at `path`. Close it when done. */
export function openLane(path: string): CompilerLane {
  const file = fileURLToPath(new URL('./nvrtcProcess.js', import.meta.url));
  return existsSync(file) ? processLane(file, path) : localLane(path);
}

// Which compiler versions make code for an architecture, and which of that code a driver loads.

export interface CudaVersion {
  readonly major: number;
  readonly minor: number;
}

/** The first toolkit whose compiler knows C++20, in which kernels are written, and every architecture. */
const LEAST: CudaVersion = { major: 12, minor: 0 };

export const versionText = ({ major, minor }: CudaVersion): string => `${major}.${minor}`;

const isBefore = (a: CudaVersion, b: CudaVersion): boolean =>
  a.major < b.major || (a.major === b.major && a.minor < b.minor);

/** cuDriverGetVersion's 1000·major + 10·minor. */
export const driverCudaVersion = (driverVersion: number): CudaVersion => ({
  major: Math.floor(driverVersion / 1000),
  minor: Math.floor((driverVersion % 1000) / 10),
});

/**
 * The reason, in one line, why a compiler of that version cannot be used for the architecture and driver; undefined if
 * it can. Within one major version a driver loads the cubins of newer minor versions (CUDA's minor version
 * compatibility). Without a driver version (compiling on a machine without a GPU) the driver is not considered.
 */
export function versionProblem(
  version: CudaVersion,
  arch: CudaArch,
  driverVersion: number | undefined,
): string | undefined {
  if (isBefore(version, LEAST))
    return `version ${versionText(version)} is too old for ${arch}, which needs ${versionText(LEAST)} or later`;
  if (driverVersion === undefined) return undefined;
  const driver = driverCudaVersion(driverVersion);
  if (version.major > driver.major) {
    return (
      `version ${versionText(version)} is too new for the GPU driver, which ` +
      `supports CUDA ${versionText(driver)}: its kernels would not load`
    );
  }
  return undefined;
}
