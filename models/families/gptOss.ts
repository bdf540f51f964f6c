/** gpt-oss (arXiv:2508.10925): sinks, windows in every second layer, experts with biases and a clamped SwiGLU. */
import { isGiven, quote } from '../../system/json.js';
import { decoderFamily } from '../decoder/family.js';
import type { ConfigReader } from '../decoder/reader.js';
import type { Json } from '../model/model.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';

/** The gate's slope within its sigmoid, and what bounds gate and up if a file names no swiglu_limit. */
const [SLOPE, LIMIT] = [1.702, 7];

/** Rotary settings of a file that has none. */
const ROPE = {
  rope_type: 'yarn',
  factor: 32,
  beta_fast: 32,
  beta_slow: 1,
  truncate: false,
  original_max_position_embeddings: 4096,
} as const;

/** A file without rotary settings has YaRN. */
function withRope({ json }: ConfigReader): Json {
  const isStated = isGiven(json['rope_parameters']) || isGiven(json['rope_scaling']);
  return isStated ? json : { ...json, rope_scaling: ROPE };
}

export const GPT_OSS_FAMILIES = [
  decoderFamily({
    name: 'GptOssForCausalLM',
    modelType: 'gpt_oss',
    covers: 'gpt-oss 20B and 120B',
    maxPositions: 131_072,
    kvHeads: 8,
    headDim: 64,
    theta: 150_000,
    epsilon: 1e-5,
    names: {
      ...LLAMA_NAMES,
      experts: {
        router: 'mlp.router',
        expert: 'mlp.experts',
        matrices: { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' },
        shared: 'mlp.shared_expert',
        sharedGate: 'mlp.shared_expert_gate',
      },
    },
    prepare: withRope,
    differences: (read) => {
      const { hidden_act: activation } = read.json;
      if (read.activation('silu') !== 'silu')
        read.fail(`hidden_act is ${quote(activation)}: gpt-oss computes a clamped SwiGLU`);
      return {
        biased: read.flag('attention_bias', true) ? ['q', 'k', 'v', 'o'] : [],
        sinks: true,
        windows: read.windows(128, (layer) => layer % 2 === 0),
        experts: {
          ...read.experts({
            count: ['num_local_experts', 'num_experts'],
            width: 'intermediate_size',
            defaults: { count: 128, chosen: 4, width: 2880 },
          }),
          isBiased: true,
          clamped: { limit: read.number('swiglu_limit', LIMIT), slope: SLOPE },
        },
      };
    },
  }),
] as const;
