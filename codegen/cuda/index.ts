/** Kernel IR and a schedule to CUDA: the entry point of codegen/cuda. */
import type { CudaKernelText, CudaSchedule } from '../../ir/cuda.js';
import type { Extents } from '../../ir/extents.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { originsIn } from '../../ir/scalar.js';
import type { MarkOf } from '../marks.js';
import { kernelSignature, parametersOf, scheduleHash, withoutAdapters } from '../signature.js';
import { emitShrink } from './adapter/index.js';
import { emitAttention } from './attention/index.js';
import { emitArrange, emitRoute, emitSample, routingText } from './experts.js';
import { emitGemmMma, emitLogProbMma } from './gemmMma.js';
import { emitGemmSimt, emitLogProbSimt } from './gemmSimt.js';
import { emitGrouped } from './grouped/index.js';
import { emitLogProbReduce, emitLoop } from './loop.js';
import { emitMicro } from './micro/index.js';
import { emitLinks, emitScan } from './recurrent/index.js';
import { emitSkinny, emitSkinnyWgmma } from './skinny/index.js';
import { cudaHeadersOf } from './text/headers.js';
import { CudaOperands, type EmittedCuda } from './text/operands.js';
import { emitWgmma } from './wgmma/index.js';

export { kernelSignature, parametersOf } from '../signature.js';
export { isLegalCuda } from './schedules.js';
export type { CudaFacts } from './schedules.js';
export { defaultCudaSchedule, shrinkingSchedule } from './schedules.js';
export { cudaHeaderNames, cudaHeadersOf } from './text/headers.js';
export { cudaTemplatesHash } from './text/statements.js';

/**
 * Prints `kernel` under `schedule` as a whole translation unit. `capacity` is the largest call: it fixes the strides of
 * [T, T] buffers. Throws if kernel and schedule are of different kinds or a program cannot be printed. The text is
 * undefined for a schedule that isLegalCuda refuses. `markOf`: marks of statements, see marks.ts.
 */
export function emitCudaKernel(
  kernel: Kernel,
  module: KernelModule,
  schedule: CudaSchedule,
  capacity: Extents,
  markOf?: MarkOf,
): CudaKernelText {
  const parameters = parametersOf(kernel, module);
  const signature = kernelSignature(kernel, module, capacity);
  const symbol = `k_${kernel.anchor.toLowerCase()}_${signature}_${scheduleHash(schedule)}`;
  const isPlain = schedule.kind === 'gemm' && schedule.adapters === 'none';
  const computed = isPlain ? withoutAdapters(kernel) : kernel;
  const operands = new CudaOperands(computed, module, parameters, capacity, markOf);
  const emitted = emitAnchor(computed, operands, schedule, symbol);
  const origins = originsIn(kernel);
  return {
    ...{ symbol, parameters, ...emitted, headers: cudaHeadersOf(emitted.source) },
    ...(origins.length === 0 ? {} : { origins }),
  };
}

function emitAnchor(kernel: Kernel, operands: CudaOperands, schedule: CudaSchedule, symbol: string): EmittedCuda {
  const mismatch = (): never => {
    throw new Error(
      `Kernel ${kernel.name} (${kernel.path}) is a ${kernel.anchor}, but its schedule is for ${schedule.kind}.`,
    );
  };
  switch (kernel.anchor) {
    case 'gemm':
    case 'logprob':
      if (schedule.kind !== 'gemm') return mismatch();
      switch (schedule.skeleton) {
        case 'simt':
          return kernel.anchor === 'gemm'
            ? emitGemmSimt(kernel, operands, schedule, symbol)
            : emitLogProbSimt(kernel, operands, schedule, symbol);
        case 'mma':
          return kernel.anchor === 'gemm'
            ? emitGemmMma(kernel, operands, schedule, symbol)
            : emitLogProbMma(kernel, operands, schedule, symbol);
        case 'wgmma':
          return emitWgmma(kernel, operands, schedule, symbol);
        case 'skinny':
          return emitSkinny(kernel, operands, schedule, symbol);
        case 'skinnyWgmma':
          return emitSkinnyWgmma(kernel, operands, schedule, symbol, routingText);
        case 'grouped':
          return kernel.anchor === 'gemm' ? emitGrouped(kernel, operands, schedule, symbol) : mismatch();
        case 'micro':
          return kernel.anchor === 'gemm' ? emitMicro(kernel, operands, schedule, symbol) : mismatch();
        default:
          return mismatch();
      }
    case 'attention':
      return schedule.kind === 'attention' ? emitAttention(kernel, operands, schedule, symbol) : mismatch();
    case 'loop':
      return schedule.kind === 'loop' ? emitLoop(kernel, operands, schedule, symbol) : mismatch();
    case 'sample':
      return schedule.kind === 'loop' ? emitSample(kernel, operands, schedule, symbol) : mismatch();
    case 'route':
      return schedule.kind === 'loop' ? emitRoute(kernel, operands, schedule, symbol) : mismatch();
    case 'sortByExpert':
      return schedule.kind === 'loop' ? emitArrange(kernel, operands, schedule, symbol) : mismatch();
    case 'shrink':
      return schedule.kind === 'loop' ? emitShrink(kernel, operands, schedule, symbol) : mismatch();
    case 'links':
      return schedule.kind === 'loop' ? emitLinks(kernel, operands, schedule, symbol) : mismatch();
    case 'scan':
      return schedule.kind === 'loop' ? emitScan(kernel, operands, schedule, symbol) : mismatch();
    case 'logprobReduce':
      return schedule.kind === 'loop' ? emitLogProbReduce(kernel, operands, schedule, symbol) : mismatch();
    default:
      return kernel satisfies never;
  }
}
