/** How generated CUDA names memory: C types, base pointers of buffers, kernel heads; and what a generator returns. */
import type { CudaKernelText, GridExtent, TensorMapDecl } from '../../../ir/cuda.js';
import type { BufferDType } from '../../../ir/types.js';
import type { Operand } from '../../operands.js';
import { KernelOperands } from '../../operands.js';

export type { Operand } from '../../operands.js';
export { leastCommonMultiple, matricesOf, physicalColumns } from '../../operands.js';

/** 16-bit floats are stored as bits, because NVRTC has no built-in header that declares their types. */
export const CUDA_TYPES: Readonly<Record<BufferDType, string>> = {
  f32: 'float',
  bf16: 'unsigned short',
  f16: 'unsigned short',
  e4m3: 'unsigned char',
  i8: 'signed char',
  i32: 'int',
  bool: 'unsigned char',
  u8: 'unsigned char',
};

/** The names of a module as operands of one kernel. An operand's index is that of the parameter `p<index>`. */
export class CudaOperands extends KernelOperands {
  /** C expression of a buffer's base pointer. */
  base(operand: Operand): string {
    return `((${CUDA_TYPES[operand.dtype]} *)p${operand.index})`;
  }
}

/** A kernel's text without the prelude, how to launch it, and whether it waits for the kernel before it. */
export type EmittedCuda = Pick<CudaKernelText, 'source' | 'tensorMaps' | 'launch' | 'waitsForPredecessor'>;

/** A kernel of blocks side by side, `lines` of them, that needs no dynamic shared memory. */
export const emittedPlain = (source: string, threads: number, gridX: GridExtent, lines = 1): EmittedCuda => ({
  source,
  tensorMaps: [],
  waitsForPredecessor: true,
  launch: { threads, sharedBytes: 0, cluster: 1, gridX, gridY: { kind: 'constant', count: lines } },
});

export interface KernelHead {
  readonly symbol: string;
  readonly extents: readonly string[];
  /** Buffers and weights. */
  readonly parameters: number;
  readonly tensorMaps: readonly TensorMapDecl[];
  readonly threads: number;
  /** Number of blocks that must be able to share a multiprocessor's registers; 1 by default. */
  readonly blocks?: number;
  /**
   * Whether pointers are declared __restrict__: no two parameters that a kernel writes overlap, and it reads nothing
   * that it writes. True by default. The compiler may then move loads before stores.
   */
  readonly isRestrict?: boolean;
}

/** The head of a generated kernel up to its opening brace, with the signature that CudaKernelText describes. */
export function kernelHead({
  symbol,
  extents,
  parameters,
  tensorMaps,
  threads,
  blocks = 1,
  isRestrict = true,
}: KernelHead): string {
  const sizes = extents.map((name) => `int ${name}`);
  const pointers = Array.from({ length: parameters }, (_, i) => `void *${isRestrict ? '__restrict__ ' : ''}p${i}`);
  const maps = tensorMaps.map((_, i) => `const __grid_constant__ tw_map m${i}`);
  const list = [...sizes, ...pointers, ...maps].join(', ');
  return `extern "C" __global__ void __launch_bounds__(${threads}, ${blocks}) ${symbol}(${list}) {\n`;
}
