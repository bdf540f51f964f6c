/**
 * Ops that passes recognize in graphs of primitive ops. Each has a kernel of its own. Models never contain them. Logits
 * may have a cap: z is cap·tanh(z / cap) then.
 */
import { drawScore } from '../gumbel.js';
import { softCap } from '../softCap.js';
import { attention } from './attention.js';
import { TypeMismatch, dimsAttribute, indexAt, positiveAttribute, type OpDef, type Tensor } from './opDef.js';
import { checkRounding, roundedRows, ROUNDING } from './rounding.js';

/** z[i, ·] = cap(scale[i]·(x[i]·wᵀ)) for the vocabulary. A scale of rank 0 is that of every row. */
function logits(x: Tensor, w: Tensor, scale: Tensor, row: number, cap: number | undefined): Float64Array {
  const [vocab, k] = [w.shape[0]!, w.shape[1]!];
  return Float64Array.from({ length: vocab }, (_, j) => {
    let acc = 0;
    for (let i = 0; i < k; i++) acc += x.data[row * k + i]! * w.data[j * k + i]!;
    return softCap(acc * scale.data[scale.shape.length === 0 ? 0 : row]!, cap);
  });
}

/** A number for each row of logits; `target` is NaN for an op without targets. */
function scoring(
  summary: string,
  dtype: 'f32' | 'i32',
  operands: 3 | 4,
  score: (z: Float64Array, target: number) => number,
): OpDef {
  return {
    summary,
    fuse: 'opaque',
    attributes: {},
    optional: { cap: 'number', ...ROUNDING },
    arity: [operands, operands],
    infer: ([x, w, scale, target], attributes) => {
      positiveAttribute(attributes, 'cap');
      checkRounding(attributes, x!.shape[1]);
      if (x!.shape.length !== 2 || w!.shape.length !== 2 || x!.shape[1] !== w!.shape[1])
        throw new TypeMismatch('needs x[R, K] and w[V, K]');
      const isOfRows = scale!.shape.length === 2 && scale!.shape[1] === 1 && scale!.shape[0] === x!.shape[0];
      if (!isOfRows && scale!.shape.length > 0) throw new TypeMismatch('the row scale must be f32[R, 1] or f32[]');
      if (
        target !== undefined &&
        (target.dtype !== 'i32' || target.shape.length !== 1 || target.shape[0] !== x!.shape[0])
      )
        throw new TypeMismatch('the target must be i32[R]');
      return { dtype, shape: [x!.shape[0]!] };
    },
    evaluate: ([given, w, scale, target], attributes, shape) => {
      const x = roundedRows(given!, attributes);
      return {
        shape,
        data: Float64Array.from({ length: shape[0]! }, (_v, row) =>
          score(
            logits(x, w!, scale!, row, positiveAttribute(attributes, 'cap')),
            target === undefined ? NaN : indexAt(target, row, w!.shape[0]!),
          ),
        ),
      };
    },
  };
}

const logProbAt = (z: Float64Array, token: number): number => {
  const top = z.reduce((a, b) => Math.max(a, b), -Infinity);
  return z[token]! - top - Math.log(z.reduce((a, b) => a + Math.exp(b - top), 0));
};

/** The first maximum. */
const bestOf = (z: Float64Array): number => z.reduce((best, v, i) => (v > z[best]! ? i : best), 0);

/** Checks the operands of any score. */
const SHAPES = scoring('', 'f32', 3, () => NaN);

/** A number for each row of logits and a token drawn from it: operands inverseTemperature[R], low[R], high[R]. */
function drawing(summary: string, dtype: 'f32' | 'i32', result: (z: Float64Array, token: number) => number): OpDef {
  const plain = scoring(summary, dtype, 3, () => NaN);
  return {
    ...plain,
    arity: [6, 6],
    infer: ([x, w, scale, ...draw], attributes) => {
      const type = plain.infer([x!, w!, scale!], attributes);
      if (draw.some((v, i) => v.dtype !== (i === 0 ? 'f32' : 'i32') || v.shape.join() !== type.shape.join()))
        throw new TypeMismatch('a draw needs f32[R] inverse temperatures and two i32[R] halves of keys');
      return type;
    },
    evaluate: ([given, w, scale, heat, low, high], attributes, shape) => {
      const x = roundedRows(given!, attributes);
      const data = Float64Array.from({ length: shape[0]! }, (_v, row) => {
        const z = logits(x, w!, scale!, row, positiveAttribute(attributes, 'cap'));
        const key = { low: low!.data[row]!, high: high!.data[row]! };
        return result(z, bestOf(z.map((value, token) => drawScore(value, heat!.data[row]!, key, token))));
      });
      return { shape, data };
    },
  };
}

/** The logits themselves, of the first rows. */
const headLogits: OpDef = {
  ...scoring('head_logits(x, w, scale) {rows = [F]}: f32[F, V] = scale·x·wᵀ of the first rows', 'f32', 3, () => NaN),
  attributes: { rows: 'dims' },
  infer: ([x, w, scale], attributes) => {
    const { rows: _rows, ...others } = attributes;
    const type = SHAPES.infer([x!, w!, scale!], others);
    const rows = dimsAttribute(attributes, 'rows');
    if (rows.length !== 1) throw new TypeMismatch('the rows must be one extent');
    return { dtype: type.dtype, shape: [rows[0]!, w!.shape[0]!] };
  },
  evaluate: ([given, w, scale], attributes, shape) => {
    const x = roundedRows(given!, attributes);
    const data = new Float64Array(shape[0]! * shape[1]!);
    const cap = positiveAttribute(attributes, 'cap');
    for (let row = 0; row < shape[0]!; row++) data.set(logits(x, w!, scale!, row, cap), row * shape[1]!);
    return { shape, data };
  },
};

const DRAW = '(x, w, scale, inverseTemperature[R], low[R], high[R])';

export const FUSED = {
  attention,
  logprob: scoring(
    'logprob(x[R, K], w[V, K], scale[R, 1], target[R]) {cap?}: f32[R] = log_softmax(scale·x·wᵀ) at target',
    'f32',
    4,
    logProbAt,
  ),
  is_argmax: scoring(
    'is_argmax(x, w, scale, target): i32[R] = 1 where target is the first maximum of scale·x·wᵀ',
    'i32',
    4,
    (z, target) => (bestOf(z) === target ? 1 : 0),
  ),
  draw: drawing(`draw${DRAW}: i32[R] = a token of softmax(z·inverseTemperature), z = scale·x·wᵀ`, 'i32', (_, at) => at),
  draw_logprob: drawing(`draw_logprob${DRAW}: f32[R] = log_softmax(z) at the token that draw gives`, 'f32', logProbAt),
  head_logits: headLogits,
} as const satisfies Record<string, OpDef>;

/** Ops of the vocabulary that one pass over the head's columns computes together. */
export const SCORE_OPS = ['logprob', 'is_argmax', 'draw', 'draw_logprob', 'head_logits'] as const;
export type ScoreOp = (typeof SCORE_OPS)[number];

export const isScoreOp = (op: string): op is ScoreOp => SCORE_OPS.some((each) => each === op);
