/**
 * EAGLE heads 1 and 2 (arXiv:2401.15077, 2406.16858; they differ in how drafts are chosen), and HASS (2408.15766): a
 * matrix makes one stream of the embedding of the next token and the model's last one, behind its norm, and a layer
 * without a norm before its attention goes on from it. Embeddings and head are the model's.
 */
import type { Value } from '../../ir/graph/graph.js';
import { isGiven, quote } from '../../system/json.js';
import type { Checkpoint } from '../checkpoint.js';
import { buildDraftHead, type HeadBlocks } from '../decoder/draftHead.js';
import { ConfigReader } from '../decoder/reader.js';
import { rotaryTables } from '../decoder/rope.js';
import { columnsName, LLAMA_NAMES } from '../decoder/tensors.js';
import { DRAFT_TENSORS } from '../model/model.js';
import type { ExpectedTensor } from '../model/tensors.js';
import { type HeadFile, headLayer, headNorm, inColumns, layerTensors, locate, misfit } from './headFile.js';
import { type FoundDraft, joinedTensors } from './join.js';

/** What its files hold and the model's are read for. */
const isIgnored = (name: string): boolean => name === 'embed_tokens.weight' || name === 'lm_head.weight';

/** The head as it drafts for `target`. Throws UserError where it does not fit. */
export function eagle(target: Checkpoint, file: HeadFile): FoundDraft {
  const { json, where, found } = file;
  const { hiddenSize: hidden, vocabSize, maxPositions } = target.config;
  const { ends } = target.model;
  if (ends === undefined) throw misfit(where, 'the model proposes no tokens');
  const shape = headLayer(file, target);
  const states = { hidden_size: hidden, ...(file.isSpeculators ? {} : { vocab_size: vocabSize }) };
  for (const [key, own] of Object.entries(states))
    if (isGiven(json[key]) && json[key] !== own)
      throw misfit(where, `${key} is ${quote(json[key])}, and the model's is ${own}`);
  const read = new ConfigReader(json, where);
  const hasNorms = read.flag('add_para_norm') || read.flag('layernorms');
  const isBiased = found?.has('fc.bias') ?? false;
  const tensors: readonly ExpectedTensor[] = [
    ...(hasNorms ? ['embedding_layernorm', 'hidden_states_layernorm'].map((name) => headNorm(name, hidden)) : []),
    inColumns('fc.weight', hidden, hidden, 2),
    ...(isBiased ? [{ name: 'fc.bias', shape: [hidden], role: 'bias' } as const] : []),
    ...layerTensors(shape, 1),
  ];
  const stream = (blocks: HeadBlocks, embedding: Value, x: Value): Value => {
    const { norm, attention, feedForward, linear, weight, toF32, sum } = blocks;
    const inputs = hasNorms
      ? [norm(embedding, 'embedding_layernorm'), norm(x, 'hidden_states_layernorm')]
      : [embedding, x];
    const parts = inputs.map((each, i) =>
      linear(each, weight(columnsName('fc.weight', i), [hidden, hidden]), 'fc_part'),
    );
    const product = parts.reduce(sum);
    const first = isBiased ? sum(product, toF32(weight('fc.bias', [hidden]), 'fc_bias')) : product;
    const mid = sum(first, attention(first, 'layer', 0));
    return sum(mid, feedForward(norm(mid, 'layer.post_attention_layernorm'), 'layer', 0));
  };
  const head = { shape, width: hidden, ...ends, columns: vocabSize, stream };
  return {
    draft: {
      name: 'eagle',
      ahead: 1,
      maxPositions,
      vocabSize,
      features: { width: hidden, of: 'normed', build: (_, [x]) => x! },
      config: { kind: 'eagle', ...shape, hasNorms, isBiased },
      summary: `EAGLE head, hidden ${hidden}${hasNorms ? ', norms before its layer' : ''}`,
      tensors: joinedTensors(tensors),
      graph: (options) =>
        buildDraftHead(head, { ...options, prefix: DRAFT_TENSORS, names: LLAMA_NAMES, ...rotaryTables(shape) }),
    },
    tensors: locate(file, tensors, target.config.dtype, isIgnored),
    warnings: [],
  };
}
