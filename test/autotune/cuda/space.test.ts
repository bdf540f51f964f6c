/** The schedules that the tuner tries for a kernel on a GPU, and the estimates that rank them. */
import { scoringBucket } from '../../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import { CudaSpace, referenceSchedule } from '../../../autotune/cuda/candidates.js';
import { cudaCost } from '../../../autotune/cuda/costModel.js';
import { contractionOf } from '../../../autotune/cuda/rival.js';
import { cudaScheduling } from '../../../codegen/cuda/scheduling.js';
import { defaultCudaSchedule, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import { cudaNumerics } from '../../../driver/target.js';
import { kernelAt } from '../fixture.js';
import { cudaModule, FACTS, MACHINE, WIDE } from './fixture.js';

const wide = cudaModule(WIDE);
const LARGE = scoringBucket({ tokens: 3840, rows: 3840, longest: 256 });

describe('the space of a kernel', () => {
  it("holds only legal schedules of the default's skeleton, each once, and steps within itself", () => {
    for (const path of ['layers.0.attention.qkv', 'layers.0.ffn.down', 'layers.0.attention.mix', 'prepare', 'head']) {
      const kernel = kernelAt(wide, path);
      const start = defaultCudaSchedule(kernel, wide, FACTS, LARGE);
      const space = new CudaSpace(kernel, wide, FACTS);
      const all = space.enumerate(start);
      expect(all.length).toBeGreaterThan(0);
      expect(new Set(all.map(cudaScheduling.key)).size).toBe(all.length);
      for (const schedule of [...all.slice(0, 40), ...space.neighbours(start)]) {
        expect(isLegalCuda(kernel, wide, schedule, FACTS)).toBe(true);
        expect('skeleton' in schedule ? schedule.skeleton : 'loop').toBe('skeleton' in start ? start.skeleton : 'loop');
      }
      expect(space.neighbours(start).map(cudaScheduling.key)).not.toContain(cudaScheduling.key(start));
      const reference = referenceSchedule(kernel, wide, FACTS, start);
      expect(isLegalCuda(kernel, wide, reference, FACTS)).toBe(true);
      expect('skeleton' in reference ? reference.skeleton : 'loop').toBe('skeleton' in start ? 'simt' : 'loop');
    }
  });
});

describe('products of E4M3', () => {
  it('start with cooperative tiles or ping-pong, because deferred epilogues are late', () => {
    const narrow = cudaModule(WIDE, cudaNumerics('fp8'));
    for (const path of ['layers.0.attention.qkv', 'layers.0.attention.o', 'layers.0.ffn.down']) {
      const kernel = kernelAt(narrow, path);
      for (const rows of [3840, 8448]) {
        const bucket = scoringBucket({ tokens: rows, rows, longest: 256 });
        const start = defaultCudaSchedule(kernel, narrow, FACTS, bucket) as CudaGemmSchedule;
        expect(['cooperative', 'pingpong']).toContain(start.mode);
        expect(start).toMatchObject({ skeleton: 'wgmma', tm: 128, tk: 128 });
        const cost = cudaCost(kernel, narrow, bucket, MACHINE);
        const deferred = { ...start, tn: 256, mode: 'deferred', stages: 3 } as const;
        expect(cost({ ...start, tn: 256, mode: 'cooperative', stages: 4 })).toBeLessThan(cost(deferred));
        expect(cost({ ...start, tn: 192, mode: 'pingpong', stages: 5 })).toBeLessThan(cost(deferred));
      }
    }
  });
});

describe('estimates', () => {
  const gemm = (tn: number): CudaSchedule => ({
    kind: 'gemm',
    skeleton: 'wgmma',
    tm: 128,
    tn,
    tk: 64,
    stages: 4,
    cluster: 2,
    raster: 16,
    mode: 'pingpong',
  });

  it('count whole waves: at 1,920 tokens, narrower column tiles fill the last wave of the output projection', () => {
    const cost = cudaCost(
      kernelAt(wide, 'layers.0.attention.o'),
      wide,
      { extents: { T: 1920, R: 1920 }, longest: 256 },
      MACHINE,
    );
    // 15 row tiles (16 in clusters) × 26 column tiles of 256 make 4 waves of 132 blocks; × 35 of 192 make 5 waves, each
    // three quarters as long.
    expect(cost(gemm(192))).toBeLessThan(cost(gemm(256)));
  });

  it('never exceed the peak of the device, and grow with the micro-batch', () => {
    for (const kernel of wide.kernels.slice(0, 8)) {
      let before = 0;
      for (const T of [128, 1024, 4096]) {
        const schedule = defaultCudaSchedule(kernel, wide, FACTS, scoringBucket({ tokens: T, rows: T, longest: 256 }));
        const seconds = cudaCost(kernel, wide, { extents: { T, R: T }, longest: 256 }, MACHINE)(schedule);
        expect(seconds).toBeGreaterThan(before);
        before = seconds;
        if (kernel.anchor === 'gemm') {
          const { m, n, k } = contractionOf(kernel, wide, scoringBucket({ tokens: T, rows: T, longest: 256 }))!;
          expect((2 * m * n * k) / seconds).toBeLessThan(MACHINE.flopsPerSecond);
        }
      }
    }
  });
});
