/**
 * Ops that choose tokens from whole rows of logits. They have no form in primitive ops: models use them as they are,
 * and one kernel computes all that are asked of the same logits.
 */
import { adjustLogits, chooseToken, largestTokens, logSumExp } from '../filters.js';
import {
  MAX_TOP_TOKENS,
  mapInputs,
  maskWords,
  rowSampling,
  SAMPLE_INPUT_NAMES,
  SAMPLE_INPUTS,
} from '../sampleInputs.js';
import type { TensorType } from '../types.js';
import { elementCount, indexAt, op, rowsOf, TypeMismatch } from './opDef.js';

function isLogits({ dtype, shape }: TensorType): boolean {
  return dtype === 'f32' && shape.length === 2 && typeof shape[1] === 'number';
}

/** Of the tokens in a row of `count[row]` most likely ones, what `of` says; 0 past them. */
const top = (summary: string, dtype: 'i32' | 'f32', of: (z: Float64Array, token: number) => number) =>
  op({
    summary,
    fuse: 'opaque',
    operands: { z: 'one', count: 'one' },
    attributes: { most: 'number' },
    infer: ({ z, count }, { most }) => {
      if (!Number.isInteger(most) || most < 1 || most > MAX_TOP_TOKENS)
        throw new TypeMismatch(`${most} most likely tokens is not a whole number from 1 to ${MAX_TOP_TOKENS}`);
      if (!isLogits(z) || count.dtype !== 'i32' || count.shape.length !== 1)
        throw new TypeMismatch('needs f32[F, V] logits and i32[F] counts');
      return { dtype, shape: [...z.shape.slice(0, 1), most] };
    },
    evaluate: ({ z, count }, { most }, shape) => ({
      shape,
      data: Float64Array.from(
        rowsOf(z).flatMap((row, i) => {
          const tokens = largestTokens(row, Math.min(count.data[i] ?? 0, most));
          return Array.from({ length: most }, (_, at) => {
            const token = tokens[at];
            return token === undefined ? 0 : of(row, token);
          });
        }),
      ),
    }),
  });

/** The operands of `sample` beside the logits. */
const INPUTS = mapInputs(() => 'one' as const);

export const SAMPLING = {
  first_rows: op({
    summary: 'first_rows(x[N, …]) {rows = [F]}: x[F, …], the first rows; F is within N',
    fuse: 'movement',
    operands: { x: 'one' },
    attributes: { rows: 'dims' },
    infer: ({ x }, { rows }) => {
      if (rows.length !== 1 || x.shape.length === 0) throw new TypeMismatch('first_rows needs x[N, …] and one extent');
      return { dtype: x.dtype, shape: [...rows, ...x.shape.slice(1)] };
    },
    evaluate: ({ x }, _, shape) => {
      const data = new Float64Array(elementCount(shape));
      data.set(x.data.subarray(0, data.length));
      return { shape, data };
    },
  }),
  sample: op({
    summary: `sample(z[F, V], ${SAMPLE_INPUT_NAMES.join(', ')}): i32[F], tokens chosen from logits (ir/filters)`,
    fuse: 'opaque',
    operands: { z: 'one', ...INPUTS },
    infer: ({ z, ...inputs }) => {
      if (!isLogits(z)) throw new TypeMismatch('needs f32[F, V] logits');
      const words = maskWords(z.shape[1] as number);
      for (const name of SAMPLE_INPUT_NAMES) {
        const { dtype, per } = SAMPLE_INPUTS[name];
        const { shape } = inputs[name];
        if (
          inputs[name].dtype === dtype &&
          (per === 'mask' ? shape[1] === words && shape.length === 2 : shape.length === 1)
        )
          continue;
        throw new TypeMismatch(
          per === 'mask' ? `${name} must be ${dtype}[M, ${words}]` : `${name} must be a vector of ${dtype}`,
        );
      }
      return { dtype: 'i32', shape: z.shape.slice(0, 1) };
    },
    evaluate: ({ z, ...inputs }, _, shape) => {
      const numbers = mapInputs((name) => inputs[name].data);
      return {
        shape,
        data: Float64Array.from(rowsOf(z), (row, i) => {
          const { filters, draw, entries, mask } = rowSampling(numbers, i, row.length);
          return chooseToken(adjustLogits(row, filters, entries, mask), filters, draw);
        }),
      };
    },
  }),
  sample_logprob: op({
    summary: 'sample_logprob(z[F, V], token[F]): f32[F] = log_softmax(z) at token',
    fuse: 'opaque',
    operands: { z: 'one', token: 'one' },
    infer: ({ z, token }) => {
      if (!isLogits(z) || token.dtype !== 'i32' || token.shape.join() !== String(z.shape[0]))
        throw new TypeMismatch('needs f32[F, V] logits and i32[F] tokens');
      return { dtype: 'f32', shape: token.shape };
    },
    evaluate: ({ z, token }, _, shape) => ({
      shape,
      data: Float64Array.from(rowsOf(z), (row, i) => row[indexAt(token, i, row.length)]! - logSumExp(row)),
    }),
  }),
  top_tokens: top('top_tokens(z[F, V], count[F]) {most}: i32[F, most], the most likely tokens', 'i32', (_, at) => at),
  top_logprobs: top(
    'top_logprobs(z[F, V], count[F]) {most}: f32[F, most], their log-probabilities',
    'f32',
    (z, at) => z[at]! - logSumExp(z),
  ),
};

/** Ops that one kernel computes together. */
export const SAMPLE_OPS = ['sample', 'sample_logprob', 'top_tokens', 'top_logprobs'] as const;
export type SampleOp = (typeof SAMPLE_OPS)[number];
