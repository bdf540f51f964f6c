/** A model compiled for a GPU. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import { cudaArithmetic, type CudaArithmetic, type Precision } from '../target.js';
import type { CompiledModel } from './target.js';

/** A GPU, and the number format that its tensor cores multiply. */
export interface CudaDevice extends CudaFacts {
  readonly arithmetic: CudaArithmetic;
}

export type CudaModel = CompiledModel<CudaSchedule, CudaDevice>;

/** A GPU as a plan's target, for a checkpoint stored in `stored`. Throws UsageError for what it cannot multiply. */
export const cudaDevice = (
  facts: CudaFacts,
  precision: Precision = 'auto',
  stored: 'f32' | 'bf16' | 'f16' = 'bf16',
): CudaDevice => ({
  ...facts,
  arithmetic: cudaArithmetic(precision, stored, facts.arch),
});
