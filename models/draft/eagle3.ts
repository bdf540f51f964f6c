/**
 * EAGLE-3 heads (arXiv:2503.01840): one layer, whose queries, keys and values read the embedding of the next token
 * beside three streams of the model, which a matrix makes one of. Its own head has the tokens that are drafted.
 */
import { defined } from '../../system/defined.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import type { Checkpoint } from '../checkpoint.js';
import { buildDraftHead, type HeadBlocks } from '../decoder/draftHead.js';
import { ConfigReader } from '../decoder/reader.js';
import { rotaryTables } from '../decoder/rope.js';
import { columnsName, LLAMA_NAMES } from '../decoder/tensors.js';
import type { Value } from '../../ir/graph/graph.js';
import { DRAFT_TENSORS, type DraftFeatures, type Json } from '../model/model.js';
import { type ExpectedTensor } from '../model/tensors.js';
import {
  digestOf,
  type HeadFile,
  headLayer,
  headMatrix,
  headNorm,
  inColumns,
  layerTensors,
  locate,
  misfit,
  tokensOfRows,
} from './headFile.js';
import { type FoundDraft, joinedTensors } from './join.js';

/** More streams than any head reads. */
const MAX_STREAMS = 8;

/**
 * The layers whose inputs a head reads, n for what the last of n gives. Files of `speculators` say them so; others name
 * the layers that give them, which are those before.
 */
function streamsOf({ json, where, isSpeculators }: HeadFile, layers: number): readonly number[] {
  const nested = json['eagle_config'];
  const config: Json = isRecord(nested) ? nested : {};
  const stated: unknown = config['eagle_aux_hidden_state_layer_ids'] ?? json['eagle_aux_hidden_state_layer_ids'];
  if (config['use_aux_hidden_state'] === false)
    throw misfit(where, 'use_aux_hidden_state is false; heads that read streams of inner layers are supported');
  if (!isGiven(stated)) {
    const usual = [2, Math.floor(layers / 2), layers - 3];
    if (usual.some((layer) => layer < 1))
      throw misfit(where, `it reads streams of layers 2, n/2 and n − 3, and the model has ${layers} layers`);
    return usual;
  }
  const last = layers - (isSpeculators ? 0 : 1);
  const isLayer = (each: unknown): each is number =>
    typeof each === 'number' && Number.isInteger(each) && each >= last - layers + 1 && each <= last;
  if (!Array.isArray(stated) || stated.length === 0 || stated.length > MAX_STREAMS || !stated.every(isLayer))
    throw misfit(
      where,
      `eagle_aux_hidden_state_layer_ids: expected 1 to ${MAX_STREAMS} layers from ${last - layers + 1} to ${last}, ` +
        `got ${quote(stated)}`,
    );
  return isSpeculators ? stated : stated.map((layer) => layer + 1);
}

/** The streams of the model, as one: products with parts of a matrix, added up. */
const fused =
  (hidden: number): DraftFeatures['build'] =>
  (b, streams, dtypeOf) =>
    streams
      .map((x, i) => {
        const name = `${DRAFT_TENSORS}${columnsName('fc.weight', i)}`;
        return b.add('linear', { x, w: b.weight(name, dtypeOf(name), [hidden, x.type.shape.at(-1)!]) }, {}, 'fc_part');
      })
      .reduce((sum, part) => b.add('add', { a: sum, b: part }, {}, 'fc'));

/** The head as it drafts for `target`. Throws UserError where it does not fit. */
export function eagle3(target: Checkpoint, file: HeadFile): FoundDraft {
  const { json, where, found } = file;
  const read = new ConfigReader(json, where);
  const { hiddenSize, vocabSize, layers, maxPositions } = target.config;
  const ends = target.model.ends;
  if (ends === undefined) throw misfit(where, 'the model proposes no tokens');
  const shape = headLayer(file, target);
  const { hiddenSize: hidden } = shape;
  const states = { target_hidden_size: hiddenSize, ...(file.isSpeculators ? {} : { vocab_size: vocabSize }) };
  for (const [key, own] of Object.entries({ ...states, target_vocab_size: vocabSize }))
    if (isGiven(json[key]) && json[key] !== own)
      throw misfit(where, `${key} is ${quote(json[key])}, and the model's is ${own}`);
  if (read.flag('norm_before_fc')) throw misfit(where, 'norm_before_fc is not supported');
  const isNormedFirst = read.flag('norm_before_residual', file.isSpeculators);
  const rows = read.whole('draft_vocab_size', vocabSize, [1, vocabSize]);
  const ids = tokensOfRows(file, rows, vocabSize);
  const of = streamsOf(file, layers);
  const hasEmbedding = found?.has('embed_tokens.weight') ?? hidden !== hiddenSize;
  if (!hasEmbedding && hidden !== hiddenSize)
    throw misfit(
      where,
      `its layer has ${hidden} columns, the model ${hiddenSize}, and it has no embeddings of its own`,
    );
  const tensors: readonly ExpectedTensor[] = [
    ...(hasEmbedding ? [headMatrix('embed_tokens.weight', vocabSize, hidden)] : []),
    inColumns('fc.weight', hidden, hiddenSize, of.length),
    headNorm('layer.input_layernorm', hidden),
    headNorm('layer.hidden_norm', hidden),
    ...layerTensors(shape, 2),
    headNorm('norm', hidden),
    headMatrix('lm_head.weight', rows, hidden),
  ];
  const stream = ({ norm, attention, feedForward, sum }: HeadBlocks, embedding: Value, x: Value): Value => {
    const [e, f] = [norm(embedding, 'layer.input_layernorm'), norm(x, 'layer.hidden_norm')];
    const mid = sum(isNormedFirst ? f : x, attention([e, f], 'layer', 0));
    return sum(mid, feedForward(norm(mid, 'layer.post_attention_layernorm'), 'layer', 0));
  };
  const head = {
    shape,
    width: hidden,
    embedding: hasEmbedding ? `${DRAFT_TENSORS}embed_tokens.weight` : ends.embedding,
    head: `${DRAFT_TENSORS}lm_head.weight`,
    columns: rows,
    ...defined({ ids }),
    stream,
    normed: ({ norm }: HeadBlocks, h: Value) => norm(h, 'norm'),
  };
  return {
    draft: {
      name: 'eagle',
      ahead: 1,
      maxPositions,
      vocabSize,
      features: { width: hidden, of, build: fused(hidden) },
      config: { kind: 'eagle3', ...shape, rows, of, isNormedFirst, tokens: digestOf(ids) },
      summary: `EAGLE-3 head of ${rows} tokens, hidden ${hidden}, inputs of layers ${of.join(', ')}`,
      tensors: joinedTensors(tensors),
      graph: (options) =>
        buildDraftHead(head, {
          ...options,
          prefix: DRAFT_TENSORS,
          names: LLAMA_NAMES,
          ...rotaryTables(shape),
        }),
    },
    tensors: locate(file, tensors, target.config.dtype),
    warnings: [],
  };
}
