/** Shapes of attention over paths whose bits are compared, and the schedules that may not change them. */
import { attentionSchedules } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { attentionModule, type Shape } from './attentionHarness.js';

export const pathShape = (
  heads: number,
  kvHeads: number,
  headDim: number,
  dtype: Shape['dtype'],
  out?: Shape['out'],
): Shape => ({
  heads,
  kvHeads,
  headDim,
  dtype,
  ...(out === undefined ? {} : { out }),
  mask: 'path',
});

/** Tensor cores with queries in registers and without, and CUDA cores. */
export const BITS: readonly Shape[] = [
  pathShape(4, 1, 32, 'bf16', 'f32'),
  pathShape(2, 2, 80, 'f16', 'f32'),
  pathShape(2, 1, 24, 'f32'),
  { ...pathShape(4, 1, 32, 'bf16', 'f32'), cap: 3 },
];
/** For paths of several chunks. */
export const LONG = pathShape(2, 1, 16, 'bf16', 'f32');

const HOPPER = { arch: 'sm_90a', sharedBytesPerBlock: 232_448 } as const;

/** Every legal schedule of the shape's skeleton. */
export function schedulesOf(s: Shape): readonly CudaAttentionSchedule[] {
  const { module, kernel } = attentionModule(s);
  const skeleton = s.dtype === 'f32' ? 'simt' : 'mma';
  return attentionSchedules(kernel, module, HOPPER).filter((each) => each.skeleton === skeleton);
}

/** Few of them, the first among them: each must be compiled. The slow tests take all. */
export const sampleOf = (schedules: readonly CudaAttentionSchedule[]): readonly CudaAttentionSchedule[] =>
  schedules.filter((_, i) => i % Math.ceil(schedules.length / 4) === 0);
