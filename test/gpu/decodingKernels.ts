/** Which kernels the demo model decodes with on a device. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import { compileModel } from '../../driver/compile/compile.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import { STEP } from '../../ir/function.js';
import { linkFunction } from '../../ir/plan.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import type { CudaAvailability } from '../../runtime/cuda/native.js';
import { DEMO } from './command.js';
import { archOf } from './launcher.js';

/** Skeletons of contractions, and whether attention runs in clusters, in the smallest bucket of step. */
export function kindsOf(facts: CudaFacts): readonly string[] {
  const options = { batchTokens: 256, cacheTokens: 1024 };
  const { plan } = compileModel(openCheckpoint(DEMO), cuda, cudaDevice(facts, 'bf16'), options);
  const step = linkFunction(plan, STEP);
  const kinds = step.launches.map(({ signature }) => {
    const schedule = step.schedules[0]![signature]!;
    if (schedule.kind === 'gemm') return schedule.skeleton;
    if (schedule.kind !== 'attention') return schedule.kind;
    return (schedule.cluster ?? 1) > 1 ? 'attention in clusters' : 'attention';
  });
  return [...new Set(kinds)];
}

export function decodingKernels(available: CudaAvailability): readonly string[] {
  const arch = archOf(available);
  if (typeof arch !== 'string' || !available.ok) throw new Error('no device');
  const { sharedBytesPerBlock, multiprocessors } = available.devices[0]!;
  return kindsOf({ arch, sharedBytesPerBlock, multiprocessors });
}
