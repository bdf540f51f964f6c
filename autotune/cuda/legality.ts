/** The CUDA schedules that the tuner considers: those that code generation can print and that can be fast. */
import { isLegalCuda, type CudaFacts } from '../../codegen/cuda/index.js';
import type { CudaGemmSkeleton, CudaSchedule } from '../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { cudaScheduling } from '../../codegen/cuda/scheduling.js';

/** Smaller tiles make too few products per loaded element and wait for L2 at any micro-batch size. */
const MIN_TILE = 16 * 32;
/** Where this does not count: they wait for memory anyway. */
const OF_FEW_ROWS: readonly CudaGemmSkeleton[] = ['skinny', 'skinnyWgmma', 'grouped'];
/** Loops with fewer threads per block leave multiprocessors idle. */
const MIN_THREADS = 64;

/** `true`, or why the tuner leaves `schedule` out. Pure: depends on its arguments only. */
function isCudaCandidate(
  kernel: Kernel,
  module: KernelModule,
  schedule: CudaSchedule,
  facts: CudaFacts,
): true | string {
  if (schedule.kind === 'gemm' && !OF_FEW_ROWS.includes(schedule.skeleton) && schedule.tm * schedule.tn < MIN_TILE)
    return `a tile of ${schedule.tm}×${schedule.tn} makes too few products per element it loads`;
  if (schedule.kind === 'loop' && schedule.threads < MIN_THREADS)
    return `blocks of ${schedule.threads} threads do not fill a multiprocessor`;
  return isLegalCuda(kernel, module, schedule, facts);
}

/** isCudaCandidate for one kernel. Results are cached: legality prints programs to count what they keep. */
export function candidateTest(
  kernel: Kernel,
  module: KernelModule,
  facts: CudaFacts,
): (schedule: CudaSchedule) => boolean {
  const known = new Map<string, boolean>();
  return (schedule) => {
    // The raster does not affect legality.
    const key = cudaScheduling.key(schedule.kind === 'gemm' ? { ...schedule, raster: 8 } : schedule);
    let isLegal = known.get(key);
    if (isLegal === undefined) {
      isLegal = isCudaCandidate(kernel, module, schedule, facts) === true;
      known.set(key, isLegal);
    }
    return isLegal;
  };
}
