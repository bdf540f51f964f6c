/**
 * Epilogues beside the products of AMX tiles give the bits of those behind a whole item, whatever the schedule, and
 * what float64 gives.
 */
import { describe, expect, it } from 'vitest';
import { emitKernel, isLegal } from '../../codegen/cpu/index.js';
import { unmarked } from '../../codegen/marks.js';
import type { BufferDecl, KernelModule, Pairing } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { physicalToLogical } from '../../ir/packing.js';
import type { CpuGemmSchedule } from '../../ir/plan.js';
import type { Scalar } from '../../ir/scalar.js';
import { codePanels, seeded } from '../support/encodedSamples.js';
import { interfaceOf } from '../support/interface.js';
import { expectSame } from '../support/numbers.js';
import { randomArray, randomSource, runGenerated, RUNNABLE } from './harness.js';
import { acc, add, constant, div, element, mul, rowSum, store } from './modules.js';

const FACTS = { isas: ['portable', 'avx2', 'avx512', 'amx'] as const, l1: 32768, l2: 1 << 20 };
const T = 77;
const COLUMNS = 96;
/** 18 steps of bf16, 17 of codes. */
const K = { bf16: 576, i8: 1088 } as const;
type Kind = keyof typeof K;

const exp = (a: Scalar): Scalar => ({ op: 'exp', a });
const silu = (x: Scalar): Scalar => div(x, add(constant(1), exp({ op: 'neg', a: x })));
/** An accumulator of rows that are normed behind their product. */
const normed = (index: 0 | 1): Scalar =>
  mul(acc(index), { op: 'rsqrt', a: add({ op: 'rowSum', buffer: 'p' }, constant(1)) });

interface Case {
  readonly label: string;
  readonly pairing: Pairing;
  readonly value: Scalar;
}
const CASES: readonly Case[] = [
  {
    label: 'gated',
    pairing: { kind: 'interleave', width: 16 },
    value: add(mul(silu(normed(0)), normed(1)), element('e')),
  },
  { label: 'tanh of a row', pairing: { kind: 'none' }, value: mul({ op: 'tanh', a: normed(0) }, element('e')) },
];

const gemm = (isa: 'amx' | 'avx512', mr: number, kc: number, mb: number, nb: number): CpuGemmSchedule => ({
  kind: 'gemm',
  ...{ isa, mr, nr: 32, kc, mb, nb },
});

/** The first of each is the one that the others are compared with: too few last steps, or another instruction set. */
const SCHEDULES: Readonly<Record<Kind, readonly CpuGemmSchedule[]>> = {
  bf16: [gemm('amx', 32, 512, 32, 64), gemm('amx', 32, 1024, 64, 64), gemm('amx', 16, 1024, 48, 192)],
  i8: [gemm('avx512', 14, 256, 14, 64), gemm('amx', 32, 256, 32, 64), gemm('amx', 16, 256, 96, 192)],
};

function moduleOf(kind: Kind, { pairing, value }: Case): KernelModule {
  const isCodes = kind === 'i8';
  const k = K[kind];
  const buffers: BufferDecl[] = [
    { name: 'x', dtype: isCodes ? 'f32' : 'bf16', rows: 'T', columns: k, space: 'input' },
    { name: 'e', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'input' },
    { name: 'p', dtype: 'f32', rows: 'T', columns: 3, space: 'input' },
    ...SCHEDULES[kind].flatMap((_, i): BufferDecl[] => [
      { name: `y${i}`, dtype: 'bf16', rows: 'T', columns: COLUMNS, space: 'arena' },
      { name: `ssq${i}`, dtype: 'f32', rows: 'T', columns: COLUMNS / 16, space: 'arena' },
    ]),
  ];
  const matrices = pairing.kind === 'interleave' ? 2 : 1;
  return {
    interface: interfaceOf(buffers),
    buffers,
    weights: [
      {
        name: 'w',
        ...(isCodes
          ? ({ layout: 'quads', format: 'i8', from: 'codes' } as const)
          : ({ layout: 'vnni', format: 'bf16' } as const)),
        k,
        pairing,
        sources: Array.from({ length: matrices }, (_, i) => ({ tensor: `w${i}`, rows: COLUMNS })),
      },
    ],
    kernels: SCHEDULES[kind].map((_, i) => ({
      anchor: 'gemm',
      name: `g${i}`,
      path: `test.g${i}`,
      rows: 'T',
      ops: [],
      k,
      a: 'x',
      ...(isCodes ? { rounding: { columns: k } } : {}),
      segments: [
        {
          weight: 'w',
          columns: COLUMNS,
          pairing,
          outputs: [store(`y${i}`, { op: 'roundBf16', a: value }), rowSum(`ssq${i}`, mul(value, value))],
        },
      ],
    })),
  };
}

