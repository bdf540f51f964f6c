/** Granite 3 (arXiv:2408.13359, maximal update parametrisation): literal factors at four places. */
import { readBiases } from '../decoder/config.js';
import { decoderFamily } from '../decoder/index.js';
import { readNumber } from '../decoder/settings.js';

export const granite = decoderFamily({
  name: 'GraniteForCausalLM',
  modelType: 'granite',
  covers: 'Granite 3, dense',
  maxPositions: 2048,
  differences: (json, where) => ({
    biased: readBiases(json, where),
    factors: {
      embedding: readNumber(json, where, 'embedding_multiplier', 1),
      residual: readNumber(json, where, 'residual_multiplier', 1),
      scores: readNumber(json, where, 'attention_multiplier', 1),
      logits: 1 / readNumber(json, where, 'logits_scaling', 1),
    },
  }),
});
