/** Rows of a decoder's logits: log-probabilities of targets, and tokens that are drawn. */
import type { Role } from '../../ir/function.js';
import type { GraphBuilder, Value } from '../../ir/graph/graph.js';
import { MAX_TOP_TOKENS, mapInputs, maskWords, SAMPLE_INPUTS, type SampleInput } from '../../ir/sampleInputs.js';
import { defined } from '../../system/defined.js';
import type { DecoderShape } from './layers.js';

export const rowInput = (b: GraphBuilder): Value => b.param('row', 'i32', ['R'], { kind: 'row', of: 'T' });

/** Rows of logits, and what they say of targets. */
export interface RowLogits {
  /** f32[R]: the log-probability of target[r] after token row[r]. */
  readonly logProb: Value;
  /** f32[R, V]: the logits of the rows, and the logarithms of their softmax. */
  readonly logits: Value;
  readonly logProbs: Value;
  /** i32[R] */
  readonly row: Value;
  readonly target: Value;
}

export interface RowScores extends RowLogits {
  /** i32[R]: 1 where the target is the most likely token. */
  readonly isArgmax: Value;
}

/** f32[n, V]: the logarithms of the softmax of logits. */
function logSoftmax(b: GraphBuilder, logits: Value): Value {
  const shifted = b.add('sub', { a: logits, b: b.add('reduce_max', { x: logits }, {}, 'top') }, {}, 'shifted');
  return b.add(
    'sub',
    { a: shifted, b: b.add('log', { x: b.add('sum', { x: b.add('exp', { x: shifted }) }) }) },
    {},
    'log_probs',
  );
}

/** The rows that the input `row` names of logits f32[T, V]. */
export function logitRows(b: GraphBuilder, { vocabSize }: Pick<DecoderShape, 'vocabSize'>, all: Value): RowLogits {
  const logProbs = logSoftmax(b, all);
  const row = rowInput(b);
  const target = b.param('target', 'i32', ['R'], { kind: 'token', vocab: vocabSize });
  const scored = b.add('gather_rows', { x: logProbs, index: row });
  return {
    logProb: b.add('gather_last', { x: scored, index: target }, {}, 'log_prob'),
    get logits() {
      return b.add('gather_rows', { x: all, index: row }, {}, 'logits_of_rows');
    },
    logProbs: scored,
    row,
    target,
  };
}

/** The same, and whether targets are the most likely tokens. */
export function scoreRows(b: GraphBuilder, shape: Pick<DecoderShape, 'vocabSize'>, all: Value): RowScores {
  const rows = logitRows(b, shape, all);
  const best = b.add('gather_rows', { x: b.add('argmax', { x: all }, {}, 'best'), index: rows.row });
  const isBest = b.add('eq', { a: b.add('reshape', { x: best }, { shape: ['R'] }, 'best'), b: rows.target });
  const isArgmax = b.add('cast', { x: isBest }, { dtype: 'i32' }, 'is_argmax');
  return Object.defineProperties({ isArgmax }, Object.getOwnPropertyDescriptors(rows)) as RowScores;
}

/** What tokens are drawn with, by row. */
export type DrawInputs = Readonly<Record<'inverseTemperature' | 'low' | 'high', Value>>;

/**
 * A token drawn for every row from softmax(logits·inverseTemperature), by the noise of the row's key, and its
 * log-probability at temperature 1. An inverse temperature of 0 takes the most likely token. `ids`: the tokens that
 * columns of the logits stand for; default: column j stands for token j.
 */
export function sampleNextTokens(
  b: GraphBuilder,
  { vocabSize }: Pick<DecoderShape, 'vocabSize'>,
  { logits, logProbs }: Pick<RowLogits, 'logits' | 'logProbs'>,
  ids?: readonly number[],
): { readonly nextToken: Value; readonly nextTokenLogProb: Value; readonly draw: DrawInputs } {
  const inverse = b.param('inverseTemperature', 'f32', ['R'], { kind: 'values' });
  const low = b.param('keyLow', 'i32', ['R'], { kind: 'values' });
  const high = b.param('keyHigh', 'i32', ['R'], { kind: 'values' });
  const byRow = b.add('reshape', { x: inverse }, { shape: ['R', 1] }, 'inverse_temperature');
  const tokens = ids && b.add('vector', {}, { label: 'tokens_of_columns', values: ids }, 'tokens_of_columns');
  const noise = b.add('gumbel', { low, high, ...defined({ ids: tokens }) }, { size: vocabSize }, 'noise');
  const noisy = b.add('add', { a: b.add('mul', { a: logits, b: byRow }), b: noise }, {}, 'noisy');
  const isGreedy = b.add('eq', { a: byRow, b: b.add('const', {}, { value: 0 }, 'zero') }, {}, 'is_greedy');
  const scores = b.add('select', { condition: isGreedy, a: logits, b: noisy }, {}, 'draw_scores');
  const hint = tokens === undefined ? 'next_token' : 'next_column';
  const column = b.add('reshape', { x: b.add('argmax', { x: scores }) }, { shape: ['R'] }, hint);
  const nextTokenLogProb = b.add('gather_last', { x: logProbs, index: column }, {}, 'next_token_log_prob');
  const nextToken =
    tokens === undefined
      ? column
      : b.add('cast', { x: b.add('gather_rows', { x: tokens, index: column }) }, { dtype: 'i32' }, 'next_token');
  return { nextToken, nextTokenLogProb, draw: { inverseTemperature: inverse, low, high } };
}

/**
 * A token for each of the first rows, chosen from its logits as penalties, biases and filters leave them, and its most
 * likely tokens (ir/filters).
 */
export function sampleFiltered(
  b: GraphBuilder,
  { logits, row }: Pick<RowLogits, 'logits' | 'row'>,
  draw: DrawInputs,
  tokens: Value,
): Readonly<Record<'filteredToken' | 'filteredTokenLogProb' | 'topTokens' | 'topLogProbs', Value>> {
  const vocab = logits.type.shape[1] as number;
  const z = b.add('first_rows', { x: logits }, { rows: ['F'] }, 'filtered_logits');
  const given: Partial<Record<SampleInput, Value>> = { ...draw, pathToken: tokens, pathRow: row };
  const roles: Partial<Record<SampleInput, Role>> = {
    entryToken: { kind: 'token', vocab },
    maskRow: { kind: 'rowOrNone', of: 'M' },
  };
  const inputs = mapInputs((name) => {
    const { dtype, per } = SAMPLE_INPUTS[name];
    const shape = per === 'mask' ? ['M', maskWords(vocab)] : [per === 'entry' ? 'E' : 'F'];
    return given[name] ?? b.param(name, dtype, shape, roles[name] ?? { kind: 'values' });
  });
  const count = b.param('topCount', 'i32', ['F'], { kind: 'values' });
  const most = { most: MAX_TOP_TOKENS };
  const filteredToken = b.add('sample', { z, ...inputs }, {}, 'filtered_token');
  return {
    filteredToken,
    filteredTokenLogProb: b.add('sample_logprob', { z, token: filteredToken }, {}, 'filtered_token_log_prob'),
    topTokens: b.add('top_tokens', { z, count }, most, 'top_tokens'),
    topLogProbs: b.add('top_logprobs', { z, count }, most, 'top_log_probs'),
  };
}
