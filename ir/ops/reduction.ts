/**
 * Reductions over the last axis. The axis stays with extent 1, so that results broadcast against the operand. Sums that
 * are `apart`, and maxima, are not taken by the kernel that computes the operand, but by a loop behind it.
 */
import { TypeMismatch, elementCount, type OpDef } from './opDef.js';

function reduction(
  fuse: 'sum' | 'reduction',
  summary: string,
  fold: (row: Float64Array) => number,
  dtype: 'same' | 'i32' = 'same',
): OpDef {
  return {
    summary,
    fuse,
    attributes: {},
    ...(fuse === 'sum' ? { optional: { apart: 'boolean' } as const } : {}),
    arity: [1, 1],
    infer: ([x]) => {
      if (x!.shape.length === 0) throw new TypeMismatch('cannot reduce a scalar');
      if (x!.dtype !== 'f32') throw new TypeMismatch(`needs f32, got ${x!.dtype}; insert a cast`);
      return { dtype: dtype === 'same' ? x!.dtype : dtype, shape: [...x!.shape.slice(0, -1), 1] };
    },
    evaluate: ([x], _, shape) => {
      const width = x!.shape.at(-1)!;
      const data = new Float64Array(elementCount(shape));
      for (let row = 0; row < data.length; row++) data[row] = fold(x!.data.subarray(row * width, (row + 1) * width));
      return { shape, data };
    },
  };
}

const sum = (row: Float64Array): number => row.reduce((a, b) => a + b, 0);
/** The first maximum wins. */
const argmax = (row: Float64Array): number => row.reduce((best, v, i) => (v > row[best]! ? i : best), 0);

export const REDUCTIONS = {
  sum: reduction('sum', 'sum(x): Σ over the last axis, kept as 1', sum),
  mean: reduction('sum', 'mean(x): mean over the last axis, kept as 1', (row) => sum(row) / row.length),
  reduce_max: reduction('sum', 'reduce_max(x): maximum over the last axis, kept as 1', (row) =>
    row.reduce((a, b) => Math.max(a, b), -Infinity),
  ),
  argmax: reduction(
    'reduction',
    'argmax(x): i32 index of the first maximum of the last axis, kept as 1',
    argmax,
    'i32',
  ),
} as const satisfies Record<string, OpDef>;
