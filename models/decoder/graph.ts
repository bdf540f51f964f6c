/** The functions of a decoder: layers/ between what a function takes and what it returns. */
import { at } from '../../system/at.js';
import { defined } from '../../system/defined.js';
import { type Role, SCORE, STEP } from '../../ir/function.js';
import { type Graph, GraphBuilder, type Value } from '../../ir/graph/graph.js';
import { MAX_TOP_TOKENS, mapInputs, maskWords, SAMPLE_INPUTS, type SampleInput } from '../../ir/sampleInputs.js';
import { LAST_TOKENS, LAST_TOKEN_ROWS } from '../../ir/stepping.js';
import type { FloatType } from '../../ir/types.js';
import {
  buildMask,
  type ClassHead,
  type GraphOptions,
  ownPositions,
  pathMask,
  type StepOptions,
  windowed,
} from '../model/model.js';
import { buildLayers, type Decoder, type DecoderShape, type LayerOptions } from './layers.js';

export type { DecoderShape } from './layers.js';

export interface DecoderOptions extends GraphOptions, LayerOptions {
  /** Number of keys that a query sees under the mask `slidingWindow`, whatever the model's own windows are. */
  readonly window?: number;
}

const TOKENS = { name: 'T', counts: 'tokens' } as const;
const KEYS = { name: 'C', counts: 'keys' } as const;
const ROWS = { name: 'R', counts: 'rows' } as const;
const FILTERED = { name: 'F', counts: 'filtered', within: 'R' } as const;
const ENTRIES = { name: 'E', counts: 'entries' } as const;
const MASKS = { name: 'M', counts: 'masks' } as const;

/** The function `score` that models/model/model.ts describes. */
export function buildDecoder(shape: DecoderShape, options: DecoderOptions): Graph {
  const { mask, window } = options;
  const b = new GraphBuilder(SCORE, mask === 'path' ? [TOKENS, KEYS, ROWS] : [TOKENS, ROWS]);
  const tokens = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: shape.vocabSize });
  const position = b.param('position', 'i32', ['T'], { kind: mask === 'path' ? 'depth' : 'position' });
  const key = mask === 'path' ? b.param('key', 'i32', ['C'], { kind: 'row', of: 'T' }) : undefined;
  const decoder = buildLayers(b, shape, options, {
    tokens,
    position,
    biases: () => {
      if (mask === 'path') return pathBiases(b, position);
      const bias = buildMask(b, mask, window);
      return (width) => (width === undefined ? bias : windowed(b, bias, position, ownPositions(b, position), width));
    },
    visible: (kind, own) =>
      key === undefined ? own : b.add('gather_rows', { x: own, index: key }, {}, `${kind}_path`),
  });
  return b.scope('head', () => {
    if (shape.head !== undefined) return b.finish([classRows(b, decoder, shape.head)], ['classLogits']);
    const { logProb, isArgmax } = scoreRows(b, shape, decoder.logits(decoder.h));
    return b.finish([logProb, isArgmax], ['logProb', 'isArgmax']);
  });
}

/** What a head of classes gives for the rows that the input `row` names, f32[R, classes]. */
const classRows = (b: GraphBuilder, { h, classLogits }: Decoder, head: ClassHead, row = rowInput(b)): Value =>
  classLogits(b.add('gather_rows', { x: h, index: row }, {}, 'h_of_rows'), head);

const rowInput = (b: GraphBuilder): Value => b.param('row', 'i32', ['R'], { kind: 'row', of: 'T' });

/**
 * f32[R, hidden]: rows of the stream behind the last norm, from numbers of the type that attention reads. Without them
 * the head computes the same bits: they are gathered before the norm, so that its own norm has one reader, and folds
 * into its matrix; and no more digits of the stream are kept for them than the head reads.
 */
function hiddenRows(b: GraphBuilder, { h, normed }: Decoder, row: Value, dtype: FloatType): Value {
  const rows = b.add('gather_rows', { x: h, index: row }, {}, 'h_of_rows');
  if (dtype === 'f32') return normed(rows, rows);
  const narrow = b.add('cast', { x: rows }, { dtype }, 'h_rounded');
  return normed(rows, b.add('cast', { x: narrow }, { dtype: 'f32' }, 'h_wide'));
}

/** Biases of attention over the keys of paths, by the width of a window. */
function pathBiases(b: GraphBuilder, position: Value): (width: number | undefined) => Value {
  const { bias, keyPosition } = pathMask(b, position, 'C');
  return (width) => (width === undefined ? bias : windowed(b, bias, position, keyPosition, width));
}

