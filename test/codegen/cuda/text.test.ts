/** The text of generated CUDA: goldens, symbols, legality and defaults. */
import { scoringBucket } from '../../../ir/scoring.js';
import { describe, expect, it } from 'vitest';
import {
  cudaTemplatesHash,
  defaultCudaSchedule,
  emitCudaKernel,
  isLegalCuda,
  kernelSignature,
} from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import { sampleModule } from '../sampleModule.js';
import { cudaLayer } from './modules.js';
import { expectGolden } from './golden.js';

const SHAPE = { hidden: 64, heads: 2, kvHeads: 1, headDim: 32, inter: 96, vocab: 600, width: 8 } as const;
const MODULE = cudaLayer(SHAPE, { T: 4, R: 2 }, 1).module;
const FACTS = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;
const GEMM: CudaGemmSchedule = {
  kind: 'gemm',
  skeleton: 'mma',
  tm: 64,
  tn: 64,
  tk: 32,
  stages: 3,
  cluster: 1,
  raster: 4,
  mode: 'cooperative',
};
const SIMT: CudaGemmSchedule = { ...GEMM, skeleton: 'simt', tm: 32, stages: 1 };

function kernelNamed(module: KernelModule, name: string): Kernel {
  const kernel = module.kernels.find((k) => k.name === name);
  if (kernel === undefined) throw new Error(`no kernel ${name}`);
  return kernel;
}

const GOLDENS: readonly { file: string; kernel: string; schedule: CudaSchedule }[] = [
  { file: 'qkvSimt', kernel: 'qkv', schedule: SIMT },
  { file: 'gateUpMma', kernel: 'gate_up', schedule: GEMM },
  { file: 'headMma', kernel: 'head_logprob', schedule: GEMM },
  { file: 'headSimt', kernel: 'head_logprob', schedule: SIMT },
  {
    file: 'attentionSimt',
    kernel: 'attention',
    schedule: { kind: 'attention', skeleton: 'simt', queries: 16, keys: 32 },
  },
  { file: 'embedLoop', kernel: 'embed_tokens', schedule: { kind: 'loop', threads: 128 } },
  { file: 'rotaryLoop', kernel: 'rotary', schedule: { kind: 'loop', threads: 128 } },
  { file: 'reduceLoop', kernel: 'reduce', schedule: { kind: 'loop', threads: 128 } },
];

it('has no schedule for a matrix of one column, whose rows have no zeros behind them', () => {
  const { module } = cudaLayer({ ...SHAPE, inter: 1 }, { T: 4, R: 2 }, 1);
  const down = module.kernels.find((kernel) => kernel.anchor === 'gemm' && kernel.k === 1)!;
  const bucket = scoringBucket({ tokens: 128, rows: 128, longest: 128 });
  expect(() => defaultCudaSchedule(down, module, FACTS, bucket)).toThrow('its matrix has one column');
});

describe('generated CUDA', () => {
  it.each(GOLDENS)('is golden $file', async ({ file, kernel, schedule }) => {
    const found = kernelNamed(MODULE, kernel);
    expect(isLegalCuda(found, MODULE, schedule, FACTS)).toBe(true);
    await expectGolden(emitCudaKernel(found, MODULE, schedule, { T: 128, R: 128 }).source, file);
  });

  it('is golden sample', async () => {
    const module = sampleModule(32_000);
    const capacity = Object.fromEntries(module.interface.extents.map(({ name }) => [name, 64]));
    const schedule = { kind: 'loop', threads: 256 } as const;
    await expectGolden(emitCudaKernel(module.kernels[0]!, module, schedule, capacity).source, 'sample');
  });

  it('has the signature that launches rely on', () => {
    for (const kernel of MODULE.kernels) {
      const schedule = defaultCudaSchedule(kernel, MODULE, FACTS, scoringBucket({ tokens: 64, rows: 32, longest: 64 }));
      const { symbol, source, parameters } = emitCudaKernel(kernel, MODULE, schedule, { T: 128, R: 128 });
      expect(symbol).toMatch(/^k_(gemm|attention|logprob|logprobreduce|loop)_[0-9a-f]{16}_[0-9a-f]{8}$/);
      const pointers = parameters.map(() => '[a-z0-9]+ \\*__restrict__ \\w+').join(',\\s*');
      expect(source).toMatch(
        new RegExp(
          `extern "C" __global__ void __launch_bounds__\\(\\d+, \\d\\)\\s${symbol}\\(\\s*int T,\\s*int R,\\s*` +
            `${pointers}\\) \\{`,
        ),
      );
    }
  });

  it('is the same for the same kernel of another layer', () => {
    const rename = (text: string): string => text.replace(/"(h1|h2|gated|wd|ssq2)"/g, '"layer7_$1"');
    const other = JSON.parse(rename(JSON.stringify(MODULE))) as KernelModule;
    expect(emitCudaKernel(kernelNamed(other, 'down'), other, GEMM, { T: 128, R: 128 }).source).toBe(
      emitCudaKernel(kernelNamed(MODULE, 'down'), MODULE, GEMM, { T: 128, R: 128 }).source,
    );
    expect(kernelSignature(kernelNamed(other, 'down'), other, { T: 128, R: 128 })).toBe(
      kernelSignature(kernelNamed(MODULE, 'down'), MODULE, { T: 128, R: 128 }),
    );
  });

  it('refuses a schedule of another kind', () => {
    expect(() => emitCudaKernel(kernelNamed(MODULE, 'rotary'), MODULE, GEMM, { T: 128, R: 128 })).toThrow(
      /schedule is for gemm/,
    );
  });

  it('comes from templates with a digest', () => {
    expect(cudaTemplatesHash()).toMatch(/^[0-9a-f]{16}$/);
  });
});

