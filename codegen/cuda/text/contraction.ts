/** The common parts of kernels with a contraction: a left operand, packed weights, and row programs. */
import type { ExpertRows, GemmKernel, LogProbKernel, Segment } from '../../../ir/kernel.js';
import { oncePer } from '../../../ir/oncePer.js';
import type { Scalar } from '../../../ir/scalar.js';
import { programsOf } from './rowPrologue.js';

export type Contraction = GemmKernel | LogProbKernel;

/** Segments of a contraction. The vocabulary contraction has one segment without outputs. */
export const segmentsOf = (kernel: Contraction): readonly Segment[] =>
  kernel.anchor === 'gemm' ? kernel.segments : vocabularyOf(kernel);

const vocabularyOf = oncePer((kernel: LogProbKernel): readonly Segment[] => [
  { weight: kernel.weight, columns: kernel.vocab, pairing: { kind: 'none' }, outputs: [] },
]);

/** Whether the kernel reads what it has written: its rows, once they are complete. */
export const finishesRows = (kernel: Contraction): boolean => kernel.anchor === 'gemm' && kernel.finish !== undefined;

/** Programs whose row values an epilogue keeps: the argument of rowPrologue. */
export const rowProgramsOf = (kernel: Contraction): readonly Scalar[] =>
  kernel.anchor === 'gemm' ? programsOf(kernel.segments) : [kernel.rowScale];

/** The experts whose matrices its rows are multiplied by. */
export const expertsOf = (kernel: Contraction): ExpertRows | undefined =>
  kernel.anchor === 'gemm' ? kernel.experts : undefined;
