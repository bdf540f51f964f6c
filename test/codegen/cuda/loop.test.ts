/** Loop kernels as CUDA: every operator, access, dtype and extent, run over fibres and compared with float64. */
import { interfaceOf } from '../../support/interface.js';
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule, Output } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import { interpretModule } from '../../../ir/kernelInterpreter.js';
import { verifyKernels } from '../../../ir/verifyKernel.js';
import type { Scalar } from '../../../ir/scalar.js';
import { randomArray, randomSource } from '../harness.js';
import { add, constant, div, element, finishedLoop, largestLoop, mul, rowSum, store } from '../modules.js';
import { casesHere } from '../../support/thorough.js';
import { emulateModule } from './emulate.js';

const row = (buffer: string, via?: string): Scalar => ({
  op: 'load',
  buffer,
  access: via === undefined ? { kind: 'row' } : { kind: 'row', via },
});
const column = (buffer: string): Scalar => ({ op: 'load', buffer, access: { kind: 'column' } });
const b = (
  name: string,
  dtype: BufferDecl['dtype'],
  rows: BufferDecl['rows'],
  columns: BufferDecl['columns'],
  space: BufferDecl['space'] = 'arena',
): BufferDecl => ({ name, dtype, rows, columns, space });
const moduleOf = (
  buffers: readonly BufferDecl[],
  columns: number | 'T',
  outputs: readonly Output[],
  finish: readonly Output[],
): KernelModule => ({
  interface: interfaceOf(buffers),
  buffers,
  weights: [],
  kernels: [
    {
      ...{ name: 'loop', path: 'test.loop', anchor: 'loop', rows: 'T', ops: [], columns, outputs },
      ...(finish.length === 0 ? {} : { finish }),
    },
  ],
});

/** Largest error of a loop's results against float64, relative to max(1, |value|). */
function worst(
  buffers: readonly BufferDecl[],
  columns: number | 'T',
  outputs: readonly Output[],
  T: number,
  inputs: ReadonlyMap<string, Float64Array>,
  threads = 64,
  finish: readonly Output[] = [],
): number {
  const module = moduleOf(buffers, columns, outputs, finish);
  if (finish.length > 0) verifyKernels(module);
  const got = emulateModule(module, {
    sizes: { T, R: 0 },
    inputs,
    schedules: [{ kind: 'loop', threads }],
    tokensCapacity: 96,
  });
  const given = new Map([...inputs.keys()].map((name) => [name, got.values.get(name)!]));
  const want = interpretModule(module, { sizes: { T, R: 0 }, buffers: given, round: true });
  let most = 0;
  for (const { buffer } of [...outputs, ...finish]) {
    want.get(buffer)!.forEach((x, i) => {
      const y = got.values.get(buffer)![i]!;
      most = Math.max(most, Object.is(x, y) || x === y ? 0 : Math.abs(x - y) / Math.max(1, Math.abs(x)));
      if (Number.isNaN(y) !== Number.isNaN(x)) most = Infinity;
    });
  }
  return most;
}

