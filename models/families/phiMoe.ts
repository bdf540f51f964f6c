/** Phi 3.5 MoE (arXiv:2404.14219): experts whose weights are found in turn (arXiv:2409.12136), LayerNorm. */
import { isGiven, isRecord, quote } from '../../system/json.js';
import { type ExpertNames, MIXTRAL_EXPERTS } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

const { elsewhere: _, ...PHI_EXPERTS }: ExpertNames = MIXTRAL_EXPERTS;

/** Rotary settings: cosine and sine are multiplied by `short_mscale` within the original context. */
function withFactor(read: ConfigReader, key: 'rope_scaling' | 'rope_parameters'): Json {
  const { [key]: settings } = read.json;
  if (!isRecord(settings) || !isGiven(settings['short_mscale'])) return {};
  const type = settings['rope_type'] ?? settings['type'];
  if (type !== 'longrope' && type !== 'su')
    read.fail(`${key}.short_mscale is given with the rope type ${quote(type)}: only LongRoPE's is known`);
  return { [key]: { ...settings, attention_factor: settings['short_mscale'] } };
}

export const PHI_MOE_FAMILIES = [
  decoderFamily({
    name: 'PhimoeForCausalLM',
    otherNames: ['PhiMoEForCausalLM'],
    modelType: 'phimoe',
    covers: 'Phi 3.5 MoE, Phi mini and tiny MoE',
    maxPositions: 131_072,
    kvHeads: 8,
    theta: 1_000_000,
    epsilon: 1e-5,
    ropeTypes: { su: 'longrope' },
    names: { ...LLAMA_NAMES, experts: PHI_EXPERTS },
    prepare: (read) => ({
      ...read.json,
      ...withFactor(read, 'rope_scaling'),
      ...withFactor(read, 'rope_parameters'),
    }),
    differences: (read) => {
      const experts = read.experts({
        count: ['num_local_experts'],
        width: 'intermediate_size',
        defaults: { count: 16, chosen: 2, width: 6400 },
      });
      if (experts.chosen !== 2)
        read.fail(`num_experts_per_tok is ${experts.chosen}: two experts of a token are chosen, one after the other`);
      return {
        norm: { kind: 'layer', offset: 0, hasBias: true },
        biased: read.attentionBiases(),
        ...(read.flag('lm_head_bias') ? { hasHeadBias: true as const } : {}),
        windows: read.without('layer_types').windows(null, () => true),
        experts: {
          ...experts,
          isNormalized: false,
          // Logits are near another if their distance is at most twice the noise of training.
          routing: { inTurn: 2 * read.number('router_jitter_noise', 0.01, [1e-6, 100]) },
        },
      };
    },
  }),
] as const;
