/** GPUs as a target: those of this machine, and the facts that schedules for them depend on. */
import { at } from '../../system/at.js';
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/native.js';
import { cudaArithmetic, type CudaArithmetic, type Precision, TYPICAL_FACTS } from './precision.js';
import type { Rebuild } from './target.js';

/** The best supported architecture of a device; undefined if none is supported. */
export function archOf({ capability: [major] }: Pick<CudaDeviceInfo, 'capability'>): CudaArch | undefined {
  if (major === 9) return 'sm_90a';
  return major >= 8 ? 'sm_80' : undefined;
}

/** Whether code for `arch` runs on a device. sm_90a is for compute capability 9.0 alone; sm_80 machine code for 8.x. */
export const runsOn = (arch: CudaArch, { capability: [major] }: Pick<CudaDeviceInfo, 'capability'>): boolean =>
  arch === 'sm_90a' ? major === 9 : major === 8;

const factsOf = (device: CudaDeviceInfo, arch: CudaArch): CudaFacts => ({
  arch,
  sharedBytesPerBlock: device.sharedBytesPerBlock,
  multiprocessors: device.multiprocessors,
});

/** The GPU to compile for. `cuda:ARCH` needs no GPU. Throws UserError if `cuda` finds none. */
export function cudaFactsOf(target: string): CudaFacts {
  const available = cudaAvailable();
  if (target === 'cuda') {
    if (!available.ok)
      throw new UserError(
        `--target cuda: ${available.reason}`,
        'compute on this machine: --target cpu; or compile for a GPU elsewhere: --target cuda:sm_90a',
      );
    const device = at(available.devices, 0);
    const arch = archOf(device);
    if (arch === undefined)
      throw new UserError(
        `${device.name}: compute capability ${device.capability.join('./')} is older than 8.0`,
        'use --target cpu',
      );
    return factsOf(device, arch);
  }
  const arch: CudaArch = target === 'cuda:sm_90a' ? 'sm_90a' : 'sm_80';
  const device = available.ok ? available.devices.find((each) => runsOn(arch, each)) : undefined;
  return device === undefined ? TYPICAL_FACTS[arch] : factsOf(device, arch);
}

/**
 * The devices that run a plan compiled for `arch`, in the driver's order. Throws UserError with a command that helps if
 * there are fewer than `least`.
 */
export function devicesFor(
  arch: CudaArch,
  rebuild: Rebuild,
  least = 1,
): { readonly devices: readonly CudaDeviceInfo[]; readonly driverVersion: number } {
  const available = cudaAvailable();
  if (!available.ok)
    throw new UserError(
      `compiled for cuda:${arch}, but ${available.reason}`,
      `run it where a GPU is, or compile for this CPU: ${rebuild('cpu')}`,
    );
  const devices = available.devices.filter((each) => runsOn(arch, each));
  if (devices.length === 0) {
    const here = at(available.devices, 0);
    throw new UserError(
      `compiled for cuda:${arch}; ${here.name} has compute capability ${here.capability.join('./')}`,
      rebuild(archOf(here) === undefined ? 'cpu' : `cuda:${archOf(here)!}`),
    );
  }
  if (devices.length < least) {
    throw new UserError(
      `${least} GPUs for cuda:${arch} are asked for, and this machine has ${devices.length}`,
      devices.length > 1 ? `use --devices ${devices.length}` : 'leave --devices and --parallel out',
    );
  }
  return { devices, driverVersion: available.driverVersion };
}

/** Number of GPUs in a run that uses all of them, before its model is known: those like the first. */
export function visibleGpus(): number {
  const available = cudaAvailable();
  const arch = available.ok && available.devices[0] !== undefined ? archOf(available.devices[0]) : undefined;
  return available.ok && arch !== undefined ? available.devices.filter((each) => runsOn(arch, each)).length : 1;
}

/** A GPU, and the number format that its tensor cores multiply. */
export interface GpuDevice extends CudaFacts {
  readonly arithmetic: CudaArithmetic;
  /** Matrices whose codes of E4M3 are multiplied as they are stored, by tensor. Absent: none. */
  readonly codes?: readonly string[];
}

/**
 * A GPU as a plan's target, for a checkpoint stored in `stored`. Matrices that are `kept` in E4M3 are multiplied so
 * where the precision is left to the target, or is FP8. Throws UsageError for what it cannot multiply.
 */
export function cudaDevice(
  facts: CudaFacts,
  precision: Precision = 'auto',
  stored: 'f32' | 'bf16' | 'f16' = 'bf16',
  kept: StoredFormats = new Map(),
): GpuDevice {
  const arithmetic = cudaArithmetic(precision, stored, facts.arch);
  const isKept = facts.arch === 'sm_90a' && (precision === 'auto' || precision === 'fp8');
  const codes = isKept ? [...kept].flatMap(([name, format]) => (format === 'e4m3' ? [name] : [])) : [];
  return codes.length === 0 ? { ...facts, arithmetic } : { ...facts, arithmetic: 'fp8', codes };
}
