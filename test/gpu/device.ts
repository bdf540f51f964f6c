/** The device that tests on a GPU use, or the reason why they are skipped (`skip` of node:test). */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { CudaArch } from '../../ir/cuda.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import type { CudaAvailability } from '../../runtime/cuda/native.js';
import { ROOT } from './command.js';
import { archOf } from './launcher.js';
import { compilerOrReason } from './support.js';

export interface DeviceHere {
  readonly available: CudaAvailability;
  /** Of the kernels that the first device runs, or why there are none. */
  readonly arch: CudaArch | { readonly reason: string };
  readonly skip: string | false;
}

/** Whether there is a device, and a compiler for it. */
export async function deviceHere(): Promise<DeviceHere> {
  const available = cudaAvailable();
  const arch = archOf(available);
  const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
  return { available, arch, skip: typeof compiler === 'string' ? compiler : false };
}

/** The data folder beside the repository. */
export const SHARED = join(ROOT, '..', 'shared');

/** `skip`, or the reason why tests that need `what` are skipped: `folder` is not there. */
export const skipWithout = (skip: string | false, folder: string, what: string): string | false =>
  skip !== false || existsSync(folder) ? skip : `${what}: ${join('..', 'shared')} is not beside this folder`;
