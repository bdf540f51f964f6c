/** The functions of a decoder: layers/ between what a function takes and what it returns. */
import { SCORE, STEP } from '../../ir/function.js';
import { type Graph, GraphBuilder, type Value } from '../../ir/graph/graph.js';
import { KEPT_TAILS, LAST_TOKENS } from '../../ir/stepping.js';
import type { FloatType } from '../../ir/types.js';
import { defined } from '../../system/defined.js';
import { buildMask, type ClassHead, type GraphOptions, ownPositions, type StepOptions } from '../model/model.js';
import { keepFeatures } from './features.js';
import { fedTokens, keepPathTokens, keepTokens, keptPaths, KEYS, masksBy, pathMasks, ROWS, TOKENS } from './kept.js';
import { buildLayers, type Decoder, type DecoderShape, type LayerInputs, type LayerOptions } from './layers.js';
import { KeptStates, recurrentStates } from './recurrentStates.js';
import { rowInput, sampleFiltered, sampleNextTokens, scoreRows } from './rows.js';

export type { DecoderShape } from './layers.js';

export interface DecoderOptions extends GraphOptions, LayerOptions {
  /** Number of keys that a query sees under the mask `slidingWindow`, whatever the model's own windows are. */
  readonly window?: number;
}

const FILTERED = { name: 'F', counts: 'filtered', within: 'R' } as const;
const ENTRIES = { name: 'E', counts: 'entries' } as const;
const MASKS = { name: 'M', counts: 'masks' } as const;
const TAILS = { name: KEPT_TAILS, counts: 'tails' } as const;

/** The function `score` that models/model/model.ts describes. */
export function buildDecoder(shape: DecoderShape, options: DecoderOptions): Graph {
  const { mask, window } = options;
  const b = new GraphBuilder(SCORE, mask === 'path' ? [TOKENS, KEYS, ROWS] : [TOKENS, ROWS]);
  const tokens = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: shape.vocabSize });
  const position = b.param('position', 'i32', ['T'], {
    kind: mask === 'path' ? 'depth' : 'position',
    ...defined({ below: shape.positionRows }),
  });
  const key = mask === 'path' ? b.param('key', 'i32', ['C'], { kind: 'row', of: 'T' }) : undefined;
  const decoder = buildLayers(b, shape, options, {
    tokens,
    position,
    masks: () =>
      mask === 'path'
        ? pathMasks(b, position)
        : masksBy(b, buildMask(b, mask, window), position, () => ownPositions(b, position)),
    ...(mask === 'path' || mask === 'tree'
      ? {
          paths: () =>
            key === undefined
              ? { kind: 'column', subtreeEnd: b.paramOf('subtreeEnd') }
              : { kind: 'path', begin: b.paramOf('begin'), position, key },
        }
      : {}),
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

/** What layers with states take: the ends of subtrees, which say what tokens of a call go on from. */
const joined = (b: GraphBuilder, kept: KeptStates): Pick<LayerInputs, 'paths' | 'kept'> => ({
  kept,
  paths: () => ({ kind: 'column', subtreeEnd: b.param('subtreeEnd', 'i32', ['T'], { kind: 'subtreeEnd' }) }),
});

/** The function `step` that models/model/model.ts describes. */
export function buildStep(shape: DecoderShape, options: StepOptions & LayerOptions): Graph {
  const draws = shape.head === undefined;
  const filters = draws && options.filters === true;
  const { recurrent, layers } = shape;
  const further = [...(filters ? [FILTERED, ENTRIES, MASKS] : []), ...(recurrent === undefined ? [] : [TAILS])];
  const b = new GraphBuilder(STEP, [TOKENS, KEYS, ROWS, ...further]);
  const given = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: shape.vocabSize });
  const fed = draws && options.feeds === true ? fedTokens(b, shape, given, LAST_TOKENS) : undefined;
  const { tokens } = fed ?? { tokens: given };
  const { cache, rounded = 'f32' } = options;
  const below = Math.min(options.context ?? Infinity, shape.positionRows ?? Infinity);
  const context = below === Infinity ? undefined : below;
  const { written, ...paths } = keptPaths(b, { layers, cache, context, others: recurrent?.layers });
  const states = recurrent && new KeptStates(b, recurrentStates(recurrent, shape.hiddenSize), rounded);
  // Where no layer keeps keys; with the embedding, so that every function has them on one stage.
  if (recurrent?.layers.length === layers)
    b.scope('embed', () => written.push(keepPathTokens(b, cache, tokens, paths.slot)));
  const decoder = buildLayers(b, shape, options, {
    tokens,
    ...paths,
    ...(states === undefined ? {} : joined(b, states)),
  });
  if (states !== undefined) written.push(...states.written);
  const { features, dtypeOf } = options;
  if (features !== undefined) written.push(keepFeatures(b, decoder, features, { cache, slot: paths.slot, dtypeOf }));
  return b.scope('head', () => {
    const hidden = (row: Value) =>
      options.hidden === true ? { hidden: hiddenRows(b, decoder, row, cache.dtype) } : {};
    if (shape.head !== undefined) {
      const row = rowInput(b);
      const results = { classLogits: classRows(b, decoder, shape.head, row), ...hidden(row) };
      return b.finish(Object.values(results), Object.keys(results), written);
    }
    const rows = scoreRows(b, shape, decoder.logits(decoder.h));
    const { nextToken, nextTokenLogProb, draw } = sampleNextTokens(b, shape, rows);
    const filtered = filters ? sampleFiltered(b, rows, draw, tokens) : undefined;
    if (fed !== undefined) {
      const now = keepTokens(b, LAST_TOKENS, fed.before, nextToken);
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