describe('isLegalCuda', () => {
  const narrow = cudaLayer({ ...SHAPE, width: 4 }, { T: 4, R: 2 }, 1).module;
  const f16 = {
    ...MODULE,
    buffers: MODULE.buffers.map((b) => (b.name === 'gated' ? { ...b, dtype: 'f16' as const } : b)),
  };
  const panels: KernelModule = {
    ...MODULE,
    weights: MODULE.weights.map((w) => (w.layout === 'kmajor' ? { ...w, layout: 'panels' } : w)),
  };
  it.each([
    ['a schedule of another kind', MODULE, 'attention', GEMM, /attention schedule/],
    ['weights in panels', panels, 'down', GEMM, /cannot read/],
    ['operands of two dtypes', f16, 'down', GEMM, /one dtype/],
    ['narrow pairs on tensor cores', narrow, 'qkv', GEMM, /width 4/],
    [
      'half a head on CUDA cores',
      cudaLayer({ ...SHAPE, headDim: 48 }, { T: 4, R: 2 }, 1).module,
      'qkv',
      SIMT,
      /multiple of 96/,
    ],
    ['part of a vocabulary block', MODULE, 'head_logprob', { ...GEMM, tn: 96 }, /must divide 256/],
    ['too much shared memory', MODULE, 'down', { ...GEMM, tm: 256, tn: 256, tk: 64, stages: 4 }, /shared memory/],
    ['too many warps', MODULE, 'down', { ...GEMM, tm: 256, tn: 192, stages: 2 }, /24 warps/],
    ['a ragged tile', MODULE, 'down', { ...GEMM, tn: 40 }, /multiples of 16/],
    ['one stage', MODULE, 'down', { ...GEMM, stages: 1 }, /stages/],
    ['clusters without wgmma', MODULE, 'down', { ...GEMM, cluster: 2 }, /wgmma/],
    ['a warp and a half', MODULE, 'rotary', { kind: 'loop', threads: 48 }, /multiple of 32/],
  ] as const)('refuses %s', (_what, module, kernel, schedule, reason) => {
    expect(isLegalCuda(kernelNamed(module, kernel), module, schedule, FACTS)).toMatch(reason);
  });

  it.each(['sm_80', 'sm_90a'] as const)('accepts every default on %s', (arch) => {
    const facts = { ...FACTS, arch };
    for (const shape of [
      SHAPE,
      { ...SHAPE, headDim: 48 },
      { ...SHAPE, headDim: 50, width: 1, hidden: 50, inter: 35 },
      { ...SHAPE, headDim: 128, width: 16 },
    ]) {
      const { module } = cudaLayer(shape, { T: 4, R: 2 }, 1);
      for (const tokens of [1, 32, 300, 4096]) {
        for (const kernel of module.kernels) {
          expect(
            isLegalCuda(
              kernel,
              module,
              defaultCudaSchedule(kernel, module, facts, scoringBucket({ tokens, rows: tokens, longest: tokens })),
              facts,
            ),
          ).toBe(true);
        }
      }
    }
  });
});
