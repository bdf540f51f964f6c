/** GPUs as a target: those of this machine, and the facts that schedules for them depend on. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { UsageError, UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import type { FormatName } from '../../ir/storage.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import type { Numerics } from '../../passes/numerics.js';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/native.js';
import { at } from '../../system/at.js';
import type { CudaArithmetic, Precision } from '../precision.js';
import type { Rebuild } from './target.js';

/** The largest chip of each architecture, for compiling without one: A100, H100 SXM. */
export const TYPICAL_FACTS: Readonly<Record<CudaArch, CudaFacts>> = {
  sm_80: { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 },
  sm_90a: { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 },
};

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
        `${device.name}: compute capability ${device.capability.join('.')} is older than 8.0`,
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
      `compiled for cuda:${arch}; ${here.name} has compute capability ${here.capability.join('.')}`,
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

/** Matrices of a checkpoint's floats are rounded to E4M3, besides those of its first layers; codes stay. */
const e4m3Of = (codes?: readonly string[]): Pick<Numerics, 'narrow' | 'stored'> =>
  codes === undefined
    ? { narrow: { format: 'e4m3', from: 'values', keep: [], wide: 'first' } }
    : {
        narrow: { format: 'e4m3', from: 'codes', keep: [], only: new Set(codes) },
        stored: new Map(codes.map((name) => [name, 'e4m3'])),
      };

/**
 * Tensor cores multiply operands of 16 or 8 bits, products are rounded to 20 bits, and pairs are grouped by 8 columns
 * to match the fragment layout. `codes`: tensors that the checkpoint stores in E4M3.
 */
export function cudaNumerics(arithmetic: CudaArithmetic, codes?: readonly string[], hasMicroscaled = false): Numerics {
  const dtype = arithmetic === 'f16' ? 'f16' : 'bf16';
  return {
    activations: dtype,
    attention: dtype,
    products: 'f20',
    stream: 'f24',
    writes: 'epilogues',
    rows: 'contractions',
    states: 'blocks',
    ...(arithmetic === 'int4' ? { groups: 'kept' } : {}),
    ...(hasMicroscaled ? { micro: 'kept' } : {}),
    weights: { layout: 'kmajor', format: dtype, pairingWidth: 8 },
    ...(arithmetic === 'fp8' ? e4m3Of(codes) : {}),
  };
}

/**
 * What a GPU's contractions multiply for a checkpoint stored in `stored`. Throws UsageError where the GPU cannot.
 */
export function cudaArithmetic(precision: Precision, stored: FormatName, arch: CudaArch): CudaArithmetic {
  if ((precision === 'fp8' || precision === 'int4') && arch !== 'sm_90a')
    throw new UsageError(
      `--quantize ${precision} needs Hopper (sm_90a), not ${arch}`,
      'leave --quantize out, or use --target cuda:sm_90a',
    );
  if (precision === 'f32')
    throw new UsageError(
      '--precision f32 is for the CPU: GPUs multiply 16-bit numbers here',
      'use --target cpu, or leave --precision out',
    );
  if (precision === 'int8')
    throw new UsageError(
      '--quantize int8 is for the CPU: GPUs multiply 8 bits as FP8 here',
      'use --quantize fp8, or --target cpu',
    );
  if (precision !== 'auto') return precision;
  return stored === 'f16' ? 'f16' : 'bf16';
}
