/** NVIDIA GPUs: CUDA, compiled by NVRTC or nvcc. */
import { z } from 'zod';
import { cudaBuckets, cudaCapacity } from '../../autotune/buckets.js';
import type { Rates } from '../../autotune/peaks.js';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { UsageError, UserError } from '../../errors.js';
import { CUDA_ARCHS, type CudaArch, type CudaSchedule } from '../../ir/cuda.js';
import { requireCuda } from '../../runtime/cuda/addon.js';
import { compileCubins } from '../../runtime/cuda/compiler.js';
import { freeDeviceBytes } from '../../runtime/cuda/memoryUse.js';
import { defined } from '../../system/defined.js';
import { CUDA_ARITHMETICS } from '../precision.js';
import { cudaDevice, cudaFactsOf, cudaNumerics, devicesFor, type GpuDevice, visibleGpus } from './cudaDevice.js';
import { compileCudaKernels, CUDA_FACTS, CUDA_PRINTING, emitCudaPlan } from './cudaKernels.js';
import { machineCodeOf } from './printedKernels.js';
import type { ManifestFormat, Target, TargetCompiler, TargetDevices, TargetTuner } from './target.js';

const count = (most: number) => z.number().int().min(1).max(most);
const manifestSchema = z.strictObject({
  kind: z.literal('cuda'),
  arch: z.enum(CUDA_ARCHS),
  arithmetic: z.enum(CUDA_ARITHMETICS),
  sharedBytesPerBlock: count(1 << 24),
  multiprocessors: count(1 << 12),
  /** Matrices that are multiplied as they are stored, in E4M3. */
  codes: z.array(z.string().max(300)).min(1).max(100_000).exactOptional(),
});

const RATES: Readonly<Record<CudaArch, Rates>> = {
  sm_80: { flopsPerSecond: 3.12e14, bytesPerSecond: 1.9e12 },
  sm_90a: { flopsPerSecond: 9.9e14, bytesPerSecond: 3.35e12 },
};

/** Memory besides weights and activations: the context, machine code, and buffers through which weights are loaded. */
export const gpuReserve = (totalBytes: number): number => Math.min(2 ** 30, totalBytes / 8);

const compiler: TargetCompiler<CudaSchedule, GpuDevice> = {
  scheduling: cudaScheduling,
  // Tensor cores add keys in groups. Grouped by position, they give the same bits in any company.
  mask: 'path',
  choose: ({ target, precision, isa }, _machine, stored, kept) => {
    const facts = cudaFactsOf(target);
    if (isa !== undefined)
      throw new UsageError('--isa is an instruction set of CPUs', 'drop --isa, or use --target cpu');
    return cudaDevice(facts, precision, stored, kept);
  },
  label: ({ arch }) => `cuda:${arch}`,
  arithmetic: ({ arithmetic }) => arithmetic,
  numerics: ({ arithmetic, codes, arch }) =>
    cudaNumerics(arithmetic, codes, arithmetic === 'bf16' && arch === 'sm_90a'),
  capacity: ({ multiprocessors }, width) => cudaCapacity(multiprocessors, width),
  buckets: cudaBuckets,
  // Whole tiles of rows: half a tile more costs as much as a tile.
  decodeSizes: [128, 256, 384, 512, 768, 1024],
  sources: (plan) => emitCudaPlan(plan).sources,
  print: (kernel, plan, schedule, markOf) => {
    const { extents } = plan.capacity;
    const { symbol, source, headers, launch, parameters } = emitCudaKernel(kernel, plan, schedule, extents, markOf);
    return { symbol, source, headers, launch, parameters };
  },
  examine: async ({ symbol, source, headers }, { arch }) => {
    try {
      const { resources } = await compileCubins([{ symbol, source, headers }], { arch });
      return { ...defined({ resources: resources.get(symbol) }) };
    } catch (error) {
      if (!(error instanceof UserError)) throw error;
      return { note: error.message };
    }
  },
  compile: async ({ plan, device }, options = {}) => {
    const emitted = emitCudaPlan(plan);
    const compiled = await compileCudaKernels(emitted, device.arch, options);
    options.signal?.throwIfAborted();
    return machineCodeOf(plan, emitted, compiled, CUDA_PRINTING);
  },
};

const devices: TargetDevices<CudaSchedule, GpuDevice> = {
  isHost: false,
  timeoutSeconds: 180,
  compilesInProcess: true,
  sharesWeights: true,
  tokenStep: 32,
  visible: visibleGpus,
  require: ({ arch }, min, rebuild) => {
    devicesFor(arch, rebuild, min);
  },
  memoryBytes: ({ arch }, _devices, present, rebuild) => {
    const infos = devicesFor(arch, rebuild, present).devices.slice(0, present);
    return Math.min(...infos.map(({ totalBytes }) => totalBytes - gpuReserve(totalBytes)));
  },
  freeBytes: ({ arch }, count, rebuild) =>
    freeDeviceBytes(
      requireCuda(),
      devicesFor(arch, rebuild, count)
        .devices.slice(0, count)
        .map(({ ordinal }) => ordinal),
    ),
  peaks: async ({ arch }, { rebuild }) => (await import('./kernelTimes.js')).cudaPeaks(arch, rebuild, RATES[arch]),
  open: async (checkpoint, model, options, ui) =>
    (await import('./executors.js')).loadCudaExecutor(checkpoint, model, options, ui),
};

const tuner: TargetTuner<CudaSchedule, GpuDevice> = {
  rates: ({ arch }) => RATES[arch],
  times: async (model, _machine, options) =>
    (await import('./kernelTimes.js')).cudaTimes(model, options, RATES[model.device.arch]),
  tune: async (model, _machine, options) => (await import('./tuning.js')).tuneOnCuda(model, options),
};

const manifest: ManifestFormat<GpuDevice> = {
  schema: manifestSchema,
  kernels: CUDA_FACTS,
  describe: (device) => ({ kind: 'cuda', ...device }),
  restore: (described) => {
    const { kind: _kind, ...device } = manifestSchema.parse(described);
    return device;
  },
  option: ({ arch }) => `cuda:${arch}`,
};

export const cuda: Target<CudaSchedule, GpuDevice> = {
  name: 'cuda',
  // Without an architecture: that of the GPU in this machine.
  names: ['cuda', ...CUDA_ARCHS.map((arch) => `cuda:${arch}`)],
  compiler,
  devices,
  tuner,
  manifest,
};