describe('a loop on a GPU', () => {
  const random = randomSource(9);
  it('is accurate for the angles of far positions', () => {
    const T = 64;
    const position = Float64Array.from({ length: T }, (_, i) => (i < 32 ? i : 100_000 - i * 7));
    const frequency = Float64Array.from({ length: 24 }, (_, i) => Math.fround(500_000 ** (-i / 24)));
    const angle = mul({ op: 'toF32', a: row('position') }, column('frequency'));
    const buffers = [
      b('position', 'i32', 'T', 1, 'input'),
      b('frequency', 'f32', 24, 1, 'weight'),
      b('c', 'f32', 'T', 24),
      b('s', 'f32', 'T', 24),
    ];
    const outputs = [store('c', { op: 'cos', a: angle }), store('s', { op: 'sin', a: angle })];
    expect(
      worst(
        buffers,
        24,
        outputs,
        T,
        new Map([
          ['position', position],
          ['frequency', frequency],
        ]),
      ),
    ).toBeLessThan(1e-7);
  });

  // With row sums a lane holds one column, without them two; with an odd extent always one.
  it.each(
    casesHere(
      [
        { columns: 50, summed: true },
        { columns: 50, summed: false },
        { columns: 49, summed: false },
      ],
      0,
      2,
    ),
  )('reads and writes every dtype: $columns columns, sums $summed', ({ columns, summed }) => {
    const T = 21;
    const buffers = [
      b('h', 'f16', 'T', columns, 'input'),
      b('g', 'bf16', 'T', columns, 'input'),
      b('i', 'i32', 'T', columns, 'input'),
      b('t', 'bool', 'T', columns, 'input'),
      b('via', 'i32', 'T', 1, 'input'),
      b('r', 'f32', 'T', 1, 'input'),
      b('parts', 'f32', 'T', 40, 'input'),
      b('odd', 'f32', 'T', 7, 'input'),
      b('even', 'f16', 'T', 10, 'input'),
      b('oh', 'f16', 'T', columns),
      b('og', 'bf16', 'T', columns),
      b('oi', 'i32', 'T', columns),
      b('ot', 'bool', 'T', columns),
      b('of', 'f32', 'T', columns),
      ...(summed ? [b('ssq', 'f32', 'T', 4)] : []),
    ];
    const input = (name: string, n: number, f: () => number): [string, Float64Array] => [
      name,
      Float64Array.from({ length: n }, f),
    ];
    const inputs = new Map([
      input('h', T * columns, () => Math.fround(random() * 10 ** (random() * 6))),
      input('g', T * columns, () => random() * 100),
      input('i', T * columns, () => Math.round(random() * 1e6)),
      input('t', T * columns, () => (random() > 0 ? 1 : 0)),
      input('via', T, () => Math.floor(((random() + 1) / 2) * T)),
      input('r', T, random),
      input('parts', T * 40, random),
      input('odd', T * 7, random),
      input('even', T * 10, random),
    ]);
    const isBig: Scalar = { op: 'lt', a: row('r'), b: element('g') };
    const outputs = [
      store('oh', element('h', 'via')),
      store('og', {
        op: 'select',
        condition: { op: 'and', a: isBig, b: { op: 'not', a: element('t') } },
        a: element('g'),
        b: { op: 'neg', a: element('g', 'via') },
      }),
      store('oi', { op: 'max', a: element('i'), b: { op: 'mul', a: { op: 'columnIndex' }, b: { op: 'rowIndex' } } }),
      store('ot', {
        op: 'or',
        a: { op: 'eq', a: { op: 'columnIndex' }, b: constant(3) },
        b: { op: 'le', a: element('g'), b: row('r', 'via') },
      }),
      store(
        'of',
        add(
          div(
            { op: 'rowSum', buffer: 'parts', via: 'via' },
            { op: 'sqrt', a: add(constant(2), mul(row('r'), row('r'))) },
          ),
          add(
            { op: 'load', buffer: 'odd', access: { kind: 'periodic', period: 7, via: 'via' } },
            { op: 'load', buffer: 'even', access: { kind: 'periodic', period: 10 } },
          ),
        ),
      ),
      ...(summed ? [rowSum('ssq', { op: 'roundBf16', a: { op: 'min', a: element('h'), b: constant(1) } })] : []),
    ];
    expect(worst(buffers, columns, outputs, T, inputs, 96)).toBeLessThan(2e-6);
  });

  // Eight columns a lane; of several turns some are empty, and warps pass over long rows more than once.
  it.each(
    casesHere(
      [
        { columns: 272, threads: 96 },
        { columns: 264, threads: 256 },
        { columns: 1296, threads: 32 },
      ],
      2,
    ),
  )('reads and writes long rows: $columns columns, $threads threads', ({ columns, threads }) => {
    const T = 11;
    const isSummed = columns % ROW_SUM_BLOCK === 0;
    const types = ['f16', 'bf16', 'f32', 'e4m3', 'i8'] as const;
    const buffers = [
      b('i', 'i32', 'T', columns, 'input'),
      b('u', 'u8', 'T', columns, 'input'),
      b('x', 'f32', 'T', columns, 'input'),
      b('v', 'f32', columns, 1, 'weight'),
      b('via', 'i32', 'T', 1, 'input'),
      b('parts', 'f32', 'T', 40, 'input'),
      b('ou', 'u8', 'T', columns),
      ...types.map((dtype) => b(`o_${dtype}`, dtype, 'T', columns)),
      ...(isSummed ? [b('sums', 'f32', 'T', columns / ROW_SUM_BLOCK), b('most', 'f32', 'T', columns / 16)] : []),
      b('largest', 'f32', 'T', 1),
    ];
    const of = (n: number, f: () => number): Float64Array => Float64Array.from({ length: n }, f);
    const inputs = new Map([
      ['i', of(T * columns, () => Math.round(random() * 100))],
      ['u', of(T * columns, () => Math.floor((random() + 1) * 128))],
      ['x', of(T * columns, () => Math.round(random() * 4096) / 16)],
      ['v', of(columns, () => Math.round(random() * 8) / 4)],
      ['via', of(T, () => Math.floor(((random() + 1) / 2) * T))],
      ['parts', of(T * 40, () => Math.round(random() * 8))],
    ]);
    // Sums are exact: their order matters in rowSums.test.ts.
    const scaled = mul(element('x', 'via'), { op: 'load', buffer: 'v', access: { kind: 'column' } });
    const value = add(scaled, { op: 'max', a: element('i'), b: { op: 'rowSum', buffer: 'parts', via: 'via' } });
    const outputs = [
      store('ou', element('u')),
      ...types.map((dtype) => store(`o_${dtype}`, value)),
      ...(isSummed ? [rowSum('sums', value), { ...rowSum('most', value), by: 'max' } as const] : []),
      { ...rowSum('largest', value), by: 'max' } as const,
    ];
    expect(worst(buffers, columns, outputs, T, inputs, threads)).toBe(0);
  });

  // All words of a row are under way before its sum is added up, if they are few enough (24 and 30 a lane here).
  it.each(casesHere([6656, 10_240], 1))('makes codes of E4M3 of rows of 24 bits: %i columns', (columns) => {
    const T = 3;
    const parts = columns / ROW_SUM_BLOCK;
    const buffers = [
      b('upper', 'bf16', 'T', columns, 'input'),
      b('tail', 'u8', 'T', columns, 'input'),
      b('parts', 'f32', 'T', parts, 'input'),
      b('codes', 'e4m3', 'T', columns),
    ];
    const inputs = new Map([
      ['upper', randomArray(random, T * columns, 400)],
      ['tail', Float64Array.from({ length: T * columns }, () => Math.floor((random() + 1) * 128))],
      // Powers of two, so that products are exact.
      ['parts', Float64Array.from({ length: T * parts }, (_, i) => (i % parts === Math.floor(i / parts) ? 0.25 : 0))],
    ]);
    const value = mul({ op: 'joinF24', a: element('upper'), b: element('tail') }, { op: 'rowSum', buffer: 'parts' });
    expect(worst(buffers, columns, [store('codes', value)], T, inputs, 256)).toBe(0);
  });

  it('computes sigmoids, exponentials, logarithms and negatives of literals', () => {
    const T = 9;
    const x = randomArray(random, T * 64, 30);
    const buffers = [
      b('x', 'f32', 'T', 64, 'input'),
      b('s', 'f32', 'T', 64),
      b('l', 'f32', 'T', 64),
      b('n', 'f32', 'T', 64),
    ];
    const sigmoid = div(element('x'), add(constant(1), { op: 'exp', a: { op: 'neg', a: element('x') } }));
    const logarithm: Scalar = { op: 'log', a: add(mul(element('x'), element('x')), constant(0.5)) };
    const negative: Scalar = { op: 'sub', a: { op: 'neg', a: constant(-2) }, b: mul(constant(-0.5), element('x')) };
    expect(
      worst(buffers, 64, [store('s', sigmoid), store('l', logarithm), store('n', negative)], T, new Map([['x', x]])),
    ).toBeLessThan(1e-6);
  });

  it('adds up rows of any number of parts, and nothing past them', () => {
    const T = 5;
    const counts = [1, 2, 3, 5, 64, 127, 130, 513, 600];
    const buffers = counts.flatMap((parts) => [
      b(`p${parts}`, 'f32', 'T', parts, 'input'),
      b(`o${parts}`, 'f32', 'T', 1),
    ]);
    const inputs = new Map(counts.map((parts) => [`p${parts}`, randomArray(random, T * parts)]));
    expect(
      worst(
        buffers,
        1,
        counts.map((parts) => store(`o${parts}`, { op: 'rowSum', buffer: `p${parts}` })),
        T,
        inputs,
      ),
    ).toBeLessThan(1e-5);
  });

  it('finds the largest of rows of any number of negative parts, and of nothing past them', () => {
    const [T, counts] = [3, [1, 2, 3, 5, 64, 127, 130, 513, 600]];
    const buffers = counts.flatMap((parts) => [
      b(`p${parts}`, 'f32', 'T', parts, 'input'),
      b(`o${parts}`, 'f32', 'T', 1),
    ]);
    const inputs = new Map(counts.map((n) => [`p${n}`, randomArray(random, T * n).map((x) => Math.fround(x - 2))]));
    const outputs = counts.map((n) => store(`o${n}`, { op: 'rowSum', by: 'max', buffer: `p${n}` }));
    expect(worst(buffers, 1, outputs, T, inputs)).toBe(0);
  });

  it('finds the largest of rows and of segments, also of negative numbers, and NaN', () => {
    const { T, buffers, columns, outputs, inputs } = largestLoop(random);
    expect(worst(buffers, columns, outputs, T, inputs)).toBe(0);
  });

  // A warp's row, rows in registers of one warp or of several, and rows that are read again.
  it.each(
    casesHere(
      [
        { columns: 96, threads: 64 },
        { columns: 272, threads: 32 },
        { columns: 1296, threads: 96 },
        { columns: 1296, threads: 32 },
        { columns: 2576, threads: 64 },
      ],
      3,
    ),
  )('goes on with rows that are complete: $columns columns, $threads threads', ({ columns, threads }) => {
    const { T, buffers, outputs, finish, inputs } = finishedLoop(random, columns);
    expect(worst(buffers, columns, outputs, T, inputs, threads, finish)).toBe(0);
  });

  it('makes a bias of [T, T]', () => {
    for (const T of [1, 33, 50]) {
      const end = Float64Array.from({ length: T }, (_, i) => Math.min(T, i + 1 + (i % 9)));
      const visible: Scalar = {
        op: 'and',
        a: { op: 'le', a: { op: 'columnIndex' }, b: { op: 'rowIndex' } },
        b: { op: 'lt', a: { op: 'rowIndex' }, b: column('end') },
      };
      const buffers = [b('end', 'i32', 'T', 1, 'input'), b('bias', 'f32', 'T', 'T')];
      expect(
        worst(
          buffers,
          'T',
          [store('bias', { op: 'select', condition: visible, a: constant(0), b: constant(-Infinity) })],
          T,
          new Map([['end', end]]),
        ),
      ).toBe(0);
    }
  });

  it('writes vectors, and rows of many columns', () => {
    const T = 45;
    const vectors = [b('a', 'f32', 'T', 1, 'input'), b('o', 'f32', 'T', 1), b('n', 'i32', 'T', 1)];
    expect(
      worst(
        vectors,
        1,
        [store('o', mul(element('a'), constant(0.1))), store('n', { op: 'rowIndex' })],
        T,
        new Map([['a', randomArray(random, T)]]),
      ),
    ).toBeLessThan(1e-7);
    const wide = [
      b('x', 'f32', 'T', 3000, 'input'),
      b('y', 'bf16', 'T', 3000),
      b('sums', 'f32', 'T', Math.ceil(3000 / ROW_SUM_BLOCK)),
    ];
    expect(
      worst(
        wide,
        3000,
        [store('y', element('x')), rowSum('sums', mul(element('x'), element('x')))],
        3,
        new Map([['x', randomArray(random, 9000)]]),
        128,
      ),
    ).toBeLessThan(1e-6);
  });
});
