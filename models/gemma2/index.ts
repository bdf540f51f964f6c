/** Gemma 2 (arXiv:2408.00118): norms before and behind both branches, soft caps, a window in every other layer. */
import { defined } from '../../system/defined.js';
import { decoderFamily } from '../decoder/index.js';
import { readBiases } from '../decoder/config.js';
import { readNumber } from '../decoder/settings.js';
import { readWindows } from '../decoder/window.js';
import { checkGemma, embeddingFactor, GEMMA_NORM, NAMES_WITH_FOUR_NORMS, scoreFactor } from '../gemma/settings.js';

export const gemma2 = decoderFamily({
  name: 'Gemma2ForCausalLM',
  modelType: 'gemma2',
  covers: 'Gemma 2',
  textDefaults: {
    vocab_size: 256_000,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
  },
  maxPositions: 8192,
  headDim: 256,
  kvHeads: 4,
  activation: 'geluTanh',
  activationKey: 'hidden_activation',
  isTied: true,
  names: NAMES_WITH_FOUR_NORMS,
  differences: (json, where) => {
    checkGemma(json, where);
    // A file that leaves a cap out has transformers' default; null is none.
    const capOf = (key: string, usual: number): number | undefined =>
      readNumber(json, where, key, json[key] === null ? undefined : usual);
    const [scores, logits] = [capOf('attn_logit_softcapping', 50), capOf('final_logit_softcapping', 30)];
    return {
      biased: readBiases({ attention_bias: json['attention_bias'] }, where),
      norm: GEMMA_NORM,
      windows: readWindows(json, where, 4096, (layer) => layer % 2 === 0),
      factors: { embedding: embeddingFactor(json), scores: scoreFactor(json, where) },
      caps: { ...defined({ scores, logits }) },
    };
  },
});
