/** Attention run on fibres, beside float64. */
import { expect } from 'vitest';
import type { CudaAttentionSchedule } from '../../../ir/cuda.js';
import { label, reference, tolerance } from './attentionCases.js';
import { type AttentionData, emulate, type Shape } from './attentionHarness.js';

/** What a kernel gives, once it is found near float64. */
export function emulateClose(
  s: Shape,
  data: AttentionData,
  plan: CudaAttentionSchedule,
  options: Parameters<typeof emulate>[3],
): Float64Array {
  const { out, buffers } = emulate(s, plan, data, options);
  const want = reference(s, data, buffers);
  const limit = tolerance(s, plan);
  out.forEach((x, i) => {
    if (!(Math.abs(x - want[i]!) < limit)) expect.fail(`${label(s, plan)}: element ${i} is ${x}, not ${want[i]!}`);
  });
  return out;
}
