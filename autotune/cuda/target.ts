/** What a measurement on a GPU depends on besides the kernel. Records of another device are never used. */
import { z } from 'zod';
import { cudaTemplatesHash, type CudaFacts } from '../../codegen/cuda/index.js';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { CudaDeviceInfo } from '../../runtime/cuda/nativeDevice.js';
import { recordDigest, recordText, recordVersion, type RecordFormat } from '../recordSchemas.js';

/** The device and the software that affects a schedule's time. */
const schema = z.strictObject({
  /** Name and number of multiprocessors: `NVIDIA H100 80GB HBM3/132`. */
  gpu: recordText,
  arch: z.string().regex(/^sm_\d+a?$/),
  /** The number from cuDriverGetVersion. */
  driver: recordVersion,
  /** Kind, version and build of the compiler. */
  compiler: recordText,
  codegen: recordDigest,
});
export type CudaTuningTarget = z.infer<typeof schema>;

export const CUDA_RECORDS: RecordFormat<CudaSchedule, CudaTuningTarget> = {
  field: 'cuda',
  target: schema,
  scheduling: cudaScheduling,
};

const gpuName = ({ name, multiprocessors }: CudaDeviceInfo): string => `${name}/${multiprocessors}`.slice(0, 200);

/** Whether records are of this device, its driver and this code generator, whatever compiled them. */
export const isThisGpu = (
  { gpu, arch, driver, codegen }: CudaTuningTarget,
  facts: CudaFacts,
  device: CudaDeviceInfo,
  driverVersion: number,
): boolean =>
  gpu === gpuName(device) && arch === facts.arch && driver === driverVersion && codegen === cudaTemplatesHash();

/** `compilerBuild`: as compileCubins reports it. */
export const cudaTarget = (
  facts: CudaFacts,
  device: CudaDeviceInfo,
  driverVersion: number,
  compilerBuild: string,
): CudaTuningTarget => ({
  gpu: gpuName(device),
  arch: facts.arch,
  driver: driverVersion,
  compiler: compilerBuild.slice(0, 200) || 'unknown',
  codegen: cudaTemplatesHash(),
});
