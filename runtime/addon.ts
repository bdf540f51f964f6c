/**
 * The typed side of the native addon (runtime/native). Everything else in runtime/ reaches native code through here.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UserError } from '../errors.js';
import { isRecord } from '../system/json.js';
import type {
  CodedRows,
  CodeJob,
  FactorJob,
  HessianJob,
  NativeLibrary,
  NativeMemory,
  NativePool,
  NativeProgram,
  PackJob,
  ProgramBinding,
} from './native.js';

/** What can be measured: floating operations a second of a micro-kernel's instructions, or bytes read a second. */
export type PeakKind = 'portable' | 'avx2' | 'avx512' | 'amx' | 'read';

/** The processor of this machine, as far as this process may use it. */
export interface CpuInfo {
  readonly vendor: string;
  readonly model: string;
  /** Processors this process may use: its affinity, and its control group's share of time. */
  readonly cores: number;
  /** avx2 with FMA and F16C; avx512 F, BW, DQ and VL; amx bf16 with the kernel's permission. */
  readonly isas: { readonly avx2: boolean; readonly avx512: boolean; readonly amx: boolean };
  /** 0 where unknown. */
  readonly l1dBytes: number;
  readonly l2Bytes: number;
  readonly l3Bytes: number;
}

/** What the addon exports. */
export interface Addon {
  /**
   * A path maps that file; a number allocates that many bytes, or reserves addresses for them, of which map() puts
   * memory behind the first.
   */
  readonly Memory: new (source: string | number, kind?: 'reserved') => NativeMemory;
  readonly Library: new (path: string) => NativeLibrary;
  readonly Pool: new (threads: number, isPinned?: boolean) => NativePool;
  readonly Program: new (binding: ProgramBinding) => NativeProgram;
  cpuInfo(): CpuInfo;
  pack(pool: NativePool, job: PackJob): Promise<undefined>;
  peak(pool: NativePool, kind: PeakKind, seconds: number): Promise<number>;
  /** Quantization, of matrices of doubles for k columns (hessian.ts). What it rejects with may have a code. */
  addHessian(pool: NativePool, job: HessianJob & { readonly inputs: Float32Array }): Promise<undefined>;
  factorHessian(
    pool: NativePool,
    job: HessianJob & FactorJob & { readonly order: Int32Array; readonly damping: number },
  ): Promise<undefined>;
  invertFactor(pool: NativePool, job: FactorJob): Promise<undefined>;
  weightedNorm(
    pool: NativePool,
    job: FactorJob & { readonly order: Int32Array; readonly values: Float32Array },
  ): Promise<number>;
  codeRows(pool: NativePool, job: CodeJob): Promise<CodedRows>;
  /** From now on all threads together allocate from two heaps: they hold less memory, but wait for each other. */
  boundHeaps(): void;
  /** Returns freed memory of all native code to the system. */
  trim(): void;
  /** The CUDA driver; runtime/cuda/addon.ts has its type. */
  readonly cuda: unknown;
  /** TW_ABI of runtime/native/abi.h that the addon was built with. */
  readonly abi: number;
}

/** TW_ABI of runtime/native/abi.h in this tree. */
const ABI = 4;
const FILE = join('build', 'Release', 'tilewright.node');

/** The folder that holds package.json: two levels above this file in the source, three in dist/. */
function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, 'package.json'))) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error('No package.json above the runtime.');
    folder = parent;
  }
  return folder;
}

/** Loads the addon of the package in `root`. Throws UserError where it is not built or does not fit this system. */
export function loadAddonFrom(root: string): Addon {
  const path = join(root, FILE);
  if (!existsSync(path))
    throw new UserError(
      `The native addon is not built: ${path} is missing.`,
      'Run: npm run build:native (in a checkout), or npm rebuild tilewright',
    );
  try {
    const addon: Addon = createRequire(import.meta.url)(path);
    if (addon.abi !== ABI)
      throw new UserError(
        `The native addon ${path} was built from sources of another version (${addon.abi}, this is ${ABI}).`,
        'Run: npm run build:native (in a checkout), or npm rebuild tilewright',
      );
    return addon;
  } catch (error) {
    if (error instanceof UserError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw (
      tooOldSystem(reason) ??
      new UserError(
        `The native addon cannot be loaded: ${reason}`,
        'Build it again on this machine: npm run build:native (in a checkout), or npm rebuild tilewright',
        { cause: error },
      )
    );
  }
}

let loaded: Addon | undefined;

/** The addon of this package, loaded once. Throws as loadAddonFrom does. */
export function loadAddon(): Addon {
  loaded ??= loadAddonFrom(packageRoot());
  return loaded;
}

// The C library of this process, and the error for native code that was built for a newer one.

/** Version of glibc, such as `2.36`; undefined if another C library is used. */
export function glibcVersion(): string | undefined {
  const report: unknown = process.report.getReport();
  const header = isRecord(report) ? report['header'] : undefined;
  const version = isRecord(header) ? header['glibcVersionRuntime'] : undefined;
  return typeof version === 'string' ? version : undefined;
}

const LIBRARIES: Readonly<Record<string, string>> = {
  GLIBC: 'glibc',
  GLIBCXX: 'the C++ library GLIBCXX',
  CXXABI: 'the C++ library CXXABI',
};

/** The loader's error about a system library that is too old, for users; undefined for any other error. */
export function tooOldSystem(reason: string, has: string | undefined = glibcVersion()): UserError | undefined {
  const [, name = '', version = ''] = /version [`'](GLIBC|GLIBCXX|CXXABI)_([\d.]+)' not found/.exec(reason) ?? [];
  const library = LIBRARIES[name];
  if (library === undefined) return undefined;
  const here = has === undefined ? '' : `; here is glibc ${has}`;
  return new UserError(
    `This system is too old for the native addon, which needs ${library} ${version} or later${here}.`,
    'Use a newer system, or build on this one or one as old: npm ci && npm run build:native, ' +
      'npm run bundle for a bundle',
  );
}
