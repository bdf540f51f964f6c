/** Row sums have the same bits whichever skeleton computes them: CUDA cores, accumulators of tensor cores, loops. */
import { interfaceOf } from '../../support/interface.js';
import { describe, expect, it } from 'vitest';
import { isLegalCuda } from '../../../codegen/cuda/index.js';
import type { CudaGemmSchedule, CudaSchedule } from '../../../ir/cuda.js';
import type { BufferDecl, Kernel, KernelModule, Pairing } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { acc, add, constant, element, mul, rowSum, store } from '../modules.js';
import { emulateModule } from './emulate.js';
import { casesHere } from '../../support/thorough.js';

const FACTS = { arch: 'sm_90a', sharedBytesPerBlock: 232_448, multiprocessors: 132 } as const;
const [T, K] = [19, 16];

const gemm = (skeleton: 'simt' | 'mma', tm: number, tn: number): CudaSchedule => ({
  kind: 'gemm',
  skeleton,
  tm,
  tn,
  tk: 32,
  stages: skeleton === 'mma' ? 2 : 1,
  cluster: 1,
  raster: 2,
  mode: 'cooperative',
});
const wgmma = (mode: CudaGemmSchedule['mode'], tm: number, tn: number): CudaGemmSchedule => ({
  kind: 'gemm',
  skeleton: 'wgmma',
  tm,
  tn,
  tk: 64,
  stages: 2,
  cluster: 1,
  raster: 2,
  mode,
});
const EVERYWHERE = [
  gemm('simt', 16, 64),
  gemm('simt', 32, 128),
  gemm('mma', 16, 64),
  gemm('mma', 64, 128),
  gemm('mma', 32, 256),
  wgmma('pingpong', 64, 96),
];

interface Case {
  readonly columns: number;
  readonly pairing: Pairing;
  readonly gemms: readonly CudaSchedule[];
}
const CASES: readonly Case[] = [
  // Widths that are not multiples of two blocks.
  {
    columns: 200,
    pairing: { kind: 'none' },
    gemms: [...EVERYWHERE, wgmma('pingpong', 64, 48), wgmma('cooperative', 128, 208)],
  },
  // A loop of long rows, whose lanes have eight columns each.
  { columns: 272, pairing: { kind: 'none' }, gemms: [gemm('simt', 16, 64), gemm('mma', 16, 64)] },
  { columns: 104, pairing: { kind: 'interleave', width: 8 }, gemms: [...EVERYWHERE, wgmma('cooperative', 128, 160)] },
];

/** x·(x + 0.1): has rounding errors even if x has none. */
const rough = (x: Scalar): Scalar => mul(x, add(x, constant(0.1)));

function moduleOf({ columns, pairing, gemms }: Case): KernelModule {
  const matrices = pairing.kind === 'interleave' ? 2 : 1;
  const value = matrices === 2 ? mul(acc(), acc(1)) : acc();
  const buffer = (
    name: string,
    dtype: BufferDecl['dtype'],
    width: number,
    space: BufferDecl['space'] = 'arena',
  ): BufferDecl => ({ name, dtype, rows: 'T', columns: width, space });
  const parts = Math.ceil(columns / ROW_SUM_BLOCK);
  const kernel = { path: 'test', rows: 'T', ops: [] } as const;
  return {
    interface: interfaceOf([]),
    weights: [
      {
        name: 'w',
        layout: 'kmajor',
        format: 'bf16',
        k: K,
        pairing,
        sources: Array.from({ length: matrices }, (_, i) => ({ tensor: `w${i}`, rows: columns })),
      },
    ],
    buffers: [
      buffer('x', 'bf16', K, 'input'),
      ...gemms.flatMap((_, i) => [buffer(`y${i}`, 'f32', columns), buffer(`s${i}`, 'f32', parts)]),
      buffer('loop', 'f32', parts),
    ],
    kernels: [
      ...gemms.map((_, i): Kernel => ({
        ...kernel,
        name: `g${i}`,
        anchor: 'gemm',
        k: K,
        a: 'x',
        segments: [{ weight: 'w', columns, pairing, outputs: [store(`y${i}`, value), rowSum(`s${i}`, rough(value))] }],
      })),
      { ...kernel, name: 'loop', anchor: 'loop', columns, outputs: [rowSum('loop', rough(element('y0')))] },
    ],
  };
}

/**
 * The order of additions: a thread of four adds columns 2t, 2t + 1, 8 + 2t, 8 + 2t + 1; then the four are added in
 * pairs.
 */
function partOf(y: Float64Array, row: number, block: number, columns: number): number {
  const at = (j: number): number => {
    const column = block * ROW_SUM_BLOCK + j;
    const x = column < columns ? y[row * columns + column]! : 0;
    return Math.fround(x * Math.fround(x + Math.fround(0.1)));
  };
  const [a, b, c, d] = [0, 2, 4, 6].map((j) =>
    [j, j + 1, j + 8, j + 9].reduce((sum, i) => Math.fround(sum + at(i)), 0),
  ) as [number, number, number, number];
  return Math.fround(Math.fround(a + b) + Math.fround(c + d));
}

describe('row sums of every skeleton', () => {
  it.each(casesHere(CASES, 1, 2))('are added in one order: $columns columns, $pairing.kind', (each) => {
    const { columns, gemms } = each;
    const module = moduleOf(each);
    const schedules: CudaSchedule[] = [...gemms, { kind: 'loop', threads: 64 }];
    module.kernels.forEach((kernel, i) => {
      expect(isLegalCuda(kernel, module, schedules[i]!, FACTS)).toBe(true);
    });
    // Small integers: products and their sums over k are exact in any order.
    const integers = (n: number, seed: number): Float64Array =>
      Float64Array.from({ length: n }, (_, i) => (((i * 7919 + seed * 104_729) % 1009) % 17) - 8);
    const tensors = new Map(
      [0, 1].map((i) => [`w${i}`, { rows: columns, columns: K, data: integers(columns * K, i + 1) }]),
    );
    const { values } = emulateModule(module, {
      sizes: { T, R: 0 },
      inputs: new Map([['x', integers(T * K, 3)]]),
      tensors,
      schedules,
    });
    const y = values.get('y0')!;
    const blocks = Math.ceil(columns / ROW_SUM_BLOCK);
    const want = Array.from({ length: T * blocks }, (_, i) => partOf(y, Math.floor(i / blocks), i % blocks, columns));
    for (const name of [...gemms.map((_, i) => `s${i}`), 'loop'])
      expect({ name, values: [...values.get(name)!] }).toEqual({ name, values: want });
  });
});
