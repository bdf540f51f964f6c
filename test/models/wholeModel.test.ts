/** Settings that change what tokens see, and keys of draft models: refused in every family. */
import { describe, expect, it } from 'vitest';
import { describeModel } from '../../models/config.js';
import { ARCHITECTURES } from '../../models/families/registry.js';
import { userError } from './support.js';

type Json = Readonly<Record<string, unknown>>;

const SIZES = {
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  vocab_size: 256,
  // Those of Mamba.
  num_heads: 8,
  head_dim: 16,
};
const BOTH_WAYS = 'in this model also those behind them';
const DRAFT = 'it is a draft model, which guesses tokens that another model checks';

describe('every family', () => {
  it.each(ARCHITECTURES.map((family) => [family.modelType, family] as const))(
    '%s: no setting that changes what tokens see passes in any family',
    (model_type, { name }) => {
      const small = { ...SIZES, model_type, architectures: [name] };
      const refusal = (changes: Json): string =>
        userError(() => describeModel({ ...small, ...changes }, 'config.json')).message;
      for (const value of [false, 0, 'no', NaN])
        for (const key of ['is_causal', 'causal', 'causal_attention', 'use_causal_mask'])
          expect(refusal({ [key]: value })).toContain(BOTH_WAYS);
      for (const value of [true, 1, 'all', 'vision', NaN, {}])
        for (const key of [
          'use_bidirectional_attention',
          'bidirectional_attention',
          'is_bidirectional',
          'bidirectional',
        ])
          expect(refusal({ [key]: value })).toContain(BOTH_WAYS);
      for (const key of ['is_prefix_lm', 'use_prefix_lm', 'prefix_lm', 'is_encoder_decoder', 'add_cross_attention'])
        expect(refusal({ [key]: true })).toContain(`${key} is true`);
      for (const key of ['speculators_config', 'num_target_layers', 'hydra_num_heads', 'target_hidden_size'])
        expect(refusal({ [key]: 4 })).toContain(DRAFT);
      const plain = describeModel(small, 'config.json').config;
      const harmless = {
        is_causal: true,
        use_bidirectional_attention: null,
        bidirectional: false,
        is_encoder_decoder: false,
        is_decoder: false,
        add_cross_attention: false,
        draft_vocab_size: null,
        attn_implementation: 'eager',
        use_cache: false,
      };
      expect(describeModel({ ...small, ...harmless }, 'config.json').config).toEqual(plain);
    },
  );
});
