/**
 * Norms of heads in epilogues: on fibres all skeletons and tiles give the same bits, and those of the float64
 * interpreter within rounding; which tiles are legal; what NVIDIA's compiler makes of the defaults.
 */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { TYPICAL_FACTS } from '../../../driver/targets/cudaDevice.js';
import { CUDA_ARCHS, type CudaArch, type CudaGemmSchedule } from '../../../ir/cuda.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { verifyKernels } from '../../../ir/verifyKernel.js';
import { distance } from '../../passes/support.js';
import { expectSame } from '../../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { casesHere, isThorough } from '../../support/thorough.js';
import { emulateModule } from './emulate.js';
import { normedQkv, type NormedShape } from './normedHeads.js';

const H100 = TYPICAL_FACTS.sm_90a;
const GEMM = { kind: 'gemm', cluster: 1, raster: 1, mode: 'cooperative' } as const;
const SIMT: CudaGemmSchedule = { ...GEMM, skeleton: 'simt', tm: 16, tn: 96, tk: 32, stages: 1 };
const MMA: CudaGemmSchedule = { ...GEMM, skeleton: 'mma', tm: 32, tn: 96, tk: 32, stages: 3 };
const WGMMA: CudaGemmSchedule = { ...GEMM, skeleton: 'wgmma', tm: 128, tn: 96, tk: 64, stages: 3 };
const SKINNY: CudaGemmSchedule = { ...GEMM, skeleton: 'skinny', tm: 16, tn: 96, tk: 64, stages: 4 };

/** Values that are exact in 16 bits, and whose products are added up exactly in any order. */
const numbers = (count: number, seed: number): Float64Array =>
  Float64Array.from({ length: count }, (_, i) => (((i * 7919 + seed * 104_729) % 257) - 128) / 64);

const ROWS = 20;
const SHAPE: NormedShape = { hidden: 80, headDim: 48, heads: 3, kvHeads: 2 };

/** Made-up rows and weights, and what the kernel computes of them under a schedule. */
function normedRuns(shape: NormedShape, options: { readonly unrotated: boolean; readonly biased: boolean }) {
  const { module, kernel } = normedQkv(shape, options);
  verifyKernels(module);
  const inputs = new Map(
    module.buffers.map(({ name, rows, columns }, i): [string, Float64Array] => {
      const values = numbers((typeof rows === 'string' ? ROWS : rows) * Number(columns), i);
      return [name, name === 'parts' ? values.map(Math.abs) : values];
    }),
  );
  const tensors = new Map(
    kernel.segments.map(({ weight, columns }, i) => [
      `${weight}Rows`,
      { rows: columns, columns: kernel.k, data: numbers(columns * kernel.k, 11 + i) },
    ]),
  );
  const sizes = { T: ROWS, R: 1 };
  const run = (schedule: CudaGemmSchedule): ReadonlyMap<string, Float64Array> => {
    expect(isLegalCuda(kernel, module, schedule, H100)).toBe(true);
    return emulateModule(module, { sizes, inputs, tensors, schedules: [schedule] }).values;
  };
  return { module, inputs, tensors, sizes, run };
}

describe.each(casesHere([true, false], 0))('heads normed in epilogues, keys unrotated: %s', (unrotated) => {
  const { module, inputs, tensors, sizes, run } = normedRuns(SHAPE, { unrotated, biased: true });
  const simt = run(SIMT);

  it('are what the interpreter computes', () => {
    const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
    for (const name of ['q', 'k', 'v']) expect(distance(want.get(name)!, simt.get(name)!), name).toBeLessThan(0.02);
  });

  const others = [
    ['mma', MMA],
    ['wgmma', WGMMA],
    ['few rows', SKINNY],
    ['few rows on Hopper', { ...SKINNY, skeleton: 'skinnyWgmma', tm: 8 }],
    ['wgmma, deferred', { ...WGMMA, mode: 'deferred', tn: 192 }],
    ['wgmma, ping-pong', { ...WGMMA, mode: 'pingpong', tm: 64, tn: 144 }],
    ['mma of wide tiles', { ...MMA, tm: 64, tn: 192 }],
  ] as const;
  it.each(casesHere<(typeof others)[number]>(others))('have the same bits by %s', (_, schedule) => {
    for (const [name, values] of run(schedule)) expectSame(values, simt.get(name)!, name);
  });
});

