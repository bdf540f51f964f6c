/**
 * Products of codes whose scales are for whole rows: sums of integers are exact, so that results have the bits of
 * integer arithmetic whatever the schedule, T, threads or instruction set, tiles of AMX included.
 */
import { describe, expect, it } from 'vitest';
import { compilerFlags, emitKernel, emitTranslationUnit, isLegal } from '../../codegen/cpu/index.js';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { physicalToLogical } from '../../ir/packing.js';
import type { CpuGemmSchedule, CpuIsa } from '../../ir/plan.js';
import { codePanels, seeded } from '../support/encodedSamples.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { isThorough } from '../support/thorough.js';
import { compile, runGenerated, RUNNABLE } from './harness.js';
import { acc, add, element, store } from './modules.js';

const FACTS = { isas: ['portable', 'avx2', 'avx512', 'amx'] as const, l1: 32768, l2: 1 << 20 };

/** mr, nr, mb: of few rows, and of many with a rest. */
const SCHEDULES: Readonly<Record<CpuIsa, readonly (readonly [number, number, number])[]>> = {
  portable: [[4, 32, 8]],
  avx2: [
    [6, 16, 12],
    [3, 32, 3],
  ],
  avx512: [[14, 32, 14]],
  amx: [[32, 32, 32]],
};

/** No multiple of 32, and what is read of it none of 64; more than a chunk of bounded rows, and than a pass of AMX. */
const K = 2114;
const COLUMNS = 70;
/** Several blocks of every schedule: workers begin with their own, and take from those of others. */
const ROWS = 67;

const buffersOf = (dtype: 'f32' | 'bf16'): readonly BufferDecl[] => [
  { name: 'a', dtype, rows: 'T', columns: K, space: 'input' },
  { name: 'e', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'input' },
  { name: 'y', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'arena' },
];

/** Rows of these types are what codes are made of: 127 fits the 8 bits of bf16. */
const moduleOf = (dtype: 'f32' | 'bf16'): KernelModule => ({
  interface: interfaceOf(buffersOf(dtype)),
  buffers: buffersOf(dtype),
  weights: [
    {
      name: 'w',
      layout: 'quads',
      format: 'i8',
      from: 'codes',
      k: K,
      pairing: { kind: 'none' },
      sources: [{ tensor: 'w', rows: COLUMNS }],
    },
  ],
  kernels: [
    {
      anchor: 'gemm',
      name: 'g',
      path: 'g',
      ops: [],
      rows: 'T',
      k: K,
      a: 'a',
      rounding: { columns: K },
      segments: [
        {
          weight: 'w',
          columns: COLUMNS,
          pairing: { kind: 'none' },
          outputs: [store('y', add(acc(), element('e')))],
        },
      ],
    },
  ],
});
const module = moduleOf('f32');

describe('products of whole rows', () => {
  const next = seeded(5);
  // The first column and the second have the largest codes: sums of pairs of products do not fit 16 bits.
  const codes = Int8Array.from({ length: COLUMNS * K }, (_v, i) => (i < K ? 127 : i < 2 * K ? -128 : next(256) - 128));
  const packed = new Map([['w', codePanels(codes, K, physicalToLogical(module.weights[0]!))]]);
  const scales = Float64Array.from({ length: ROWS }, (_v, row) => 2 ** -(row % 7));
  const rows = Int32Array.from({ length: ROWS * K }, (_v, i) => (i < K || i % K === 3 ? 127 : next(255) - 127));
  const a = Float64Array.from(rows, (code, i) => code * scales[Math.floor(i / K)]!);
  const e = Float64Array.from({ length: ROWS * COLUMNS }, (_v, i) => (i % 17) / 8);
  /** The bits that integers give: the sum as f32, times the scale, which are powers of two here. */
  const want = Float64Array.from({ length: ROWS * COLUMNS }, (_v, at) => {
    const [row, column] = [Math.floor(at / COLUMNS), at % COLUMNS];
    let sum = 0;
    for (let i = 0; i < K; i++) sum += rows[row * K + i]! * codes[column * K + i]!;
    return Math.fround(Math.fround(Math.fround(sum) * scales[row]!) + e[at]!);
  });

  it('mean in the interpreter what integers mean', () => {
    const tensors = new Map([['w', { rows: COLUMNS, columns: K, data: Float64Array.from(codes) }]]);
    const inputs = new Map([
      ['a', a],
      ['e', e],
    ]);
    const got = interpretModule(module, { sizes: { T: ROWS, R: 0 }, buffers: inputs, tensors }).get('y')!;
    got.forEach((value, i) => expect(Math.abs(value - want[i]!)).toBeLessThan(1e-6 * Math.abs(want[i]!) + 1e-6));
  });

  // Tiles of AMX are emulated where AVX-512 can run what is around them.
  const isas = RUNNABLE;
  const plain = isas.filter((isa) => isa === 'avx2' || (isa === 'avx512' && isThorough));
  const cases = [isas, plain].flatMap((some, i) =>
    some.flatMap((isa) =>
      SCHEDULES[isa]
        .slice(0, isThorough ? undefined : 1)
        .flatMap((shape) =>
          (['f32', 'bf16'] as const)
            .slice(0, i === 0 || isThorough ? undefined : 1)
            .map((dtype) => ({ isa, shape, dtype, isPlain: i === 1 })),
        ),
    ),
  );
  it.each(cases)('$isa $shape of $dtype, without features: $isPlain', ({ isa, shape, dtype, isPlain }) => {
    const [mr, nr, mb] = shape;
    const module = moduleOf(dtype);
    const schedule: CpuGemmSchedule = { kind: 'gemm', isa, mr, nr, kc: 256, mb, nb: 64 };
    expect(isLegal(module.kernels[0]!, module, schedule, FACTS)).toBe(true);
    for (const [count, workers] of [
      [ROWS, 2],
      [ROWS, 20],
      [5, 1],
    ] as const) {
      const { values, dirtyPads, overruns } = runGenerated(module, {
        sizes: { T: count, R: 0 },
        inputs: new Map([
          ['a', a.subarray(0, count * K)],
          ['e', e.subarray(0, count * COLUMNS)],
        ]),
        packed,
        schedules: [schedule],
        workers,
        isQuick: true,
        isPlain,
      });
      expect([dirtyPads, overruns]).toEqual([[], []]);
      expectSame(values.get('y')!, want.subarray(0, count * COLUMNS));
    }
  });

  it.skipIf(!isas.includes('avx2'))('compile for tiles of AMX', () => {
    const schedule: CpuGemmSchedule = { kind: 'gemm', isa: 'amx', mr: 32, nr: 32, kc: 256, mb: 32, nb: 64 };
    const emitted = emitKernel(module.kernels[0]!, module, schedule, { T: 64, R: 64 });
    expect(emitted.source).toContain('.element = TW_AMX_BYTES, .rows = 32,');
    const flags = compilerFlags(['amx']).map((flag) => (flag === '-O3' ? '-O0' : flag));
    expect(() => compile(emitTranslationUnit([emitted]), flags)).not.toThrow();
  });
});
