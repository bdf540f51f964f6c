/** Kernels of recurrent layers on a GPU. */
import { CompileError } from '../../../errors.js';
import type { CudaLoopSchedule } from '../../../ir/cuda.js';
import type { LinksKernel, ScanKernel } from '../../../ir/kernel.js';
import type { CudaOperands, EmittedCuda } from '../text/operands.js';

export function emitLinks(kernel: LinksKernel, _: CudaOperands, __: CudaLoopSchedule, ___: string): EmittedCuda {
  throw new CompileError(`${kernel.path}: recurrent layers have no kernels for GPUs yet; use --target cpu`);
}
export function emitScan(kernel: ScanKernel, _: CudaOperands, __: CudaLoopSchedule, ___: string): EmittedCuda {
  throw new CompileError(`${kernel.path}: recurrent layers have no kernels for GPUs yet; use --target cpu`);
}