/** The function `step` that models/model/model.ts describes. */
export function buildStep(shape: DecoderShape, options: StepOptions & LayerOptions): Graph {
  const draws = shape.head === undefined;
  const filters = draws && options.filters === true;
  const b = new GraphBuilder(STEP, [TOKENS, KEYS, ROWS, ...(filters ? [FILTERED, ENTRIES, MASKS] : [])]);
  const { layers, kvHeads, headDim } = shape;
  const { rows, dtype } = options.cache;
  const states = Array.from({ length: layers }, (_, layer) => ({ k: `k_${layer}`, v: `v_${layer}` }));
  const state = at(states, 0).k;
  const given = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: shape.vocabSize });
  const lastTokens = draws && options.feeds === true ? b.state(LAST_TOKENS, 'i32', [LAST_TOKEN_ROWS]) : undefined;
  const tokens = lastTokens === undefined ? given : b.scope('feed', () => fedTokens(b, shape, given, lastTokens));
  const position = b.param('position', 'i32', ['T'], { kind: 'depth', ...defined({ below: options.context }) });
  const slot = b.param('slot', 'i32', ['T'], { kind: 'slot', state });
  const key = b.param('key', 'i32', ['C'], { kind: 'entry', state });
  const written: Value[] = [];
  const decoder = buildLayers(b, shape, options, {
    tokens,
    position,
    biases: () => pathBiases(b, position),
    visible: (kind, own, layer) => {
      const before = b.state(at(states, layer)[kind], dtype, [rows, kvHeads, headDim]);
      const rounded = dtype === 'f32' ? own : b.add('cast', { x: own }, { dtype }, `${kind}_rounded`);
      const after = b.scope('write', () =>
        b.add('write_rows', { x: before, rows: rounded, slot }, {}, `${kind}_cache`),
      );
      written.push(after);
      const read = b.add('gather_rows', { x: after, index: key }, {}, `${kind}_path`);
      return dtype === 'f32' ? read : b.add('cast', { x: read }, { dtype: 'f32' }, `${kind}_wide`);
    },
  });
  return b.scope('head', () => {
    const hidden = (row: Value) => (options.hidden === true ? { hidden: hiddenRows(b, decoder, row, dtype) } : {});
    if (shape.head !== undefined) {
      const row = rowInput(b);
      const results = { classLogits: classRows(b, decoder, shape.head, row), ...hidden(row) };
      return b.finish(Object.values(results), Object.keys(results), written);
    }
    const rows = scoreRows(b, shape, decoder.logits(decoder.h));
    const { nextToken, nextTokenLogProb, draw } = sampleNextTokens(b, shape, rows);
    const filtered = filters ? sampleFiltered(b, rows, draw, tokens) : undefined;
    if (lastTokens !== undefined) {
      const keep = b.param('keep', 'i32', ['R'], { kind: 'slot', state: LAST_TOKENS });
      const now = b.add('write_rows', { x: lastTokens, rows: nextToken, slot: keep }, {}, 'last_tokens_kept');
      if (filtered === undefined) written.push(now);
      else {
        const keepFiltered = b.param('keepFiltered', 'i32', ['F'], { kind: 'slot', state: LAST_TOKENS });
        written.push(
          b.add('write_rows', { x: now, rows: filtered.filteredToken, slot: keepFiltered }, {}, 'last_tokens_filtered'),
        );
      }
    }
    const { logProb, isArgmax } = rows;
    const results = { logProb, isArgmax, nextToken, nextTokenLogProb, ...filtered, ...hidden(rows.row) };
    return b.finish(Object.values(results), Object.keys(results), written);
  });
}

/**
 * Tokens as they were given, or as the call before has drawn them. Whatever the state holds, the result is a token of
 * the vocabulary. Token ids are exact in f32, in which literals are written.
 */
