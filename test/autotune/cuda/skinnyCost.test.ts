/** Estimates of contractions of few rows: memory decides, as long as enough bytes are in flight. */
import { expect, it } from 'vitest';
import { CudaSpace } from '../../../autotune/cuda/candidates.js';
import { cudaCost } from '../../../autotune/cuda/costModel.js';
import { sizeOf } from '../../../autotune/work.js';
import { defaultCudaSchedule } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../../ir/cuda.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { layerGemm } from '../../codegen/cuda/wgmmaKernels.js';

const H100 = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const MACHINE = {
  multiprocessors: 132,
  flopsPerSecond: 9.5e14,
  bytesPerSecond: 3e12,
  sharedBytesPerMultiprocessor: 233_472,
};
const { kernel, module } = layerGemm('o', 4096, 14_336);
const BUCKET = scoringBucket({ tokens: 1, rows: 1, longest: 1 });
const cost = cudaCost(kernel, module, sizeOf(BUCKET), MACHINE);
const start = defaultCudaSchedule(kernel, module, H100, BUCKET);
const skinny = (changes: Partial<CudaGemmSchedule>): number => {
  if (start.kind !== 'gemm' || start.skeleton !== 'skinnyWgmma') throw new Error('the default is not skinny');
  return cost({ ...start, ...changes });
};

it('is the time of memory for the default, and launching it', () => {
  const memory = (4096 * 4096 * 2) / MACHINE.bytesPerSecond;
  expect(skinny({})).toBeGreaterThan(memory);
  expect(skinny({})).toBeLessThan(2 * memory);
});

it('grows where few bytes are in flight, and where tiles run one after another', () => {
  expect(skinny({ tn: 32, tk: 64, stages: 3 })).toBeGreaterThan(1.3 * skinny({}));
  expect(skinny({ tn: 256 })).toBeGreaterThan(1.3 * skinny({}));
});

it('ranks legal candidates of the same skeleton, the default not far from the first', () => {
  const list = new CudaSpace(kernel, module, H100).enumerate(start);
  expect(list.length).toBeGreaterThan(20);
  for (const schedule of list) expect(schedule).toMatchObject({ skeleton: 'skinnyWgmma' });
  expect(skinny({})).toBeLessThan(1.1 * Math.min(...list.map(cost)));
});