describe('heads that blocks of a cluster share', () => {
  const { run } = normedRuns({ hidden: 80, headDim: 64, heads: 3, kvHeads: 2 }, { unrotated: false, biased: true });
  const WHOLE: CudaGemmSchedule = { ...SKINNY, skeleton: 'skinnyWgmma', tm: 8, tn: 64 };
  const whole = run(WHOLE);

  const shared = [
    [2, { ...WHOLE, tn: 32, parts: 2 }],
    [4, { ...WHOLE, tm: 16, tn: 16, parts: 4 }],
  ] as const;
  it.each(casesHere<(typeof shared)[number]>(shared, 0))('have the bits of whole tiles: %i blocks', (_, schedule) => {
    for (const [name, values] of run(schedule)) expectSame(values, whole.get(name)!, name);
  });
});

const EIGHT_BILLION = { hidden: 4096, headDim: 128, heads: 32, kvHeads: 8 };
const WIDE_HEADS = { hidden: 3840, headDim: 256, heads: 16, kvHeads: 8 };

describe('tiles of normed heads', () => {
  const chosen = (shape: NormedShape, arch: CudaArch, rows: number): CudaGemmSchedule => {
    const { kernel, module } = normedQkv(shape);
    const bucket = scoringBucket({ tokens: rows, rows, longest: rows });
    return defaultCudaSchedule(kernel, module, TYPICAL_FACTS[arch], bucket) as CudaGemmSchedule;
  };

  it('are whole heads in every skeleton', () => {
    const { kernel, module } = normedQkv(EIGHT_BILLION);
    for (const each of [SIMT, MMA, WGMMA, SKINNY, { ...SKINNY, skeleton: 'skinnyWgmma' } as const]) {
      expect(isLegalCuda(kernel, module, { ...each, tn: 192 }, H100)).toMatch(/multiple of 128/);
      expect(isLegalCuda(kernel, module, { ...each, tn: 128 }, H100)).toBe(true);
    }
  });

  it('are shared by whole clusters, on Hopper alone', () => {
    const { kernel, module } = normedQkv(EIGHT_BILLION);
    const verdict = (changes: Partial<CudaGemmSchedule>): true | string =>
      isLegalCuda(kernel, module, { ...SKINNY, skeleton: 'skinnyWgmma', tn: 64, parts: 2, ...changes }, H100);
    expect(verdict({})).toBe(true);
    expect(verdict({ tn: 32 })).toMatch(/2 tiles of 32 columns are no whole groups/);
    expect(verdict({ tn: 48, parts: 8 })).toMatch(/no whole groups/);
    expect(verdict({ cluster: 2, tm: 16 })).toMatch(/no other cluster/);
    expect(verdict({ skeleton: 'skinny' })).toMatch(/skinny has whole groups/);
  });

  it('are parts by default where whole heads would leave multiprocessors idle', () => {
    expect(chosen(EIGHT_BILLION, 'sm_90a', 1)).toMatchObject({ tn: 64, parts: 2 });
    expect(chosen(WIDE_HEADS, 'sm_90a', 64)).toMatchObject({ tn: 64, parts: 4 });
    expect(chosen({ ...EIGHT_BILLION, heads: 96 }, 'sm_90a', 1)).not.toHaveProperty('parts');
  });

  it('are on tensor cores by default, whatever the rows', () => {
    for (const shape of [EIGHT_BILLION, WIDE_HEADS])
      for (const rows of [1, 64, 300, 8448]) {
        expect(chosen(shape, 'sm_80', rows).skeleton).toBe(rows <= 64 ? 'skinny' : 'mma');
        expect(chosen(shape, 'sm_90a', rows).skeleton).toBe(rows <= 64 ? 'skinnyWgmma' : 'wgmma');
      }
  });

  it.skipIf(!hasNvcc || !isThorough).each(CUDA_ARCHS)('leave the registers that there are, %s', (arch) => {
    const texts = [EIGHT_BILLION, WIDE_HEADS].flatMap((shape) => {
      const { kernel, module } = normedQkv(shape);
      return [1, 16, 64, 300, 1024, 8448].map((rows) =>
        emitCudaKernel(kernel, module, chosen(shape, arch, rows), { T: 8448, R: 8448 }),
      );
    });
    for (const { log, spillStores } of compileByNvcc(texts, arch)) {
      expect(log).not.toMatch(/C75\d\d|serialized/);
      expect(spillStores).toBe(0);
    }
  });
});
