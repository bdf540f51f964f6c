/** Ops that passes recognise in graphs of primitive ops. Each has a kernel of its own. Models never contain them. */
import {
  TypeMismatch,
  elementCount,
  indexAt,
  numberAttribute,
  stringAttribute,
  type OpDef,
  type Tensor,
} from './opDef.js';

/** z[i, ·] = scale[i]·(x[i]·wᵀ) for the vocabulary. */
function logits(x: Tensor, w: Tensor, scale: Tensor, row: number): Float64Array {
  const [vocab, k] = [w.shape[0]!, w.shape[1]!];
  return Float64Array.from({ length: vocab }, (_, j) => {
    let acc = 0;
    for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w.data[j * k + i]!;
    return acc * scale.data[row]!;
  });
}

function scoring(summary: string, dtype: 'f32' | 'i32', score: (z: Float64Array, target: number) => number): OpDef {
  return {
    summary,
    fuse: 'opaque',
    attributes: {},
    arity: [4, 4],
    infer: ([x, w, scale, target]) => {
      if (x!.shape.length !== 2 || w!.shape.length !== 2 || x!.shape[1] !== w!.shape[1])
        throw new TypeMismatch('needs x[R, K] and w[V, K]');
      if (scale!.shape.length !== 2 || scale!.shape[1] !== 1 || scale!.shape[0] !== x!.shape[0])
        throw new TypeMismatch('the row scale must be f32[R, 1]');
      if (target!.dtype !== 'i32' || target!.shape.length !== 1 || target!.shape[0] !== x!.shape[0])
        throw new TypeMismatch('the target must be i32[R]');
      return { dtype, shape: [x!.shape[0]!] };
    },
    evaluate: ([x, w, scale, target], _, shape) => ({
      shape,
      data: Float64Array.from({ length: shape[0]! }, (_v, row) =>
        score(logits(x!, w!, scale!, row), indexAt(target!, row, w!.shape[0]!)),
      ),
    }),
  };
}

export const FUSED = {
  attention: {
    summary:
      'attention(q[Q, h, d], k[T, g, d], v[T, g, d], mask, queryRow?) {scale, mask}: softmax(scale·q·kᵀ + mask)·v; ' +
      "mask 'bias': f32[T, T] added; 'column': i32[T] subtreeEnd, key k visible to query q when k <= q < subtreeEnd[k]",
    fuse: 'opaque',
    attributes: { scale: 'number', mask: 'string' },
    arity: [4, 5],
    infer: ([q, k, v, mask, queryRow], attributes) => {
      const kind = stringAttribute(attributes, 'mask');
      numberAttribute(attributes, 'scale');
      if (q!.shape.length !== 3 || k!.shape.length !== 3 || v!.shape.length !== 3)
        throw new TypeMismatch('attention needs q, k and v of rank 3');
      const [heads, kvHeads] = [q!.shape[1], k!.shape[1]];
      if (typeof heads !== 'number' || typeof kvHeads !== 'number' || heads % kvHeads !== 0)
        throw new TypeMismatch(
          `${String(heads)} query heads cannot be shared evenly among ${String(kvHeads)} key heads`,
        );
      if (q!.shape[2] !== k!.shape[2] || k!.shape[0] !== v!.shape[0] || kvHeads !== v!.shape[1])
        throw new TypeMismatch('attention: the shapes of q, k and v do not match');
      if (
        kind === 'column'
          ? mask!.dtype !== 'i32' || mask!.shape.length !== 1 || mask!.shape[0] !== k!.shape[0]
          : kind !== 'bias' ||
            mask!.shape.length !== 2 ||
            mask!.shape[0] !== q!.shape[0] ||
            mask!.shape[1] !== k!.shape[0]
      ) {
        throw new TypeMismatch(`the operand of mask '${kind}' has the wrong type`);
      }
      if (queryRow !== undefined && (queryRow.dtype !== 'i32' || queryRow.shape.length !== 1))
        throw new TypeMismatch('queryRow must be i32[R]');
      return { dtype: 'f32', shape: [queryRow === undefined ? q!.shape[0]! : queryRow.shape[0]!, heads, v!.shape[2]!] };
    },
    evaluate: ([q, k, v, mask, queryRow], attributes, shape) => {
      const scale = numberAttribute(attributes, 'scale');
      const isColumn = stringAttribute(attributes, 'mask') === 'column';
      const [rows, heads, width] = [shape[0]!, shape[1]!, shape[2]!];
      const [keys, groups, depth] = [k!.shape[0]!, k!.shape[1]!, k!.shape[2]!];
      const data = new Float64Array(elementCount(shape));
      for (let r = 0; r < rows; r++) {
        const at = queryRow === undefined ? r : indexAt(queryRow, r, q!.shape[0]!);
        for (let h = 0; h < heads; h++) {
          const g = Math.floor((h * groups) / heads);
          const scores = Float64Array.from({ length: keys }, (_, t) => {
            if (isColumn && !(t <= at && at < mask!.data[t]!)) return -Infinity;
            let dot = 0;
            for (let i = 0; i < depth; i++)
              dot += q!.data[(at * heads + h) * depth + i]! * k!.data[(t * groups + g) * depth + i]!;
            return dot * scale + (isColumn ? 0 : mask!.data[at * keys + t]!);
          });
          const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
          const weights = scores.map((s) => Math.exp(s - top));
          const total = weights.reduce((a, b) => a + b, 0);
          weights.forEach((p, t) => {
            if (p === 0) return;
            for (let i = 0; i < width; i++)
              data[(r * heads + h) * width + i]! += (p / total) * v!.data[(t * groups + g) * width + i]!;
          });
        }
      }
      return { shape, data };
    },
  },
  logprob: scoring(
    'logprob(x[R, K], w[V, K], scale[R, 1], target[R]): f32[R] = log_softmax(scale·x·wᵀ) at target',
    'f32',
    (z, target) => {
      const top = z.reduce((a, b) => Math.max(a, b), -Infinity);
      return z[target]! - top - Math.log(z.reduce((a, b) => a + Math.exp(b - top), 0));
    },
  ),
  is_argmax: scoring(
    'is_argmax(x, w, scale, target): i32[R] = 1 where target is the first maximum of scale·x·wᵀ',
    'i32',
    (z, target) => (z.reduce((best, v, i) => (v > z[best]! ? i : best), 0) === target ? 1 : 0),
  ),
} as const satisfies Record<string, OpDef>;