function fedTokens(b: GraphBuilder, { vocabSize }: DecoderShape, given: Value, lastTokens: Value): Value {
  const isFed = b.param('isFed', 'i32', ['T'], { kind: 'values' });
  const feed = b.param('feed', 'i32', ['T'], { kind: 'entry', state: LAST_TOKENS });
  const f32 = (v: Value, hint: string): Value => b.add('cast', { x: v }, { dtype: 'f32' }, hint);
  const literal = (value: number, hint: string): Value => b.add('const', {}, { value }, hint);
  const last = f32(b.add('gather_rows', { x: lastTokens, index: feed }, {}, 'last_token'), 'last_token_f');
  const bounded = b.add('min', {
    a: b.add('max', { a: last, b: literal(0, 'zero') }),
    b: literal(vocabSize - 1, 'last_token'),
  });
  const condition = b.add('eq', { a: f32(isFed, 'is_fed_f'), b: literal(1, 'one') }, {}, 'is_fed');
  const token = b.add('select', { condition, a: bounded, b: f32(given, 'given_f') }, {}, 'token_f');
  return b.add('cast', { x: token }, { dtype: 'i32' }, 'token');
}

interface RowScores {
  /** f32[R]: the log-probability of target[r] after token row[r]. */
  readonly logProb: Value;
  /** i32[R]: 1 where the target is the most likely token. */
  readonly isArgmax: Value;
  /** f32[R, V]: the logits of the rows, and the logarithms of their softmax. */
  readonly logits: Value;
  readonly logProbs: Value;
  /** i32[R] */
  readonly row: Value;
}

/** Scores of the rows of logits that the input `row` names. */
function scoreRows(b: GraphBuilder, shape: DecoderShape, all: Value): RowScores {
  const shifted = b.add('sub', { a: all, b: b.add('reduce_max', { x: all }, {}, 'top') }, {}, 'shifted');
  const logProbs = b.add(
    'sub',
    { a: shifted, b: b.add('log', { x: b.add('sum', { x: b.add('exp', { x: shifted }) }) }) },
    {},
    'log_probs',
  );
  const row = rowInput(b);
  const target = b.param('target', 'i32', ['R'], { kind: 'token', vocab: shape.vocabSize });
  const scored = b.add('gather_rows', { x: logProbs, index: row });
  const logProb = b.add('gather_last', { x: scored, index: target }, {}, 'log_prob');
  const best = b.add('gather_rows', { x: b.add('argmax', { x: all }, {}, 'best'), index: row });
  const isBest = b.add('eq', { a: b.add('reshape', { x: best }, { shape: ['R'] }, 'best'), b: target });
  return {
    logProb,
    isArgmax: b.add('cast', { x: isBest }, { dtype: 'i32' }, 'is_argmax'),
    get logits() {
      return b.add('gather_rows', { x: all, index: row }, {}, 'logits_of_rows');
    },
    logProbs: scored,
    row,
  };
}

/** What tokens are drawn with, by row. */
type DrawInputs = Readonly<Record<'inverseTemperature' | 'low' | 'high', Value>>;

/**
 * A token drawn for every row from softmax(logits·inverseTemperature), by the noise of the row's key, and its
 * log-probability at temperature 1. An inverse temperature of 0 takes the most likely token.
 */
function sampleNextTokens(
  b: GraphBuilder,
  { vocabSize }: DecoderShape,
  { logits, logProbs }: RowScores,
): { readonly nextToken: Value; readonly nextTokenLogProb: Value; readonly draw: DrawInputs } {
  const inverse = b.param('inverseTemperature', 'f32', ['R'], { kind: 'values' });
  const low = b.param('keyLow', 'i32', ['R'], { kind: 'values' });
  const high = b.param('keyHigh', 'i32', ['R'], { kind: 'values' });
  const byRow = b.add('reshape', { x: inverse }, { shape: ['R', 1] }, 'inverse_temperature');
  const noise = b.add('gumbel', { low, high }, { size: vocabSize }, 'noise');
  const noisy = b.add('add', { a: b.add('mul', { a: logits, b: byRow }), b: noise }, {}, 'noisy');
  const isGreedy = b.add('eq', { a: byRow, b: b.add('const', {}, { value: 0 }, 'zero') }, {}, 'is_greedy');
  const scores = b.add('select', { condition: isGreedy, a: logits, b: noisy }, {}, 'draw_scores');
  const nextToken = b.add('reshape', { x: b.add('argmax', { x: scores }) }, { shape: ['R'] }, 'next_token');
  const nextTokenLogProb = b.add('gather_last', { x: logProbs, index: nextToken }, {}, 'next_token_log_prob');
  return { nextToken, nextTokenLogProb, draw: { inverseTemperature: inverse, low, high } };
}

/**
 * A token for each of the first rows, chosen from its logits as penalties, biases and filters leave them, and its most
 * likely tokens (ir/filters).
 */
function sampleFiltered(
  b: GraphBuilder,
  { logits, row }: RowScores,
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
