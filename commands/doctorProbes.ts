/** What is asked of a machine for its checks, and the form of an answer. */
import { accessSync, constants } from 'node:fs';
import { totalmem } from 'node:os';
import { delimiter, join } from 'node:path';
import { detectMachine, type Machine } from '../driver/targets/cpuDevice.js';
import { UserError } from '../errors.js';
import type { CudaArch } from '../ir/cuda.js';
import { glibcVersion } from '../runtime/addon.js';
import { findCompiler, type SystemCompiler } from '../runtime/cpu/systemCompiler.js';
import { cudaAvailable } from '../runtime/cuda/addon.js';
import { compilerName, findCudaCompiler } from '../runtime/cuda/compiler.js';
import type { CudaAvailability } from '../runtime/cuda/native.js';
import { cacheLimitBytes } from '../runtime/kernelCache.js';
import { readSettings } from '../settings.js';
import { defined } from '../system/defined.js';

/** `missing`: something cannot work without it. `note`: information only. */
export interface Check {
  readonly name: string;
  readonly status: 'ok' | 'missing' | 'note';
  readonly detail: string;
  /** A command, or another remedy. */
  readonly fix?: string;
}

/** The sources of the answers; tests provide their own. */
export interface Probes {
  readonly nodeVersion: string;
  readonly platform: string;
  /** Undefined if the C library is not glibc. */
  readonly glibcVersion: string | undefined;
  machine(): Machine;
  /** Whether a program of that name is on PATH. */
  hasProgram(name: string): boolean;
  compiler(): Promise<SystemCompiler>;
  /** Undefined if there is no home folder. */
  readonly cacheDir: string | undefined;
  /** Limit on the bytes of compiled kernels there. Throws UserError if the setting is wrong. */
  cacheLimit(): number;
  /** Bytes of memory this process may use, and how many of them are free. */
  memory(): { readonly totalBytes: number; readonly freeBytes: number };
  gpu(): CudaAvailability;
  /** For the GPU's architecture and its driver, if there is one. */
  cudaCompiler(arch: CudaArch, driverVersion: number | undefined): Promise<string>;
}

/** The limit of a control group takes precedence. */
function memory(): { totalBytes: number; freeBytes: number } {
  const limit = process.constrainedMemory();
  return { totalBytes: limit > 0 && limit < totalmem() ? limit : totalmem(), freeBytes: process.availableMemory() };
}

const hasProgram = (name: string): boolean =>
  readSettings()
    .path.split(delimiter)
    .some((folder) => {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return folder !== '';
      } catch {
        return false;
      }
    });

/** The answers of this machine. */
export const hereAndNow = (): Probes => ({
  nodeVersion: process.versions.node,
  hasProgram,
  platform: `${process.platform}-${process.arch}`,
  glibcVersion: glibcVersion(),
  machine: detectMachine,
  compiler: () => findCompiler(),
  cacheDir: readSettings().cacheDir,
  cacheLimit: () => cacheLimitBytes(),
  memory,
  gpu: () => cudaAvailable(),
  cudaCompiler: async (arch, driverVersion) => compilerName(await findCudaCompiler(arch, driverVersion)),
});

/** The message of what was thrown. */
export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** A failed probe as a check: the message, and its hint as the fix. */
export function missing(name: string, error: unknown): Check {
  const fix = error instanceof UserError ? error.hint : undefined;
  return { name, status: 'missing', detail: reasonOf(error), ...defined({ fix }) };
}
