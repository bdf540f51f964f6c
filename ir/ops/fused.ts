/**
 * Ops that passes recognize in graphs of primitive ops. Each has a kernel of its own. Models never contain them. Logits
 * may have a cap: z is cap·tanh(z / cap) then.
 */
import { softCap } from '../evaluateScalar.js';
import { drawScore } from '../gumbel.js';
import { type Dim, extentsOf, isFloat, type TensorType } from '../types.js';
import { attention } from './attention.js';
import { checkRounding, roundedRows, ROUNDING } from './contraction.js';
import { type Attributes, checkPositive, indexAt, op, type Tensor, TypeMismatch } from './opDef.js';

/** A head: logits are scale·x·wᵀ for rows of x and the vocabulary's rows of w, plus a bias of columns. */
const HEAD = {
  x: 'one',
  w: 'one',
  scale: 'one',
  bias: { when: ({ biased }: Attributes): boolean => biased === true },
} as const;
/** What tokens are drawn with. Columns are tokens, or stand for those that `ids` says. */
const DRAW = { inverseTemperature: 'one', low: 'one', high: 'one', ids: 'optional' } as const;
const OPTIONAL = { cap: 'number', biased: 'boolean', ...ROUNDING } as const;

interface HeadOperands<V> {
  readonly x: V;
  readonly w: V;
  readonly scale: V;
  readonly bias?: V | undefined;
}

interface HeadAttributes {
  readonly cap?: number | undefined;
  readonly rounding?: number | undefined;
}

/** Checks the operands of a head, and gives the extents of its logits. */
function headShape(
  { x, w, scale, bias }: HeadOperands<TensorType>,
  { cap, rounding }: HeadAttributes,
): readonly [Dim, Dim] {
  checkPositive('cap', cap);
  checkRounding(rounding, x.shape[1]);
  if (x.shape.length !== 2 || w.shape.length !== 2 || x.shape[1] !== w.shape[1])
    throw new TypeMismatch('needs x[R, K] and w[V, K]');
  const [[rows], [vocab]] = [extentsOf(x.shape, 2), extentsOf(w.shape, 2)];
  const isOfRows = scale.shape.length === 2 && scale.shape[1] === 1 && scale.shape[0] === rows;
  if (!isOfRows && scale.shape.length > 0) throw new TypeMismatch('the row scale must be f32[R, 1] or f32[]');
  if (bias !== undefined && !(isFloat(bias.dtype) && bias.shape.join() === String(vocab)))
    throw new TypeMismatch(`the bias must be a vector of ${vocab} numbers`);
  return [rows, vocab];
}

/**
 * What `of` makes of the logits z[i, ·] = cap(scale[i]·(x[i]·wᵀ) + bias) of the first `rows` rows. A scale of rank 0 is
 * that of every row.
 */
function perRow<T>(
  { x, w, scale, bias }: HeadOperands<Tensor>,
  { cap, rounding }: HeadAttributes,
  rows: number,
  of: (z: Float64Array, row: number) => T,
): T[] {
  const [vocab, k] = extentsOf(w.shape, 2);
  const { data } = roundedRows(x, rounding);
  return Array.from({ length: rows }, (_, row) => {
    const factor = scale.data[scale.shape.length === 0 ? 0 : row]!;
    const z = Float64Array.from({ length: vocab }, (_v, j) => {
      let acc = 0;
      for (let i = 0; i < k; i++) acc += data[row * k + i]! * w.data[j * k + i]!;
      return softCap(acc * factor + (bias?.data[j] ?? 0), cap);
    });
    return of(z, row);
  });
}

/** A number for each row of logits and its target. */
const scoring = (summary: string, dtype: 'f32' | 'i32', score: (z: Float64Array, target: number) => number) =>
  op({
    summary,
    fuse: 'opaque',
    operands: { ...HEAD, target: 'one' },
    optional: OPTIONAL,
    infer: ({ target, ...head }, attributes) => {
      const [rows] = headShape(head, attributes);
      if (target.dtype !== 'i32' || target.shape.length !== 1 || target.shape[0] !== rows)
        throw new TypeMismatch('the target must be i32[R]');
      return { dtype, shape: [rows] };
    },
    evaluate: ({ target, ...head }, attributes, shape) => {
      const [rows] = extentsOf(shape, 1);
      const scores = perRow(head, attributes, rows, (z, row) => score(z, indexAt(target, row, z.length)));
      return { shape, data: Float64Array.from(scores) };
    },
  });

