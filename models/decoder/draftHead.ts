/** The function `draft` of a head of one layer, which goes on from features of the model that it drafts for. */
import { DRAFT } from '../../ir/function.js';
import { type Graph, GraphBuilder, type Value } from '../../ir/graph/graph.js';
import { DRAFT_FEATURES, DRAFT_LAST_TOKENS, DRAFT_STATES } from '../../ir/stepping.js';
import type { DraftOptions } from '../model/model.js';
import { featuresState, rounded, widened } from './features.js';
import { fedTokens, keepTokens, keptPaths, KEYS, ROWS, TOKENS } from './kept.js';
import { type DecoderShape, embeddedRows, type LayerBlocks, layerBlocks, type LayerOptions } from './layers.js';
import { logitRows, sampleNextTokens } from './rows.js';

/** What the layer of a head is made of. */
export interface HeadBlocks extends LayerBlocks {
  readonly b: GraphBuilder;
  /** x + y */
  readonly sum: (x: Value, y: Value) => Value;
}

/** A head: what its kind computes around a layer of LLaMA's. Names are those of the joined checkpoint. */
export interface DraftHead {
  /** Its layer; `vocabSize`: tokens that it takes. */
  readonly shape: DecoderShape;
  /** Columns of what it goes on from. */
  readonly width: number;
  readonly embedding: string;
  readonly head: string;
  /** Rows of its head, and the tokens that they stand for. Default: row i is token i. */
  readonly columns: number;
  readonly ids?: readonly number[];
  /** The embedding at position 0 is zero. */
  readonly hidesFirst?: boolean;
  /** f32[T, hidden]: the stream behind its layer, from rows of embeddings and features. */
  readonly stream: (blocks: HeadBlocks, embedding: Value, x: Value) => Value;
  /** What its head multiplies, and what the next token goes on from. Default of both: the stream. */
  readonly normed?: (blocks: HeadBlocks, h: Value) => Value;
  readonly own?: (blocks: HeadBlocks, h: Value) => Value;
}

/** What `ModelDraft.graph` of models/model/model.ts describes, with features. */
export function buildDraftHead(head: DraftHead, options: DraftOptions & LayerOptions): Graph {
  const { shape, width, columns, ids } = head;
  const { cache, context, dtypeOf } = options;
  const { hiddenSize: hidden, vocabSize } = shape;
  const b = new GraphBuilder(DRAFT, [TOKENS, KEYS, ROWS]);
  const given = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: vocabSize });
  const { tokens, before } = fedTokens(b, shape, given, DRAFT_LAST_TOKENS);
  const { written, ...paths } = keptPaths(b, { layers: 1, cache, context, prefix: DRAFT_STATES });
  const features = featuresState(b, cache, width);
  const feature = b.param('feature', 'i32', ['T'], { kind: 'entry', state: DRAFT_FEATURES });
  const blocks: HeadBlocks = {
    // Its keys and values are the only ones, whatever the number of its layer.
    ...b.scope(DRAFT, () =>
      layerBlocks(b, shape, options, { ...paths, visible: (kind, own) => paths.visible(kind, own, 0) }),
    ),
    b,
    sum: (x, y) => b.add('add', { a: x, b: y }, {}, 'h'),
  };
  const shared = (name: string, rows: number): Value => b.weight(name, dtypeOf(name), [rows, hidden]);
  const shown = (embedding: Value): Value => {
    if (head.hidesFirst !== true) return embedding;
    const zero = b.add('const', {}, { value: 0 }, 'zero');
    const place = b.add('cast', { x: paths.position }, { dtype: 'f32' }, 'place');
    const column = b.add('reshape', { x: place }, { shape: ['T', 1] }, 'place_of_row');
    const condition = b.add('eq', { a: column, b: zero }, {}, 'is_first');
    return b.add('select', { condition, a: zero, b: embedding }, {}, 'embedding_shown');
  };
  const [embedded, x] = b.scope(`${DRAFT}.embed`, () => [
    shown(embeddedRows(blocks, b, shared(head.embedding, vocabSize), tokens)),
    widened(b, b.add('gather_rows', { x: features, index: feature }, {}, 'features'), 'features_wide'),
  ]);
  const h = b.scope(`${DRAFT}.layers.0`, () => head.stream(blocks, embedded!, x!));
  return b.scope(`${DRAFT}.head`, () => {
    const all = blocks.linear(head.normed?.(blocks, h) ?? h, shared(head.head, columns), 'logits');
    const rows = logitRows(b, { vocabSize: columns }, all);
    const { nextToken, nextTokenLogProb } = sampleNextTokens(b, { vocabSize: columns }, rows, ids);
    written.push(keepTokens(b, DRAFT_LAST_TOKENS, before, nextToken));
    const keep = b.param('keepFeature', 'i32', ['R'], { kind: 'slot', state: DRAFT_FEATURES });
    const own = b.add('gather_rows', { x: head.own?.(blocks, h) ?? h, index: rows.row }, {}, 'own_features');
    const kept = { x: features, rows: rounded(b, own, cache.dtype), slot: keep };
    written.push(b.add('write_rows', kept, {}, 'features_kept'));
    const results = { logProb: rows.logProb, nextToken, nextTokenLogProb };
    return b.finish(Object.values(results), Object.keys(results), written);
  });
}
