/** A kernel that is not launched: another computes what it would, or nobody reads it. */
import type { Kernel } from '../../../ir/kernel.js';
import { type CudaOperands, type EmittedCuda, emittedPlain, kernelHead } from './operands.js';
import { aboutKernel, unitText } from './unit.js';

export function emitIdle(kernel: Kernel, operands: CudaOperands, threads: number, symbol: string): EmittedCuda {
  const { extents } = operands;
  const source = unitText({
    about: aboutKernel(kernel, 'left to the product beside it, or to nobody'),
    includes: ['lib/elements.cuh'],
    functors: [],
    head: kernelHead({ symbol, extents, operands, tensorMaps: [], threads }),
    body: '',
  });
  return emittedPlain(source, threads, { kind: 'constant', count: 0 });
}