describe.skipIf(!RUNNABLE.includes('amx'))('epilogues beside products', () => {
  const all = CASES.flatMap((c) => (['bf16', 'i8'] as const).map((kind) => ({ c, kind, label: c.label })));
  it.each(all)('$label of $kind', ({ c, kind }) => {
    const module = moduleOf(kind, c);
    const schedules = SCHEDULES[kind];
    module.kernels.forEach((kernel, i) => expect(isLegal(kernel, module, schedules[i]!, FACTS)).toBe(true));
    const k = K[kind];
    const random = randomSource(k + COLUMNS);
    const next = seeded(k);
    const bf16 = (x: number): number => Math.round(x * 128) / 128;
    const inputs = new Map([
      ['x', randomArray(random, T * k).map(bf16)],
      ['e', randomArray(random, T * COLUMNS)],
      ['p', randomArray(random, T * 3).map(Math.abs)],
    ]);
    const count = module.weights[0]!.sources.length * COLUMNS * k;
    const codes = Int8Array.from({ length: count }, () => next(256) - 128);
    const numbers = kind === 'i8' ? Float64Array.from(codes) : randomArray(random, count).map(bf16);
    const weight = module.weights[0]!;
    const { values, dirtyPads, overruns, emitted } = runGenerated(module, {
      sizes: { T, R: 0 },
      inputs,
      schedules,
      workers: 2,
      isQuick: true,
      ...(kind === 'i8'
        ? { packed: new Map([['w', codePanels(codes, k, physicalToLogical(weight))]]) }
        : { weights: new Map([['w', numbers]]) }),
    });
    expect([dirtyPads, overruns]).toEqual([[], []]);
    expect(emitted.map(({ source }) => source.includes('_finish('))).toEqual([false, true, true]);
    // Names in marks are no uses of variables and extents with such names.
    const capacity = { T: 128, R: 128 };
    const [kernel, schedule] = [module.kernels[1]!, schedules[1]!];
    for (const name of ['r0', 'T'])
      expect(unmarked(emitKernel(kernel, module, schedule, capacity, () => `\u0001${name}\u0001`).source).text).toBe(
        emitKernel(kernel, module, schedule, capacity).source,
      );
    for (const name of ['y', 'ssq'])
      schedules.forEach((_, i) => {
        expectSame(values.get(`${name}${i}`), values.get(`${name}0`), `${name} of schedule ${i}`);
      });
    const tensors = new Map(
      weight.sources.map(({ tensor, rows }, i) => [
        tensor,
        { rows, columns: k, data: numbers.subarray(i * rows * k, (i + 1) * rows * k) },
      ]),
    );
    const want = interpretModule(module, { sizes: { T, R: 0 }, buffers: inputs, tensors }).get('y1')!;
    // Results are stored in bf16; sums of hundreds of products may be near 0.
    values.get('y1')!.forEach((value, i) => {
      expect(Math.abs(value - want[i]!)).toBeLessThan(0.01 * Math.abs(want[i]!) + 0.02);
    });
  });
});
