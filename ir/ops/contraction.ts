/** Matrix products. */
import { TypeMismatch, elementCount, type OpDef } from './opDef.js';
import { checkRounding, roundedRows, ROUNDING } from './rounding.js';

export const CONTRACTIONS = {
  linear: {
    summary: 'linear(x[…, K], w[N, K]): f32[…, N] = x·wᵀ, fp32 accumulation; with {rounding}, x is rounded to codes',
    fuse: 'contraction',
    attributes: {},
    optional: ROUNDING,
    arity: [2, 2],
    infer: ([x, w], attributes) => {
      if (x!.shape.length < 1 || w!.shape.length !== 2) throw new TypeMismatch('linear needs x[…, K] and w[N, K]');
      const k = x!.shape.at(-1)!;
      if (k !== w!.shape[1]) throw new TypeMismatch(`linear: x has ${k} columns, w has ${w!.shape[1]!}`);
      checkRounding(attributes, k);
      return { dtype: 'f32', shape: [...x!.shape.slice(0, -1), w!.shape[0]!] };
    },
    evaluate: ([given, w], attributes, shape) => {
      const x = roundedRows(given!, attributes);
      const [n, k] = [w!.shape[0]!, w!.shape[1]!];
      const rows = elementCount(shape) / n;
      const data = new Float64Array(rows * n);
      for (let row = 0; row < rows; row++) {
        for (let j = 0; j < n; j++) {
          let acc = 0;
          for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w!.data[j * k + i]!;
          data[row * n + j] = acc;
        }
      }
      return { shape, data };
    },
  },
  matmul: {
    summary: 'matmul(a[B, M, K], b[B, K, N]): f32[B, M, N], batched',
    fuse: 'contraction',
    attributes: {},
    arity: [2, 2],
    infer: ([a, b]) => {
      if (a!.shape.length !== 3 || b!.shape.length !== 3) throw new TypeMismatch('matmul needs two tensors of rank 3');
      const [batch, m, k] = a!.shape;
      if (b!.shape[0] !== batch || b!.shape[1] !== k)
        throw new TypeMismatch(`matmul: [${a!.shape.join(', ')}] by [${b!.shape.join(', ')}]`);
      return { dtype: 'f32', shape: [batch!, m!, b!.shape[2]!] };
    },
    evaluate: ([a, b], _, shape) => {
      const [batch, m, n] = [shape[0]!, shape[1]!, shape[2]!];
      const k = a!.shape[2]!;
      const data = new Float64Array(batch * m * n);
      for (let s = 0; s < batch; s++) {
        for (let i = 0; i < m; i++) {
          for (let l = 0; l < k; l++) {
            const x = a!.data[(s * m + i) * k + l]!;
            for (let j = 0; j < n; j++) data[(s * m + i) * n + j]! += x * b!.data[(s * k + l) * n + j]!;
          }
        }
      }
      return { shape, data };
    },
  },
} as const satisfies Record<string, OpDef>;
