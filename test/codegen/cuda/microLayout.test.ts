/** Default tiles of products of experts with microscaled weights: how blocks share a multiprocessor. */
import { describe, expect, it } from 'vitest';
import { microSharedBytes } from '../../../codegen/cuda/micro/layout.js';
import { defaultCudaSchedule } from '../../../codegen/cuda/index.js';
import { type CudaGemmSchedule, MULTIPROCESSOR_BYTES, RESERVED_BYTES } from '../../../ir/cuda.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import { microCase } from './microCases.js';

describe('one token of a model of 20 billion parameters', () => {
  const { module, products } = microCase({});
  const bytes = products.map((kernel) => {
    const bucket = scoringBucket({ tokens: 1, rows: 1, longest: 1 });
    const schedule = defaultCudaSchedule(kernel, module, TYPICAL_FACTS.sm_90a, bucket) as CudaGemmSchedule;
    return microSharedBytes(schedule, kernel.segments) + RESERVED_BYTES;
  });

  it('never has two blocks of gate and up on a multiprocessor', () => {
    expect(2 * bytes[0]!).toBeGreaterThan(MULTIPROCESSOR_BYTES);
  });

  it('has blocks of down beside them, which read their weights meanwhile', () => {
    expect(bytes[0]! + bytes[1]!).toBeLessThanOrEqual(MULTIPROCESSOR_BYTES);
  });
});
