/**
 * Reductions over the last axis. The axis stays with extent 1, so that results broadcast against the operand. Sums that
 * are `apart`, and maxima, are not taken by the kernel that computes the operand, but by a loop behind it.
 */
import type { TensorType } from '../types.js';
import { TypeMismatch, elementCount, op, type Tensor } from './opDef.js';

/** What every reduction is, but for its kind and the number that a row gives. */
const reduction = (summary: string, fold: (row: Float64Array) => number, dtype: 'f32' | 'i32' = 'f32') => ({
  summary,
  operands: OPERANDS,
  infer: ({ x }: Reduced<TensorType>): TensorType => {
    if (x.shape.length === 0) throw new TypeMismatch('cannot reduce a scalar');
    if (x.dtype !== 'f32') throw new TypeMismatch(`needs f32, got ${x.dtype}; insert a cast`);
    return { dtype, shape: [...x.shape.slice(0, -1), 1] };
  },
  evaluate: ({ x }: Reduced<Tensor>, _: unknown, shape: readonly number[]): Tensor => {
    const [width = 0] = x.shape.slice(-1);
    const data = new Float64Array(elementCount(shape));
    for (let row = 0; row < data.length; row++) data[row] = fold(x.data.subarray(row * width, (row + 1) * width));
    return { shape, data };
  },
});

interface Reduced<V> {
  readonly x: V;
}

const OPERANDS = { x: 'one' } as const;
const APART = { apart: 'boolean' } as const;

const sum = (row: Float64Array): number => row.reduce((a, b) => a + b, 0);
const largest = (row: Float64Array): number => row.reduce((a, b) => Math.max(a, b), -Infinity);
/** The first maximum wins. */
const argmax = (row: Float64Array): number => row.reduce((best, v, i) => (v > row[best]! ? i : best), 0);

export const REDUCTIONS = {
  sum: op({ fuse: 'sum', optional: APART, ...reduction('sum(x): Σ over the last axis, kept as 1', sum) }),
  mean: op({
    fuse: 'sum',
    optional: APART,
    ...reduction('mean(x): mean over the last axis, kept as 1', (row) => sum(row) / row.length),
  }),
  reduce_max: op({
    fuse: 'sum',
    optional: APART,
    ...reduction('reduce_max(x): maximum over the last axis, kept as 1', largest),
  }),
  argmax: op({
    fuse: 'reduction',
    ...reduction('argmax(x): i32 index of the first maximum of the last axis, kept as 1', argmax, 'i32'),
  }),
};
