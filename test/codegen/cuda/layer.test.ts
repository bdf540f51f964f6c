/** Whole layers by generated CUDA text, run over fibres, against the float64 interpreter. */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import type { Kernel, KernelModule } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import type { LayerShape } from '../modules.js';
import { emulateModule } from './emulate.js';
import { cudaLayer } from './modules.js';

const FACTS = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;

const SHAPES: readonly (Omit<LayerShape, 'mode'> & { T: number; R: number })[] = [
  { hidden: 64, heads: 2, kvHeads: 2, headDim: 32, inter: 96, vocab: 600, width: 8, T: 70, R: 33 },
  { hidden: 144, heads: 3, kvHeads: 3, headDim: 48, inter: 200, vocab: 530, width: 8, T: 17, R: 20 },
  { hidden: 96, heads: 6, kvHeads: 2, headDim: 32, inter: 100, vocab: 513, width: 16, T: 40, R: 7 },
  { hidden: 50, heads: 1, kvHeads: 1, headDim: 50, inter: 35, vocab: 70, width: 1, T: 1, R: 1 },
];

/** Largest difference, relative to the largest value of the buffer. */
function error(got: Float64Array, want: Float64Array): number {
  let [most, scale] = [0, 1e-30];
  want.forEach((x, i) => {
    const d = Math.abs(got[i]! - x);
    most = Number.isNaN(d) ? Infinity : Math.max(most, d);
    scale = Math.max(scale, Math.abs(x));
  });
  return most / scale;
}

function check(shape: (typeof SHAPES)[number], seed: number, dtype: 'bf16' | 'f16', choose: (kernel: Kernel, module: KernelModule) => CudaSchedule): void {
  const sizes = { T: shape.T, R: shape.R };
  const { module, tensors, inputs } = cudaLayer(shape, sizes, seed, dtype);
  const schedules = module.kernels.map((kernel) => choose(kernel, module));
  module.kernels.forEach((kernel, i) => { expect(isLegalCuda(kernel, module, schedules[i]!, FACTS)).toBe(true); });
  const got = emulateModule(module, { sizes, inputs, tensors, schedules });
  const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
  for (const { name } of module.buffers) {
    if (name === 'isArgmax') expect([...got.values.get(name)!]).toEqual([...want.get(name)!]);
    else if (!name.startsWith('parts')) expect({ name, error: error(got.values.get(name)!, want.get(name)!) }).toSatisfy((x: { error: number }) => x.error < (dtype === 'bf16' ? 3e-2 : 4e-3));
  }
}

describe('a layer on CUDA cores', () => {
  it.each(SHAPES.map((shape, i) => ({ shape, i })))('agrees with float64: shape $i', ({ shape, i }) => {
    check(shape, 11 + i, i === 2 ? 'f16' : 'bf16', (kernel, module) => {
      const chosen = defaultCudaSchedule(kernel, module, FACTS, { tokens: shape.T, rows: shape.R, longest: shape.T });
      return chosen.kind === 'gemm' ? defaultSimt(kernel, module, shape.T) : chosen;
    });
  }, 240_000);
});

function defaultSimt(kernel: Kernel, module: KernelModule, tokens: number): CudaSchedule {
  for (const tn of [64, 96, 32, 800]) {
    const schedule: CudaSchedule = { kind: 'gemm', skeleton: 'simt', tm: tokens > 20 ? 32 : 16, tn, tk: 16, stages: 1, cluster: 1, raster: 1, mode: 'cooperative' };
    if (isLegalCuda(kernel, module, schedule, FACTS) === true) return schedule;
  }
  return defaultCudaSchedule(kernel, module, FACTS, { tokens, rows: tokens, longest: tokens });
}
