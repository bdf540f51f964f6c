/** Values that depend on the row alone, where vectors of columns and angles in double need them. */
import { expect, it } from 'vitest';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import type { Scalar } from '../../ir/scalar.js';
import { interfaceOf } from '../support/interface.js';
import { RUNNABLE, randomArray, randomSource, runGenerated } from './harness.js';
import { add, constant, element, mul, store } from './modules.js';
import { casesHere } from '../support/thorough.js';

const T = 5;
const COLUMNS = 48;
const buffers: readonly BufferDecl[] = [
  { name: 'x', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'input' },
  { name: 'one', dtype: 'f32', rows: 'T', columns: 1, space: 'input' },
  { name: 'y', dtype: 'f32', rows: 'T', columns: COLUMNS, space: 'arena' },
];
const negative: Scalar = { op: 'neg', a: constant(-1.5) };
const angle: Scalar = { op: 'sin', a: mul({ op: 'load', buffer: 'one', access: { kind: 'row' } }, constant(3)) };
const module: KernelModule = {
  interface: interfaceOf(buffers),
  buffers,
  weights: [],
  kernels: [
    {
      anchor: 'loop',
      name: 'l',
      path: 'l',
      ops: [],
      rows: 'T',
      columns: COLUMNS,
      outputs: [store('y', add(mul(element('x'), negative), angle))],
    },
  ],
};

const ISAS = RUNNABLE.filter((isa) => isa !== 'amx');
it.each(casesHere(ISAS, ISAS.length - 1))('negated literals and angles of a row on %s', (isa) => {
  const random = randomSource(3);
  const inputs = new Map([
    ['x', randomArray(random, T * COLUMNS)],
    ['one', randomArray(random, T)],
  ]);
  const sizes = { T, R: 0 };
  const schedules = [{ kind: 'loop', isa, rows: 2 } as const];
  const { values, overruns } = runGenerated(module, { sizes, inputs, schedules, isQuick: true });
  expect(overruns).toEqual([]);
  const want = interpretModule(module, { sizes, buffers: inputs, tensors: new Map() }).get('y')!;
  values.get('y')!.forEach((value, i) => expect(Math.abs(value - want[i]!)).toBeLessThan(1e-6));
});
