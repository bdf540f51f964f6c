/** Contractions that finish their rows give the bits of a contraction and a loop, in every skeleton. */
import { describe, expect, it } from 'vitest';
import { emitCudaKernel, isLegalCuda } from '../../../codegen/cuda/index.js';
import { defaultWgmmaSchedule } from '../../../codegen/cuda/wgmma/index.js';
import type { CudaArch, CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import { everyExtent } from '../../../ir/function.js';
import type { GemmKernel, Kernel } from '../../../ir/kernel.js';
import { fuseRowNorms } from '../../../passes/fuseRowNorms.js';
import { expectSame } from '../../support/numbers.js';
import { compileByNvcc, hasNvcc } from '../../support/nvcc.js';
import { casesHere, thorough } from '../../support/thorough.js';
import { postNorm, postNormModule } from '../postNorm.js';
import { emulateModule } from './emulate.js';
import { expectGolden } from './golden.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;

const gemm = (
  skeleton: CudaGemmSchedule['skeleton'],
  mode: CudaGemmSchedule['mode'],
  tile: readonly [tm: number, tn: number, tk: number, stages: number],
  cluster: 1 | 2 = 1,
): CudaGemmSchedule => {
  const [tm, tn, tk, stages] = tile;
  return { kind: 'gemm', skeleton, tm, tn, tk, stages, cluster, raster: 2, mode };
};
const LOOP: CudaSchedule = { kind: 'loop', threads: 64 };
const HIGH: readonly CudaGemmSchedule[] = [
  gemm('mma', 'cooperative', [64, 128, 32, 2]),
  gemm('wgmma', 'pingpong', [64, 96, 64, 2]),
  gemm('wgmma', 'cooperative', [128, 208, 64, 2]),
  gemm('wgmma', 'deferred', [128, 128, 64, 2]),
];
const LOW: readonly CudaGemmSchedule[] = [
  gemm('simt', 'cooperative', [16, 64, 32, 1]),
  gemm('skinny', 'cooperative', [8, 32, 64, 3]),
  gemm('skinnyWgmma', 'cooperative', [8, 96, 64, 2]),
];

interface Case {
  readonly what: string;
  readonly rows: number;
  readonly columns: number;
  readonly schedules: readonly CudaGemmSchedule[];
}
const CASES: readonly Case[] = [
  {
    what: 'several blocks of rows, of which the last is cut',
    rows: 134,
    columns: 144,
    schedules: casesHere(HIGH, 0, 3),
  },
  {
    what: 'several turns of columns, of which the last is cut',
    rows: 9,
    columns: 784,
    schedules: casesHere(LOW, 0, 2),
  },
];

describe('rows that a contraction finishes', () => {
  thorough.each(CASES)('are those of a loop: $what', ({ rows, columns, schedules }) => {
    const plain = postNorm(rows, columns, 16, 1);
    const want = emulateModule(plain.module, { ...plain, schedules: [schedules[0]!, LOOP] }).values;
    // Each schedule twice: the second launch begins with the numbers that the first has left.
    const twice = schedules.flatMap((schedule) => [schedule, schedule]);
    const many = postNorm(rows, columns, 16, twice.length);
    const module = fuseRowNorms(many.module);
    expect(module.kernels.map(({ anchor }) => anchor)).toEqual(twice.map(() => 'gemm'));
    module.kernels.forEach((kernel, i) => expect(isLegalCuda(kernel, module, twice[i]!, FACTS)).toBe(true));
    const { values } = emulateModule(module, { ...many, schedules: twice });
    for (const [i, schedule] of twice.entries())
      for (const name of ['next', 'next_tail', 'next_parts'])
        expect({ schedule, name, values: [...values.get(`${name}${i}`)!] }).toEqual({
          schedule,
          name,
          values: [...want.get(`${name}0`)!],
        });
  });

  it.each([
    ['pairs of blocks share columns of a shallow product', 4096, { cluster: 2, raster: 10 }],
    ['blocks of a deep product stay alone', 14_336, { cluster: 1, raster: 11 }],
  ])('are stored in high groups: %s', (_, k, wanted) => {
    const module = postNormModule(3584, 16, 1);
    const deep = {
      ...module,
      buffers: module.buffers.map((each) => (each.name === 'x' ? { ...each, columns: k } : each)),
      weights: module.weights.map((each) => (each.name === 'w' ? { ...each, k } : each)),
      kernels: module.kernels.map((each) => (each.anchor === 'gemm' ? { ...each, k } : each)),
    };
    const finished = fuseRowNorms(deep);
    const chosen = defaultWgmmaSchedule(finished.kernels[0] as GemmKernel, finished, FACTS, 8448);
    expect(chosen).toMatchObject({ mode: 'deferred', tm: 128, tn: 256, ...wanted });
    const plain = defaultWgmmaSchedule(deep.kernels[0] as GemmKernel, deep, FACTS, 8448);
    expect(plain?.raster).toBeGreaterThan(11);
  });

  thorough('are those of a stream that others read', () => {
    const schedules = [HIGH[3]!, LOW[2]!];
    const plain = postNorm(20, 144, 16, 1, true);
    const want = emulateModule(plain.module, { ...plain, schedules: [HIGH[0]!, LOOP] }).values;
    const many = postNorm(20, 144, 16, schedules.length, true);
    const { values } = emulateModule(fuseRowNorms(many.module), { ...many, schedules });
    for (const i of schedules.keys())
      for (const name of ['y', 'next', 'next_tail', 'next_parts'])
        expectSame(values.get(`${name}${i}`)!, want.get(`${name}0`)!, `${name}${i}`);
  });

  it('have golden text', async () => {
    const module = postNormModule(512, 512, 1);
    const [kernel] = fuseRowNorms(module).kernels as [Kernel];
    const { source } = emitCudaKernel(kernel, module, HIGH[3]!, everyExtent(module.interface, 512));
    await expectGolden(source, 'wgmmaFinish');
  });

  it('have no remainder tiles', () => {
    const module = fuseRowNorms(postNormModule(512, 64, 1));
    const narrow = { ...gemm('wgmma', 'deferred', [128, 256, 64, 2]), remainderTn: 64 };
    expect(isLegalCuda(module.kernels[0]!, module, narrow, FACTS)).toMatch(/counts whole tiles/);
  });
});

describe.runIf(hasNvcc)('nvcc', () => {
  const module = postNormModule(3584, 4096, 1);
  const [kernel] = fuseRowNorms(module).kernels as [Kernel];
  const COMPILED: readonly (readonly [CudaArch, CudaGemmSchedule])[] = [
    ['sm_80', gemm('mma', 'cooperative', [128, 128, 32, 4])],
    ['sm_90a', gemm('wgmma', 'deferred', [128, 256, 64, 3], 2)],
  ];
  thorough.each(COMPILED)('compiles it for %s without spills', (arch, schedule) => {
    const text = emitCudaKernel(kernel, module, schedule, everyExtent(module.interface, 8448));
    expect(compileByNvcc([text], arch)[0]).toMatchObject({ spillStores: 0, spillLoads: 0 });
  });
});
