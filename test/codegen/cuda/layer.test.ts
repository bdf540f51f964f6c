/** Whole layers of generated CUDA text, run over fibres and compared with the float64 interpreter. */
import { describe, expect, it } from 'vitest';
import { defaultCudaSchedule, isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaSchedule } from '../../../ir/cuda.js';
import { type Kernel, type KernelModule, LOGPROB_BLOCK } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { scoringBucket } from '../../../ir/scoring.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere, thorough } from '../../support/thorough.js';
import type { LayerShape } from '../modules.js';
import { emulateModule } from './emulate.js';
import { cudaLayer } from './modules.js';

const FACTS = { arch: 'sm_80', sharedBytesPerBlock: 166_912, multiprocessors: 108 } as const;

const SHAPES: readonly (Omit<LayerShape, 'mode'> & { T: number; R: number })[] = [
  { hidden: 64, heads: 2, kvHeads: 2, headDim: 32, inter: 96, vocab: 1030, width: 8, T: 70, R: 33 },
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

function check(
  shape: (typeof SHAPES)[number],
  seed: number,
  dtype: 'bf16' | 'f16',
  choose: (kernel: Kernel, module: KernelModule) => CudaSchedule,
): void {
  const sizes = { T: shape.T, R: shape.R };
  const { module, tensors, inputs } = cudaLayer(shape, sizes, seed, dtype);
  const schedules = module.kernels.map((kernel) => choose(kernel, module));
  module.kernels.forEach((kernel, i) => {
    expect(isLegalCuda(kernel, module, schedules[i]!, FACTS)).toBe(true);
  });
  const got = emulateModule(module, { sizes, inputs, tensors, schedules });
  const want = interpretModule(module, { sizes, buffers: inputs, tensors, round: true });
  for (const { name } of module.buffers) {
    if (name === 'isArgmax') expect([...got.values.get(name)!]).toEqual([...want.get(name)!]);
    else if (!name.startsWith('parts'))
      expect({ name, error: error(got.values.get(name)!, want.get(name)!) }).toSatisfy(
        (x: { error: number }) => x.error < (dtype === 'bf16' ? 3e-2 : 4e-3),
      );
  }
}

const gemm = (
  skeleton: 'simt' | 'mma',
  tm: number,
  tn: number,
  tk: number,
  stages: number,
  raster = 2,
): CudaSchedule => ({ kind: 'gemm', skeleton, tm, tn, tk, stages, cluster: 1, raster, mode: 'cooperative' });

/** The first of `wanted` that is legal for a contraction, and defaults for anything else. */
const firstLegal =
  (shape: { T: number; R: number }, wanted: readonly CudaSchedule[]) =>
  (kernel: Kernel, module: KernelModule): CudaSchedule => {
    const isContraction = kernel.anchor === 'gemm' || kernel.anchor === 'logprob';
    const found = isContraction
      ? wanted.find((schedule) => isLegalCuda(kernel, module, schedule, FACTS) === true)
      : undefined;
    if (isContraction && found === undefined)
      throw new Error(`no schedule for ${kernel.name}: ${String(isLegalCuda(kernel, module, wanted[0]!, FACTS))}`);
    return (
      found ??
      defaultCudaSchedule(kernel, module, FACTS, scoringBucket({ tokens: shape.T, rows: shape.R, longest: shape.T }))
    );
  };

describe('a layer on CUDA cores', () => {
  it.each(
    casesHere(
      SHAPES.map((shape, i) => ({ shape, i })),
      3,
    ),
  )('agrees with float64: shape $i', ({ shape, i }) => {
    const tm = shape.T > 20 ? 32 : 16;
    check(
      shape,
      11 + i,
      i === 2 ? 'f16' : 'bf16',
      firstLegal(
        shape,
        [64, 96, 32, 800].map((tn) => gemm('simt', tm, tn, 16, 1)),
      ),
    );
  });
});

describe('a layer on tensor cores', () => {
  const CASES = [
    { i: 0, schedule: gemm('mma', 64, 64, 32, 3) },
    { i: 0, schedule: gemm('mma', 16, 128, 64, 2) },
    { i: 1, schedule: gemm('mma', 32, 64, 64, 4) },
    { i: 2, schedule: gemm('mma', 128, 128, 32, 2) },
  ];
  it.each(casesHere(CASES, 0))('agrees with float64: shape $i, $schedule.tm × $schedule.tn', ({ i, schedule }) => {
    const shape = SHAPES[i]!;
    check(shape, 11 + i, i === 2 ? 'f16' : 'bf16', firstLegal(shape, [schedule]));
  });
});

describe('the bits of a result', () => {
  // Kernels that the tests above have used are not compiled again.
  const shape = { ...SHAPES[0]!, R: 40 };
  const sizes = { T: shape.T, R: shape.R };
  const run = (schedule: CudaSchedule, backwards: boolean): ReadonlyMap<string, Float64Array> => {
    const { module, tensors, inputs } = cudaLayer(shape, sizes, 5);
    return emulateModule(module, {
      sizes,
      inputs,
      tensors,
      schedules: module.kernels.map((kernel) => firstLegal(shape, [schedule])(kernel, module)),
      backwards,
    }).values;
  };

  it('do not depend on the tile of tensor cores, or on the order of threads', () => {
    const cases = [
      { schedule: gemm('mma', 64, 64, 32, 3), backwards: false },
      { schedule: gemm('mma', 16, 128, 64, 2), backwards: true },
      { schedule: gemm('mma', 32, 256, 32, 5, 1), backwards: false },
    ];
    const [first, ...others] = casesHere(cases, 0, 1).map(({ schedule, backwards }) => run(schedule, backwards));
    for (const other of others) for (const [name, values] of first!) expectSame(other.get(name), values, name);
  });

  thorough('do not depend on the tile of CUDA cores', () => {
    const [first, second] = [run(gemm('simt', 32, 64, 16, 1), false), run(gemm('simt', 16, 128, 32, 1), true)];
    for (const [name, values] of first) expectSame(second.get(name), values, name);
  });
});

describe('equal logits', () => {
  it.each(casesHere([gemm('simt', 32, 64, 16, 1), gemm('mma', 64, 64, 32, 3)], 1))(
    'have their maximum in their first column',
    (schedule) => {
      const shape = { ...SHAPES[0]!, T: 8, R: 6 };
      const sizes = { T: shape.T, R: shape.R };
      const { module, tensors, inputs } = cudaLayer(shape, sizes, 8);
      const head = tensors.get('head.0')!;
      // Rows of the head repeat: one of 70 different ones is the largest, first in the first 70 columns, then every 70
      // columns.
      const data = head.data.map(
        (_, i) => head.data[(Math.floor(i / head.columns) % 70) * head.columns + (i % head.columns)]!,
      );
      const repeating = new Map([...tensors, ['head.0', { ...head, data }]]);
      const target = inputs.get('target')!;
      const schedules = module.kernels.map((kernel) => firstLegal(shape, [schedule])(kernel, module));
      const run = (targets: Float64Array): ReadonlyMap<string, Float64Array> =>
        emulateModule(module, {
          sizes,
          inputs: new Map([...inputs, ['target', targets]]),
          tensors: repeating,
          schedules,
          tokensCapacity: 128,
        }).values;
      const parts = run(target).get('parts')!;
      const first = Float64Array.from(target, (_, row) => parts[row * 4 * Math.ceil(shape.vocab / LOGPROB_BLOCK) + 2]!);
      for (const at of first) expect(at).toBeLessThan(70);
      expect([...run(first).get('isArgmax')!]).toEqual([...first].map(() => 1));
      expect([...run(first.map((x) => x + 70)).get('isArgmax')!]).toEqual([...first].map(() => 0));
    },
  );
});
