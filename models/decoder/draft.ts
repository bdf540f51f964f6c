/** The function `draft` of a decoder that proposes tokens for another model. */
import { DRAFT } from '../../ir/function.js';
import { type Graph, GraphBuilder } from '../../ir/graph/graph.js';
import { DRAFT_LAST_TOKENS, DRAFT_STATES } from '../../ir/stepping.js';
import type { DraftOptions } from '../model/model.js';
import { fedTokens, keepTokens, keptPaths, KEYS, ROWS, TOKENS } from './kept.js';
import { buildLayers, type DecoderShape, type LayerOptions } from './layers.js';
import { logitRows, sampleNextTokens } from './rows.js';

/** What `ModelDraft.graph` of models/model/model.ts describes. */
export function buildDraft(shape: DecoderShape, options: DraftOptions & LayerOptions): Graph {
  const b = new GraphBuilder(DRAFT, [TOKENS, KEYS, ROWS]);
  const { layers } = shape;
  const { cache, context } = options;
  const given = b.param('tokens', 'i32', ['T'], { kind: 'token', vocab: shape.vocabSize });
  const { tokens, before } = fedTokens(b, shape, given, DRAFT_LAST_TOKENS);
  const { written, ...paths } = keptPaths(b, { layers, cache, context, prefix: DRAFT_STATES });
  // Weights and kernels are named by their scopes: those of the target have others.
  const decoder = b.scope(DRAFT, () => buildLayers(b, shape, options, { tokens, ...paths }));
  return b.scope(`${DRAFT}.head`, () => {
    const rows = logitRows(b, shape, decoder.logits(decoder.h));
    const { nextToken, nextTokenLogProb } = sampleNextTokens(b, shape, rows);
    written.push(keepTokens(b, DRAFT_LAST_TOKENS, before, nextToken));
    const results = { logProb: rows.logProb, nextToken, nextTokenLogProb };
    return b.finish(Object.values(results), Object.keys(results), written);
  });
}
