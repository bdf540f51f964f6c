/** A model compiled for a GPU. */
import type { CudaFacts } from '../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../ir/cuda.js';
import type { StoredFormats } from '../../passes/keepBlockWeights.js';
import { cudaArithmetic, type CudaArithmetic, type Precision } from '../target.js';
import type { CompiledModel } from './target.js';

/** A GPU, and the number format that its tensor cores multiply. */
export interface CudaDevice extends CudaFacts {
  readonly arithmetic: CudaArithmetic;
  /** Matrices whose codes of E4M3 are multiplied as they are stored, by tensor. Absent: none. */
  readonly codes?: readonly string[];
}

export type CudaModel = CompiledModel<CudaSchedule, CudaDevice>;

/**
 * A GPU as a plan's target, for a checkpoint stored in `stored`. Matrices that are `kept` in E4M3 are multiplied so
 * where the precision is left to the target, or is FP8. Throws UsageError for what it cannot multiply.
 */
export function cudaDevice(
  facts: CudaFacts,
  precision: Precision = 'auto',
  stored: 'f32' | 'bf16' | 'f16' = 'bf16',
  kept: StoredFormats = new Map(),
): CudaDevice {
  const arithmetic = cudaArithmetic(precision, stored, facts.arch);
  const isKept = facts.arch === 'sm_90a' && (precision === 'auto' || precision === 'fp8');
  const codes = isKept ? [...kept].flatMap(([name, format]) => (format === 'e4m3' ? [name] : [])) : [];
  return codes.length === 0 ? { ...facts, arithmetic } : { ...facts, arithmetic: 'fp8', codes };
}