/** A number for each row of logits and a column that is drawn from it. */
const drawing = (
  summary: string,
  dtype: 'f32' | 'i32',
  result: (z: Float64Array, column: number, tokenOf: (column: number) => number) => number,
) =>
  op({
    summary,
    fuse: 'opaque',
    operands: { ...HEAD, ...DRAW },
    optional: OPTIONAL,
    infer: ({ inverseTemperature, low, high, ids, ...head }, attributes) => {
      const [rows, vocab] = headShape(head, attributes);
      const isOfRows = ({ shape }: TensorType): boolean => shape.length === 1 && shape[0] === rows;
      if (
        inverseTemperature.dtype !== 'f32' ||
        [low, high].some((key) => key.dtype !== 'i32') ||
        ![inverseTemperature, low, high].every(isOfRows)
      )
        throw new TypeMismatch('a draw needs f32[R] inverse temperatures and two i32[R] halves of keys');
      if (ids !== undefined && (ids.dtype !== 'f32' || ids.shape.join() !== String(vocab)))
        throw new TypeMismatch(`a draw needs a token for each column, f32[${vocab}]`);
      return { dtype, shape: [rows] };
    },
    evaluate: ({ inverseTemperature, low, high, ids, ...head }, attributes, shape) => {
      const [rows] = extentsOf(shape, 1);
      const tokenOf = (column: number): number => (ids === undefined ? column : ids.data[column]!);
      const drawn = perRow(head, attributes, rows, (z, row) => {
        const [heat, key] = [inverseTemperature.data[row]!, { low: low.data[row]!, high: high.data[row]! }];
        const drawn = argmax(z.map((value, column) => drawScore(value, heat, key, tokenOf(column))));
        return result(z, drawn, tokenOf);
      });
      return { shape, data: Float64Array.from(drawn) };
    },
  });

const logProbAt = (z: Float64Array, token: number): number => {
  const top = z.reduce((a, b) => Math.max(a, b), -Infinity);
  return z[token]! - top - Math.log(z.reduce((a, b) => a + Math.exp(b - top), 0));
};

/** The first maximum. */
const argmax = (z: Float64Array): number => z.reduce((best, v, i) => (v > z[best]! ? i : best), 0);

const DRAWING = '(x, w, scale, bias?, inverseTemperature[R], low[R], high[R], ids?[V])';

export const FUSED = {
  attention,
  logprob: scoring(
    'logprob(x[R, K], w[V, K], scale[R, 1], bias?[V], target[R]) {cap?, biased?}: f32[R] = ' +
      'log_softmax(scale·x·wᵀ + bias) at target',
    'f32',
    logProbAt,
  ),
  is_argmax: scoring(
    'is_argmax(x, w, scale, bias?, target): i32[R] = 1 where target is the first maximum of scale·x·wᵀ + bias',
    'i32',
    (z, target) => (argmax(z) === target ? 1 : 0),
  ),
  draw: drawing(
    `draw${DRAWING}: i32[R] = a token of softmax(z·inverseTemperature), z = scale·x·wᵀ + bias`,
    'i32',
    (_, column, tokenOf) => tokenOf(column),
  ),
  draw_logprob: drawing(
    `draw_logprob${DRAWING}: f32[R] = log_softmax(z) at the token that draw gives`,
    'f32',
    logProbAt,
  ),
  head_logits: op({
    summary: 'head_logits(x, w, scale, bias?) {rows = [F]}: f32[F, V] = scale·x·wᵀ + bias of the first rows',
    fuse: 'opaque',
    operands: HEAD,
    attributes: { rows: 'dims' },
    optional: OPTIONAL,
    infer: (head, { rows, ...attributes }) => {
      const [, vocab] = headShape(head, attributes);
      if (rows.length !== 1) throw new TypeMismatch('the rows must be one extent');
      return { dtype: 'f32', shape: [...rows, vocab] };
    },
    evaluate: (head, attributes, shape) => {
      const [rows, vocab] = extentsOf(shape, 2);
      const data = new Float64Array(rows * vocab);
      perRow(head, attributes, rows, (z, row) => data.set(z, row * vocab));
      return { shape, data };
    },
  }),
};

/** Ops of the vocabulary that one pass over the head's columns computes together. */
export const SCORE_OPS = ['logprob', 'is_argmax', 'draw', 'draw_logprob', 'head_logits'] as const;
export type ScoreOp = (typeof SCORE_OPS)[number];
