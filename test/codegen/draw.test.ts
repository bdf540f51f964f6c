/**
 * The head with a draw from both code generators: the tokens that float64 draws, and the same bits under any schedule
 * and with any other rows.
 */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel } from '../../codegen/cuda/index.js';
import type { CudaGemmSchedule } from '../../ir/cuda.js';
import { noiseKey } from '../../ir/gumbel.js';
import { type BufferDecl, type Kernel, type KernelModule, LOGPROB_BLOCK } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import { roundToBf16 } from '../../ir/scalar.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../support/nvcc.js';
import { casesHere } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { expectGolden } from './cuda/golden.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';

const [K, VOCAB, ROWS] = [64, 700, 37];
const IDS = [{ tensor: 'head.ids', rows: VOCAB }];
const BIASES = [{ tensor: 'head.bias', rows: VOCAB }];
const DRAW = { inverseTemperature: 'heat', low: 'low', high: 'high' };

/**
 * `stores`: the head keeps the logits of the first rows, too. `maps`: columns stand for other tokens. `biased`: columns
 * have a bias of the type of the rows.
 */
function headOf(
  dtype: 'f32' | 'bf16',
  layout: 'panels' | 'vnni' | 'kmajor',
  stores: boolean,
  maps = false,
  biased = false,
): KernelModule {
  const buffer = (
    name: string,
    type: BufferDecl['dtype'],
    columns: number,
    space: BufferDecl['space'],
  ): BufferDecl => ({
    name,
    dtype: type,
    rows: 'R',
    columns,
    space,
  });
  const shared = { path: 'head', rows: 'R', ops: [], vocab: VOCAB, target: 'target', parts: 'parts' } as const;
  const rowScale = { op: 'load', buffer: 'scale', access: { kind: 'row' } } as const;
  const logits = stores ? { logits: 'logits' } : {};
  const totals = stores ? { totals: { top: 'top', sum: 'sum' } } : {};
  const convention = interfaceOf([]);
  const ids = maps ? { ids: 'ids' } : {};
  const kernels: readonly Kernel[] = [
    {
      ...shared,
      name: 'head',
      anchor: 'logprob',
      k: K,
      a: 'x',
      weight: 'w',
      rowScale,
      ...(biased ? { bias: 'bias' } : {}),
      draw: { ...DRAW, ...ids },
      ...logits,
    },
    {
      ...shared,
      name: 'reduce',
      anchor: 'logprobReduce',
      logProb: 'log_prob',
      isArgmax: 'is_argmax',
      draw: { token: 'token', logProb: 'token_log_prob', ...ids },
      ...totals,
    },
  ];
  const sources = [{ tensor: 'head.weight', rows: VOCAB }];
  return {
    interface: stores ? { ...convention, extents: [...convention.extents, { name: 'F', within: 'R' }] } : convention,
    buffers: [
      buffer('x', dtype, K, 'input'),
      buffer('scale', 'f32', 1, 'input'),
      buffer('target', 'i32', 1, 'input'),
      buffer('heat', 'f32', 1, 'input'),
      buffer('low', 'i32', 1, 'input'),
      buffer('high', 'i32', 1, 'input'),
      buffer('parts', 'f32', 8 * Math.ceil(VOCAB / LOGPROB_BLOCK), 'arena'),
      buffer('log_prob', 'f32', 1, 'output'),
      buffer('is_argmax', 'i32', 1, 'output'),
      buffer('token', 'i32', 1, 'output'),
      buffer('token_log_prob', 'f32', 1, 'output'),
      ...(maps ? [{ ...buffer('ids', 'f32', 1, 'weight'), rows: VOCAB }] : []),
      ...(biased ? [{ ...buffer('bias', dtype, 1, 'weight'), rows: VOCAB }] : []),
      ...(stores
        ? [
            { ...buffer('logits', 'f32', VOCAB, 'arena'), rows: 'F' },
            buffer('top', 'f32', 1, 'arena'),
            buffer('sum', 'f32', 1, 'arena'),
          ]
        : []),
    ],
    weights: [
      { name: 'w', layout, format: dtype, sources, k: K, pairing: { kind: 'none' } },
      ...(maps
        ? [{ name: 'ids', layout: 'rows', format: 'f32', sources: IDS, k: 1, pairing: { kind: 'none' } } as const]
        : []),
      ...(biased
        ? [{ name: 'bias', layout: 'rows', format: dtype, sources: BIASES, k: 1, pairing: { kind: 'none' } } as const]
        : []),
    ],
    kernels,
  };
}

