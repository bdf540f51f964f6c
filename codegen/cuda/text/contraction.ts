/** What the kernels with a contraction have in common: a left operand, packed weights, programs of a row. */
import type { GemmKernel, LogProbKernel, Segment } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { programsOf } from './programs.js';

export type Contraction = GemmKernel | LogProbKernel;

/** Segments of a contraction; the vocabulary is one without outputs. */
export const segmentsOf = (kernel: Contraction): readonly Segment[] =>
  kernel.anchor === 'gemm'
    ? kernel.segments
    : [{ weight: kernel.weight, columns: kernel.vocab, pairing: { kind: 'none' }, outputs: [] }];

/** Programs whose row values an epilogue keeps: the argument of rowPrologue. */
export const rowProgramsOf = (kernel: Contraction): readonly Scalar[] =>
  kernel.anchor === 'gemm' ? programsOf(kernel.segments) : [kernel.rowScale];
