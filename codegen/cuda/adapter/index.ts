/** The first factor of adapters on a GPU. */
import type { CudaLoopSchedule } from '../../../ir/cuda.js';
import type { ShrinkKernel } from '../../../ir/kernel.js';
import type { CudaOperands, EmittedCuda } from '../text/operands.js';

export function emitShrink(kernel: ShrinkKernel, _: CudaOperands, __: CudaLoopSchedule, ___: string): EmittedCuda {
  throw new Error(`${kernel.path}: adapters are not supported on GPUs`);
}