const random = randomSource(17);
const bf16 = (length: number): Float64Array => randomArray(random, length).map((v) => roundToBf16(v));
const BIAS = randomArray(randomSource(18), VOCAB).map((v) => roundToBf16(v));
/** Tokens of a larger vocabulary, in no order. */
const ids = Float64Array.from({ length: VOCAB }, (_, column) => (column * 7919 + 13) % 131_071);
const tensors = new Map([
  ['head.weight', { rows: VOCAB, columns: K, data: bf16(VOCAB * K) }],
  ['head.bias', { rows: VOCAB, columns: 1, data: BIAS }],
  ['head.ids', { rows: VOCAB, columns: 1, data: ids }],
]);
const keys = Array.from({ length: ROWS }, (_, row) => noiseKey(0x1234_5678_9abc_def0n, row));
/** Every fourth row is greedy; temperatures of the others go from 0.2 to 5. */
const heat = Float64Array.from({ length: ROWS }, (_, row) => (row % 4 === 0 ? 0 : Math.fround(0.2 + (row / ROWS) * 5)));
const INPUTS: ReadonlyMap<string, Float64Array> = new Map([
  ['x', bf16(ROWS * K)],
  ['scale', Float64Array.from({ length: ROWS }, (_, row) => 0.25 + (row % 3) / 4)],
  ['target', Float64Array.from({ length: ROWS }, (_, row) => (row * 19) % VOCAB)],
  ['heat', heat],
  ['low', Float64Array.from(keys, ({ low }) => low)],
  ['high', Float64Array.from(keys, ({ high }) => high)],
]);
const some = (from: number, to: number): ReadonlyMap<string, Float64Array> =>
  new Map(
    [...INPUTS].map(([name, data]) => [name, data.slice((data.length / ROWS) * from, (data.length / ROWS) * to)]),
  );

const OUTPUTS = ['log_prob', 'is_argmax', 'token', 'token_log_prob'] as const;
/** The first rows of a call, whose logits are kept. */
const keptOf = (rows: number): number => Math.ceil(rows / 3);
const sizesOf = (rows: number) => ({ T: rows, R: rows, F: keptOf(rows) });

type Values = ReadonlyMap<string, Float64Array>;

function compare(
  module: KernelModule,
  run: (inputs: Values, rows: number, schedule: number) => Values,
  schedules: number,
): void {
  verifyKernels(module);
  const want = interpretModule(module, { sizes: sizesOf(ROWS), buffers: INPUTS, tensors });
  const got = run(INPUTS, ROWS, 0);
  // No two scores of this data are so near that f32 takes another token than float64.
  expect([...got.get('token')!]).toEqual([...want.get('token')!]);
  expect(got.get('is_argmax')).toEqual(want.get('is_argmax'));
  for (const name of ['log_prob', 'token_log_prob'])
    got.get(name)!.forEach((value, row) => {
      expect(value, `${name}[${row}]`).toBeCloseTo(want.get(name)![row]!, 4);
    });
  expect(new Set(got.get('token')).size).toBeGreaterThan(ROWS / 2);
  const stored = want.has('logits') ? (['logits', 'top', 'sum'] as const) : [];
  for (const name of stored)
    got.get(name)!.forEach((value, i) => {
      const right = want.get(name)![i]!;
      if (Math.abs(value - right) > 1e-4 * Math.max(1, Math.abs(right))) expect(value, `${name}[${i}]`).toBe(right);
    });
  for (let schedule = 1; schedule < schedules; schedule++) {
    const other = run(INPUTS, ROWS, schedule);
    for (const name of [...OUTPUTS, ...stored])
      expectSame(other.get(name), got.get(name), `${name}, schedule ${schedule}`);
  }
  for (const [from, to] of [
    [0, 1],
    [5, 23],
  ] as const) {
    const part = run(some(from, to), to - from, 0);
    for (const name of OUTPUTS)
      expectSame(part.get(name), got.get(name)!.slice(from, to), `${name} of ${from} to ${to}`);
  }
}

it.each([
  [
    'headDraw',
    0,
    { kind: 'gemm', skeleton: 'mma', tm: 64, tn: 128, tk: 64, stages: 3, cluster: 1, raster: 4, mode: 'cooperative' },
  ],
  ['reduceDraw', 1, { kind: 'loop', threads: 128 }],
] as const)('is golden: %s', async (name, at, schedule) => {
  const module = headOf('bf16', 'kmajor', true);
  await expectGolden(emitCudaKernel(module.kernels[at]!, module, schedule, { T: 64, R: 64, F: 64 }).source, name);
});

