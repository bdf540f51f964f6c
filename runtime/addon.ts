/**
 * The typed side of the native addon (runtime/native). Everything else in runtime/ reaches native code through here.
 */
import { createRequire } from 'node:module';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UserError } from '../errors.js';
import { tooOldSystem } from './cLibrary.js';
import type { CodedRows, CodeJob, FactorJob, HessianJob } from './nativeCoding.js';
import type { NativeLibrary, NativeMemory, NativePool } from './nativeObjects.js';
import type { PackJob } from './nativePacking.js';
import type { NativeProgram, ProgramBinding } from './nativeProgram.js';

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
  /** A path maps that file; a number allocates that many bytes. */
  readonly Memory: new (source: string | number) => NativeMemory;
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
const ABI = 3;
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
