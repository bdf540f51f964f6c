/** Matrix products. */
import { roundToCodes } from '../rounding.js';
import { extentsOf } from '../types.js';
import { checkPositive, elementCount, op, type Tensor, TypeMismatch } from './opDef.js';

/** That many neighbours of a row of x become codes of 8 bits with a scale. */
export const ROUNDING = { rounding: 'number' } as const;

/** Throws TypeMismatch unless the attribute is absent, or columns that divide those of x. */
export function checkRounding(columns: number | undefined, k: string | number | undefined): void {
  checkPositive('rounding', columns);
  if (columns !== undefined && (typeof k !== 'number' || !Number.isInteger(columns) || k % columns !== 0))
    throw new TypeMismatch(`rounding ${columns} does not divide ${String(k)} columns`);
}

/** x as it is multiplied. */
export const roundedRows = (x: Tensor, columns: number | undefined): Tensor =>
  columns === undefined ? x : { ...x, data: roundToCodes(x.data, columns) };

export const CONTRACTIONS = {
  linear: op({
    summary: 'linear(x[…, K], w[N, K]): f32[…, N] = x·wᵀ, fp32 accumulation; with {rounding}, x is rounded to codes',
    fuse: 'contraction',
    operands: { x: 'one', w: 'one' },
    optional: ROUNDING,
    infer: ({ x, w }, { rounding }) => {
      const k = x.shape.at(-1);
      if (k === undefined || w.shape.length !== 2) throw new TypeMismatch('linear needs x[…, K] and w[N, K]');
      const [n, columns] = extentsOf(w.shape, 2);
      if (k !== columns) throw new TypeMismatch(`linear: x has ${k} columns, w has ${columns}`);
      checkRounding(rounding, k);
      return { dtype: 'f32', shape: [...x.shape.slice(0, -1), n] };
    },
    evaluate: ({ x: given, w }, { rounding }, shape) => {
      const x = roundedRows(given, rounding);
      const [n, k] = extentsOf(w.shape, 2);
      const rows = elementCount(shape) / n;
      const data = new Float64Array(rows * n);
      for (let row = 0; row < rows; row++) {
        for (let j = 0; j < n; j++) {
          let acc = 0;
          for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w.data[j * k + i]!;
          data[row * n + j] = acc;
        }
      }
      return { shape, data };
    },
  }),
  head_linear: op({
    summary: 'head_linear(x[T, h, K], w[h·N, K]): f32[T, h, N], each head by its own N rows of w, fp32 accumulation',
    fuse: 'contraction',
    operands: { x: 'one', w: 'one' },
    infer: ({ x, w }) => {
      if (x.shape.length !== 3 || w.shape.length !== 2)
        throw new TypeMismatch('head_linear needs x[T, h, K] and w[h·N, K]');
      const [[rows, heads, k], [all, depth]] = [extentsOf(x.shape, 3), extentsOf(w.shape, 2)];
      if (k !== depth) throw new TypeMismatch(`head_linear: x has ${k} columns in a head, w has ${depth}`);
      if (typeof heads !== 'number' || typeof all !== 'number' || all % heads !== 0)
        throw new TypeMismatch(`head_linear: ${all} rows are not those of ${heads} heads`);
      return { dtype: 'f32', shape: [rows, heads, all / heads] };
    },
    evaluate: ({ x, w }, _, shape) => {
      const [[rows, heads, n], [, k]] = [extentsOf(shape, 3), extentsOf(w.shape, 2)];
      const data = new Float64Array(elementCount(shape));
      for (let row = 0; row < rows; row++) {
        for (let j = 0; j < heads * n; j++) {
          const at = (row * heads + Math.floor(j / n)) * k;
          let acc = 0;
          for (let i = 0; i < k; i++) acc += x.data[at + i]! * w.data[j * k + i]!;
          data[row * heads * n + j] = acc;
        }
      }
      return { shape, data };
    },
  }),
  matmul: op({
    summary: 'matmul(a[B, M, K], b[B, K, N]): f32[B, M, N], batched',
    fuse: 'contraction',
    operands: { a: 'one', b: 'one' },
    infer: ({ a, b }) => {
      if (a.shape.length !== 3 || b.shape.length !== 3) throw new TypeMismatch('matmul needs two tensors of rank 3');
      const [[batch, m, k], [same, depth, n]] = [extentsOf(a.shape, 3), extentsOf(b.shape, 3)];
      if (same !== batch || depth !== k)
        throw new TypeMismatch(`matmul: [${a.shape.join(', ')}] by [${b.shape.join(', ')}]`);
      return { dtype: 'f32', shape: [batch, m, n] };
    },
    evaluate: ({ a, b }, _, shape) => {
      const [batch, m, n] = extentsOf(shape, 3);
      const [, , k] = extentsOf(a.shape, 3);
      const data = new Float64Array(batch * m * n);
      for (let s = 0; s < batch; s++) {
        for (let i = 0; i < m; i++) {
          for (let l = 0; l < k; l++) {
            const x = a.data[(s * m + i) * k + l]!;
            for (let j = 0; j < n; j++) data[(s * m + i) * n + j]! += x * b.data[(s * k + l) * n + j]!;
          }
        }
      }
      return { shape, data };
    },
  }),
};
