/**
 * LLaMA as Meta publishes it: params.json and consolidated.00.pth, or several parts. It differs from the Hugging Face
 * copies in names, and in the order of the rows of q and k, whose rotary pairs are neighbours.
 */
import { decoderFamily } from '../decoder/index.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

export const META_ARCHITECTURE = 'Transformer';

export const meta = decoderFamily({
  name: META_ARCHITECTURE,
  modelType: 'params.json',
  covers: 'LLaMA 1, 2 and 3 as Meta publishes them',
  maxPositions: 2048,
  hasInterleavedPairs: true,
  names: {
    ...LLAMA_NAMES,
    embedding: 'tok_embeddings',
    head: 'output',
    finalNorm: 'norm',
    layers: 'layers',
    projections: {
      q: 'attention.wq',
      k: 'attention.wk',
      v: 'attention.wv',
      o: 'attention.wo',
      gate: 'feed_forward.w1',
      up: 'feed_forward.w3',
      down: 'feed_forward.w2',
    },
    norms: { attention: { before: 'attention_norm' }, ffn: { before: 'ffn_norm' } },
  },
  differences: () => ({ biased: [] }),
});
