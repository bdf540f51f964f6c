/** Kernels of attention that NVIDIA's compiler must keep in registers. CI compiles some, test/slow all. */
import { beforeAll, describe, expect, it } from 'vitest';
import { type AttentionLimits, isLegalAttention } from '../../../codegen/cuda/attention/schedules.js';
import type { CudaArch, CudaAttentionSchedule } from '../../../ir/cuda.js';
import { compileByNvcc, hasNvcc, type NvccReport } from '../../support/nvcc.js';
import { attentionModule, generate, type Shape } from './attentionHarness.js';

type Skeleton = CudaAttentionSchedule['skeleton'];
export const schedule = (skeleton: Skeleton, queries: number, keys = 32): CudaAttentionSchedule => ({
  kind: 'attention',
  skeleton,
  queries,
  keys,
});
export const SHAPE: Shape = { heads: 52, kvHeads: 52, headDim: 128, dtype: 'bf16' };
/** The shared memory that an H100 grants a block, and the least that every GPU does. */
export const HOPPER = { arch: 'sm_90a', sharedBytesPerBlock: 232_448 } as const;
export const LEAST = { arch: 'sm_80', sharedBytesPerBlock: 101_376 } as const;

export const legal = (s: Shape, plan: CudaAttentionSchedule, limits: AttentionLimits = HOPPER): true | string => {
  const { module, kernel } = attentionModule(s);
  return isLegalAttention(kernel, module, plan, limits);
};

type RegisterCase = readonly [shape: Shape, schedule: CudaAttentionSchedule, blocks: number];

/** A kernel, and how many of its blocks a multiprocessor should hold, by their registers. */
export const COMPILED: readonly RegisterCase[] = [
  [{ ...SHAPE, headDim: 64 }, schedule('mma', 64), 4],
  [{ ...SHAPE, dtype: 'f16' }, schedule('mma', 64), 3],
  [{ ...SHAPE, headDim: 48, hasQueryRow: true, out: 'f32' }, schedule('mma', 128), 2],
  [SHAPE, schedule('mma', 128), 1],
  [{ ...SHAPE, headDim: 256 }, schedule('mma', 64), 1],
  [SHAPE, schedule('simt', 16), 4],
  [{ ...SHAPE, headDim: 37, dtype: 'f32', mask: 'bias' }, schedule('simt', 32), 4],
  [{ ...SHAPE, mask: 'path' }, schedule('mma', 1), 2],
  [{ ...SHAPE, mask: 'path' }, { ...schedule('mma', 1), cluster: 8, teams: 2 }, 1],
  [{ ...SHAPE, mask: 'path' }, { ...schedule('mma', 1), lone: 8 }, 8],
  [{ ...SHAPE, heads: 16, kvHeads: 2, mask: 'path', hasQueryRow: true }, { ...schedule('mma', 1), lone: 8 }, 8],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, { ...schedule('mma', 1), cluster: 4 }, 2],
  [{ ...SHAPE, kvHeads: 13, mask: 'path', hasQueryRow: true }, { ...schedule('mma', 4), cluster: 4 }, 2],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, { ...schedule('mma', 8), cluster: 8 }, 1],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, { ...schedule('mma', 4), cluster: 8, teams: 2 }, 1],
  [{ ...SHAPE, heads: 32, kvHeads: 4, mask: 'path', window: 64 }, { ...schedule('mma', 4), cluster: 4, teams: 2 }, 1],
  [{ ...SHAPE, heads: 14, kvHeads: 2, mask: 'path', dtype: 'f16' }, { ...schedule('mma', 2), cluster: 2 }, 2],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, { ...schedule('mma', 4), lone: 6 }, 6],
  [{ ...SHAPE, kvHeads: 13, headDim: 64, mask: 'path', hasQueryRow: true }, { ...schedule('mma', 4), lone: 8 }, 8],
  [{ ...SHAPE, mask: 'path', cap: 30 }, { ...schedule('mma', 16), lone: 6 }, 6],
  [{ ...SHAPE, heads: 14, kvHeads: 2, mask: 'path', out: 'f32' }, { ...schedule('mma', 2), lone: 5 }, 5],
  [{ ...SHAPE, heads: 32, kvHeads: 2, headDim: 256, mask: 'path', hasQueryRow: true }, schedule('mma', 1), 1],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, schedule('mma', 4), 5],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, schedule('mma', 16), 2],
  [{ ...SHAPE, headDim: 64, kvHeads: 13, mask: 'path', hasQueryRow: true, out: 'f32' }, schedule('mma', 32), 2],
  [{ ...SHAPE, mask: 'path', out: 'f32' }, { ...schedule('mma', 64), sharesTiles: true }, 4],
  [{ ...SHAPE, mask: 'path' }, schedule('wgmma', 128), 1],
  [{ ...SHAPE, kvHeads: 13, mask: 'path' }, schedule('wgmma', 32), 1],
  [{ ...SHAPE, kvHeads: 13, mask: 'path', cap: 30 }, schedule('wgmma', 32), 1],
  [{ ...SHAPE, heads: 28, kvHeads: 4, mask: 'path', dtype: 'f16' }, schedule('mma', 16), 1],
  [{ ...SHAPE, headDim: 256, mask: 'path' }, schedule('mma', 16), 1],
  [{ ...SHAPE, headDim: 256, kvHeads: 13, mask: 'path' }, schedule('mma', 8), 1],
  [{ ...SHAPE, headDim: 80, dtype: 'f32', mask: 'path' }, schedule('simt', 16), 4],
];

/** Trees, and paths of a team in a cluster: test/slow/registers.test.ts has all. */
export const COMPILED_FIRST: readonly RegisterCase[] = [3, 17].map((at) => COMPILED[at]!);

/** Tests of what NVIDIA's compiler makes of them. */
export function testRegisters(cases: readonly RegisterCase[], archs: readonly CudaArch[]): void {
  describe.skipIf(!hasNvcc).each(archs)('attention compiled for %s', (arch) => {
    const facts: AttentionLimits = { ...HOPPER, arch };
    const compiled = cases.filter(([s, plan]) => legal(s, plan, facts) === true);
    const kernels = compiled.map(([s, plan]) => generate(s, plan, 7680));
    let reports: readonly NvccReport[];
    beforeAll(() => {
      reports = compileByNvcc(
        kernels.map(({ symbol, text }) => ({ symbol, source: text })),
        arch,
      );
    });

    it.each(compiled.map(([s, plan, blocks], i) => ({ s, plan, blocks, i })))(
      'spills nothing, or next to nothing: $s $plan',
      ({ plan, blocks, i }) => {
        const { registers, stackBytes, spillStores, spillLoads, staticBytes } = reports[i]!;
        // Warpgroup products leave no register to a few numbers between products: six at most.
        expect(spillStores + spillLoads).toBeLessThanOrEqual(plan.skeleton === 'wgmma' ? 100 : 0);
        if (plan.skeleton === 'wgmma') expect(stackBytes).toBeLessThanOrEqual(24);
        // Registers are granted to a warp in units of 256.
        expect(Math.ceil(registers / 8) * 8 * kernels[i]!.launch.threads * blocks).toBeLessThanOrEqual(65_536);
        // isLegalAttention relies on this.
        expect(staticBytes).toBeLessThanOrEqual({ mma: 2048 + 7680 / 4, wgmma: 12_288, simt: 1024 }[plan.skeleton]);
      },
    );
  });
}
