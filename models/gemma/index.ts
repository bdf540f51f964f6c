/** Gemma (arXiv:2403.08295): scaled embeddings, norm weights around 1, GELU by tanh, a tied head. */
import { decoderFamily } from '../decoder/index.js';
import { readBiases } from '../decoder/config.js';
import { checkGemma, embeddingFactor, GEMMA_NORM } from './settings.js';

export const gemma = decoderFamily({
  name: 'GemmaForCausalLM',
  modelType: 'gemma',
  covers: 'Gemma 1, CodeGemma',
  textDefaults: {
    vocab_size: 256_000,
    hidden_size: 3072,
    intermediate_size: 24_576,
    num_hidden_layers: 28,
    num_attention_heads: 16,
  },
  maxPositions: 8192,
  headDim: 256,
  kvHeads: 16,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
  differences: (json, where) => {
    checkGemma(json, where);
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: GEMMA_NORM,
      factors: { embedding: embeddingFactor(json) },
    };
  },
});