describe.runIf(hasNvcc)('kernels that keep logits', () => {
  const SCHEDULES = [
    { skeleton: 'skinnyWgmma', tm: 8, tn: 256, stages: 3, raster: 1, mode: 'cooperative' },
    { skeleton: 'skinnyWgmma', tm: 64, tn: 256, stages: 2, raster: 1, mode: 'cooperative' },
    { skeleton: 'wgmma', tm: 64, tn: 256, stages: 5, raster: 16, mode: 'pingpong' },
    { skeleton: 'wgmma', tm: 128, tn: 256, stages: 4, raster: 16, mode: 'cooperative' },
  ] as const;
  it('spill no register', () => {
    const module = headOf('bf16', 'kmajor', true);
    // The largest tiles of both skeletons.
    const schedules = casesHere<(typeof SCHEDULES)[number]>(SCHEDULES, 1, 3);
    const texts = schedules.map((own) => {
      const schedule = { kind: 'gemm', tk: 64, cluster: 1, ...own } as const;
      return emitCudaKernel(module.kernels[0]!, module, schedule, { T: 64, R: 64, F: 64 });
    });
    const spills = compileByNvcc(texts, 'sm_90a').map(({ spillStores, spillLoads }) => spillStores + spillLoads);
    expect(spills).toEqual(texts.map(() => 0));
  });
});

describe.each([
  ['a draw in the head', false, false, false],
  ['a head that keeps logits, whose columns have a bias', true, false, true],
  ['a head whose columns stand for other tokens', false, true, false],
])('%s', (_title, stores, maps, biased) => {
  /** In CI, a head that keeps logits runs with one schedule: only what it stores differs from the other head. */
  const few = stores || maps ? [0] : [0, 1];
  const CPU: Readonly<Record<CpuIsa, readonly (readonly [number, number, number, number, number])[]>> = {
    portable: [[4, 16, 512, 64, 256]],
    avx2: [
      [6, 16, 512, 60, 256],
      [2, 32, 32, 6, 512],
    ],
    avx512: [
      [14, 32, 512, 252, 256],
      [6, 64, 64, 12, 768],
    ],
    amx: [[32, 32, 512, 256, 256]],
  };

  it.each(RUNNABLE)('in C, %s', (isa) => {
    const module =
      isa === 'amx' ? headOf('bf16', 'vnni', stores, maps, biased) : headOf('f32', 'panels', stores, maps, biased);
    const all = CPU[isa];
    const schedules = casesHere(all, ...few.slice(0, all.length)).map(([mr, nr, kc, mb, nb]): CpuGemmSchedule => ({
      kind: 'gemm',
      isa,
      mr,
      nr,
      kc,
      mb,
      nb,
    }));
    compare(
      module,
      (inputs, rows, i) => {
        const result = runGenerated(module, {
          sizes: sizesOf(rows),
          inputs,
          tensors,
          schedules: [schedules[i]!, { kind: 'loop', isa, rows: 4 }],
          workers: 1 + i,
          isQuick: true,
        });
        expect(result.overruns).toEqual([]);
        return result.values;
      },
      schedules.length,
    );
  });

  const gemm = (skeleton: CudaGemmSchedule['skeleton'], rest: Partial<CudaGemmSchedule>): CudaGemmSchedule => ({
    kind: 'gemm',
    skeleton,
    tm: 64,
    tn: 64,
    tk: 32,
    stages: 1,
    cluster: 1,
    raster: 2,
    mode: 'cooperative',
    ...rest,
  });
  it.each([
    ['CUDA cores', [gemm('simt', { tk: 16 }), gemm('simt', { tm: 32, tn: 128, tk: 16 })]],
    ['tensor cores', [gemm('mma', { stages: 2 }), gemm('mma', { tm: 32, tn: 128, stages: 3 })]],
    [
      'few rows',
      [gemm('skinny', { tm: 8, tn: 256, tk: 64, stages: 4 }), gemm('skinny', { tm: 32, tn: 256, tk: 64, stages: 3 })],
    ],
    ['few rows on Hopper', [gemm('skinnyWgmma', { tm: 16, tn: 256, tk: 64, stages: 3, raster: 1 })]],
    ['Hopper', [gemm('wgmma', { tm: 128, tn: 256, tk: 64, stages: 2 })]],
  ])('in CUDA, %s', (_skeleton, all) => {
    const schedules = casesHere(all, ...few.slice(0, all.length));
    const module = headOf('bf16', 'kmajor', stores, maps, biased);
    compare(
      module,
      (inputs, rows, i) =>
        emulateModule(module, {
          sizes: sizesOf(rows),
          inputs,
          tensors,
          schedules: [schedules[i]!, { kind: 'loop', threads: 64 * (i + 1) }],
          tokensCapacity: 64,
        }).values,
      schedules.length,
    );
  });
});
