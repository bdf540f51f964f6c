/** Loop kernels: every operator, access, dtype and extent, compared with float64. */
import { interfaceOf } from '../support/interface.js';
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule, Output } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { CpuIsa } from '../../ir/plan.js';
import type { Scalar } from '../../ir/scalar.js';
import { randomArray, randomSource, runGenerated } from './harness.js';
import { TESTED } from './tested.js';
import { add, constant, div, element, finishedLoop, largestLoop, mul, rowSum, store } from './modules.js';
import { thorough } from '../support/thorough.js';

const ISAS = TESTED.filter((isa) => isa !== 'amx');
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

/**
 * The largest error of a loop's results against float64, relative to max(1, |value|). The hardest arithmetic is
 * compiled with the product's own flags.
 */
function worst(
  isa: CpuIsa,
  buffers: readonly BufferDecl[],
  columns: number | 'T',
  outputs: readonly Output[],
  T: number,
  inputs: ReadonlyMap<string, Float64Array>,
  isQuick = true,
  finish: readonly Output[] = [],
): number {
  const module: KernelModule = {
    interface: interfaceOf(buffers),
    buffers,
    weights: [],
    kernels: [
      {
        ...{ name: 'loop', path: 'test.loop', anchor: 'loop', rows: 'T', ops: [], columns, outputs },
        ...(finish.length === 0 ? {} : { finish }),
      },
    ],
  };
  const got = runGenerated(module, {
    sizes: { T, R: 0 },
    inputs,
    schedules: [{ kind: 'loop', isa, rows: 3 }],
    workers: 2,
    tokensCapacity: 96,
    isQuick,
  });
  expect(got.dirtyPads).toEqual([]);
  expect(got.overruns).toEqual([]);
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

describe.each(ISAS)('a loop on %s', (isa) => {
  const random = randomSource(9);
  it('computes exp and log to the last bits', () => {
    const T = 40;
    const x = Float64Array.from({ length: T * 100 }, (_, i) =>
      Math.fround(i < 10 ? [0, -0, 1, -87, 88.5, -103, -1e30, -Infinity, 1e-40, Infinity][i]! : random() * 80),
    );
    const p = Float64Array.from({ length: T * 100 }, (_, i) =>
      Math.fround(i < 6 ? [1, 1e-38, 1e-42, 3e38, Infinity, 0][i]! : Math.exp(random() * 60)),
    );
    const buffers = [
      b('x', 'f32', 'T', 100, 'input'),
      b('p', 'f32', 'T', 100, 'input'),
      b('e', 'f32', 'T', 100),
      b('l', 'f32', 'T', 100),
    ];
    const outputs = [store('e', { op: 'exp', a: element('x') }), store('l', { op: 'log', a: element('p') })];
    // Below −87 the result is 0, while float64 has a value below 1.7e-38.
    expect(
      worst(
        isa,
        buffers,
        100,
        outputs,
        T,
        new Map([
          ['x', x],
          ['p', p],
        ]),
        false,
      ),
    ).toBeLessThan(3e-7);
  });

  it('computes tanh and erf to the last bits, also where they are nearly linear and where they end', () => {
    const T = 40;
    const x = Float64Array.from({ length: T * 100 }, (_, i) =>
      Math.fround(
        i < 9
          ? [0, -0, NaN, Infinity, -Infinity, 1e-40, -1e30, 0.625, 1][i]!
          : random() * (i % 3 === 0 ? 1e-3 : i % 3 === 1 ? 1.5 : 20),
      ),
    );
    const buffers = [b('x', 'f32', 'T', 100, 'input'), b('t', 'f32', 'T', 100), b('e', 'f32', 'T', 100)];
    const scaled = (op: 'tanh' | 'erf'): Scalar => div({ op, a: element('x') }, element('x'));
    const outputs = [store('t', { op: 'tanh', a: element('x') }), store('e', { op: 'erf', a: element('x') })];
    expect(worst(isa, buffers, 100, outputs, T, new Map([['x', x]]), false)).toBeLessThan(3e-7);
    // Relative to the value itself.
    const near = x.map((v) => (Math.abs(v) > 1e-20 && Math.abs(v) < 30 ? v : 0.3));
    expect(
      worst(isa, buffers, 100, [store('t', scaled('tanh')), store('e', scaled('erf'))], T, new Map([['x', near]])),
    ).toBeLessThan(4e-7);
  });

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
        isa,
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

  it('reads and writes every dtype, selects, compares, gathers', () => {
    const T = 21;
    const buffers = [
      b('h', 'f16', 'T', 50, 'input'),
      b('g', 'bf16', 'T', 50, 'input'),
      b('i', 'i32', 'T', 50, 'input'),
      b('t', 'bool', 'T', 50, 'input'),
      b('via', 'i32', 'T', 1, 'input'),
      b('r', 'f32', 'T', 1, 'input'),
      b('parts', 'f32', 'T', 40, 'input'),
      b('odd', 'f32', 'T', 7, 'input'),
      b('oh', 'f16', 'T', 50),
      b('og', 'bf16', 'T', 50),
      b('oi', 'i32', 'T', 50),
      b('ot', 'bool', 'T', 50),
      b('of', 'f32', 'T', 50),
      b('ssq', 'f32', 'T', 4),
    ];
    const input = (name: string, n: number, f: () => number): [string, Float64Array] => [
      name,
      Float64Array.from({ length: n }, f),
    ];
    const inputs = new Map([
      input('h', T * 50, () => Math.fround(random() * 10 ** (random() * 6))),
      input('g', T * 50, () => random() * 100),
      input('i', T * 50, () => Math.round(random() * 1e6)),
      input('t', T * 50, () => (random() > 0 ? 1 : 0)),
      input('via', T, () => Math.floor(((random() + 1) / 2) * T)),
      input('r', T, random),
      input('parts', T * 40, random),
      input('odd', T * 7, random),
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
          { op: 'load', buffer: 'odd', access: { kind: 'periodic', period: 7, via: 'via' } },
        ),
      ),
      rowSum('ssq', { op: 'roundBf16', a: { op: 'min', a: element('h'), b: constant(1) } }),
    ];
    expect(worst(isa, buffers, 50, outputs, T, inputs, false)).toBeLessThan(2e-6);
  });

  it('finds the largest of rows and of segments, also of negative numbers, and NaN', () => {
    const { T, buffers, columns, outputs, inputs } = largestLoop(random);
    expect(worst(isa, buffers, columns, outputs, T, inputs)).toBe(0);
  });

  thorough('goes on with rows that are complete', () => {
    const { T, columns, buffers, outputs, finish, inputs } = finishedLoop(random, 96);
    expect(worst(isa, buffers, columns, outputs, T, inputs, true, finish)).toBe(0);
  });

  thorough('makes a bias of [T, T]', () => {
    for (const T of [1, 31, 32, 50]) {
      const end = Float64Array.from({ length: T }, (_, i) => Math.min(T, i + 1 + (i % 9)));
      const visible: Scalar = {
        op: 'and',
        a: { op: 'le', a: { op: 'columnIndex' }, b: { op: 'rowIndex' } },
        b: { op: 'lt', a: { op: 'rowIndex' }, b: column('end') },
      };
      const buffers = [b('end', 'i32', 'T', 1, 'input'), b('bias', 'f32', 'T', 'T')];
      expect(
        worst(
          isa,
          buffers,
          'T',
          [store('bias', { op: 'select', condition: visible, a: constant(0), b: constant(-Infinity) })],
          T,
          new Map([['end', end]]),
        ),
      ).toBe(0);
    }
  });

  thorough('writes vectors', () => {
    const T = 45;
    const buffers = [b('a', 'f32', 'T', 1, 'input'), b('o', 'f32', 'T', 1), b('n', 'i32', 'T', 1)];
    const outputs = [store('o', mul(element('a'), constant(0.1))), store('n', { op: 'rowIndex' })];
    expect(worst(isa, buffers, 1, outputs, T, new Map([['a', randomArray(random, T)]]))).toBeLessThan(1e-7);
  });
});
