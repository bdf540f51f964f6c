import { describe, expect, it } from 'vitest';
import { oncePer } from '../../ir/oncePer.js';
import { printScalar, type Scalar } from '../../ir/scalar.js';
import { ScalarKeys } from '../../ir/scalarKeys.js';

const load = (buffer: string): Scalar => ({ op: 'load', buffer, access: { kind: 'element' } });
const sum = (a: Scalar, width: number): Scalar => ({ op: 'groupSum', a, width });
const add = (a: Scalar, b: Scalar): Scalar => ({ op: 'add', a, b });

describe('keys of expressions', () => {
  it('are equal where the texts are, and only there', () => {
    const all = [
      ...[load('x'), load('x'), load('y'), add(load('x'), load('y')), add(load('x'), load('y'))],
      ...[add(load('y'), load('x')), sum(load('x'), 16), sum(load('x'), 32), { op: 'neg', a: load('x') } as const],
      ...[{ op: 'const', value: 0 } as const, { op: 'const', value: -Infinity } as const],
      ...[{ op: 'rowSum', buffer: 'x' } as const, { op: 'rowSum', buffer: 'x', by: 'max' } as const],
    ];
    const keys = new ScalarKeys();
    for (const a of all)
      for (const b of all)
        expect(keys.of(a) === keys.of(b), `${printScalar(a)} ${printScalar(b)}`).toBe(
          printScalar(a) === printScalar(b),
        );
  });

  it('find each sub-program once, from the whole to its leaves', () => {
    const seen: string[] = [];
    const value = add(add(load('x'), load('y')), add(load('x'), load('y')));
    new ScalarKeys().search([{ value }, { value: load('y') }], (s) => {
      seen.push(printScalar(s));
      return false;
    });
    expect(seen).toEqual([
      printScalar(value),
      'add(x[row, column], y[row, column])',
      ...['x', 'y'].map((b) => `${b}[row, column]`),
    ]);
  });

  it('take a number of steps in proportion to an expression that shares its parts', () => {
    let value = load('x');
    for (let i = 0; i < 60; i++) value = add(value, value);
    let count = 0;
    new ScalarKeys().search([{ value }], () => {
      count++;
      return false;
    });
    expect(count).toBe(61);
  });
});

describe('oncePer', () => {
  it('computes once for the same objects, in their order', () => {
    let calls = 0;
    const pair = oncePer((a: object, b: object) => [a, b, ++calls]);
    const [x, y] = [{}, {}];
    expect(pair(x, y)).toBe(pair(x, y));
    expect(pair(y, x)[2]).toBe(2);
    expect(pair(x, { ...y })[2]).toBe(3);
  });

  it('keeps undefined, and nothing of a call that throws', () => {
    let calls = 0;
    const nothing = oncePer((_: object) => void calls++);
    const x = {};
    nothing(x);
    nothing(x);
    expect(calls).toBe(1);
    const failing = oncePer((_: object): number => {
      if (calls++ < 2) throw new Error('not yet');
      return calls;
    });
    expect(() => failing(x)).toThrow('not yet');
    expect(failing(x)).toBe(3);
  });
});
