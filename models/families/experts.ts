/** Families of LLaMA's kind whose layers have experts. */
import { type ExpertGroups, MAX_EXPERTS } from '../../ir/experts.js';
import { defined } from '../../system/defined.js';
import {
  type ExpertNames,
  type ExpertsConfig,
  GRANITE_EXPERTS,
  MIXTRAL_EXPERTS,
  QWEN_EXPERTS,
} from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';
import { graniteFactors } from './llama.js';

const GLM_EXPERTS: ExpertNames = { ...QWEN_EXPERTS, shared: 'mlp.shared_experts' };
const SHARED_EXPERTS = 8;

/** Groups of experts by n_group and topk_group: those whose two best experts have the largest sums. */
function groupsOf(read: ConfigReader, experts: number): ExpertGroups | undefined {
  const count = read.whole('n_group', 1, [1, MAX_EXPERTS]);
  const kept = read.whole('topk_group', 1, [1, MAX_EXPERTS]);
  if (count === 1) return undefined;
  if (kept > count) read.fail(`topk_group is ${kept}, but n_group is ${count}`);
  if (experts % count !== 0 || experts / count < 2)
    read.fail(`n_group is ${count}: ${experts} experts are no such groups of two or more`);
  return { count, kept, best: 2 };
}

/** Sigmoids choose, with a bias for each expert that counts in the choice alone; the first layers have no experts. */
function glmExperts(read: ConfigReader): ExpertsConfig {
  const own = read.without('mlp_only_layers', 'decoder_sparse_step').experts({
    count: ['n_routed_experts', 'num_experts', 'num_local_experts'],
    width: 'moe_intermediate_size',
    defaults: { count: 128, chosen: 8, width: 1408 },
  });
  const dense = read.whole('first_k_dense_replace', 1, [0, 1024]);
  const groups = groupsOf(read, own.count);
  const open = groups === undefined ? own.count : (own.count / groups.count) * groups.kept;
  if (own.chosen > open)
    read.fail(`num_experts_per_tok is ${own.chosen}, but groups that are kept have ${open} experts`);
  const shared = read.whole('n_shared_experts', 1, [0, SHARED_EXPERTS]);
  const factor = read.number('routed_scaling_factor', 1);
  return {
    ...own,
    isNormalized: read.flag('norm_topk_prob', true),
    routing: {
      scores: 'sigmoid',
      bias: 'mlp.gate.e_score_correction_bias',
      ...defined({ groups, factor: factor === 1 ? undefined : factor }),
    },
    ...(shared === 0 ? {} : { sharedWidth: shared * own.width, hasSharedGate: false }),
    ...(dense === 0 ? {} : { dense: read.layers().filter((layer) => layer < dense) }),
  };
}

const ERNIE_EXPERTS: ExpertNames = {
  ...QWEN_EXPERTS,
  shared: 'mlp.shared_experts',
  // [1, E] in files.
  isBiasOfOneRow: true,
};

/** A softmax, plus a bias that counts in the choice alone; some layers at both ends may have no experts. */
function ernieExperts(read: ConfigReader): ExpertsConfig {
  const { json } = read;
  const own = new ConfigReader({ ...json, num_experts_per_tok: json['moe_k'] ?? null }, read.where).experts({
    count: ['moe_num_experts'],
    width: 'moe_intermediate_size',
    defaults: { count: 64, chosen: 6, width: 1536 },
  });
  const first = read.whole('moe_layer_start_index', 1, [0, 1024]);
  const end = read.whole('moe_layer_end_index', -1, [-1, 1024]);
  const interval = read.whole('moe_layer_interval', 1, [1, 1024]);
  const least = read.number('moe_norm_min', 1e-12, [0, 1]);
  if (least > 1e-9) read.fail(`moe_norm_min is ${least}: sums of weights have no such bound here`);
  const hasNone = (layer: number): boolean =>
    (layer + 1) % interval !== 0 || layer < first || (end >= 0 && layer > end);
  const dense = read.layers().filter(hasNone);
  const shared = read.whole('moe_num_shared_experts', 2, [0, SHARED_EXPERTS]);
  return {
    ...own,
    routing: { bias: 'mlp.moe_statics.e_score_correction_bias' },
    ...(shared === 0 ? {} : { sharedWidth: shared * own.width, hasSharedGate: false }),
    ...(dense.length === 0 ? {} : { dense }),
  };
}

/** MiniMax's width of what turns, as a part of heads. */
function minimaxPart({ json }: ConfigReader): Json {
  const { rotary_dim: turned, head_dim: width } = json;
  if (typeof turned !== 'number') return json;
  return { ...json, partial_rotary_factor: turned / (typeof width === 'number' ? width : 128) };
}

export const EXPERT_FAMILIES = [
  // OLMoE (arXiv:2409.02060): norms of whole rows of queries and keys, experts in every layer.
  decoderFamily({
    name: 'OlmoeForCausalLM',
    modelType: 'olmoe',
    covers: 'OLMoE 1B-7B',
    maxPositions: 4096,
    epsilon: 1e-5,
    names: { ...LLAMA_NAMES, experts: QWEN_EXPERTS },
    differences: (read) => {
      const clip = read.number('clip_qkv', 0, [0, 1e6]);
      return {
        biased: read.attentionBiases(),
        qkNorm: 'row',
        ...(clip === 0 ? {} : { clip }),
        experts: read.without('mlp_only_layers', 'decoder_sparse_step').experts({
          count: ['num_experts', 'num_local_experts'],
          width: 'intermediate_size',
          hasDenseLayers: true,
          defaults: { count: 64, chosen: 8, width: 2048 },
        }),
      };
    },
  }),

  // Granite 3 with experts: Granite's factors; all experts of a layer lie in one tensor.
  decoderFamily({
    name: 'GraniteMoeForCausalLM',
    modelType: 'granitemoe',
    covers: 'Granite 3 1B-A400M and 3B-A800M',
    maxPositions: 2048,
    names: { ...LLAMA_NAMES, experts: GRANITE_EXPERTS },
    differences: (read) => ({
      biased: read.attentionBiases(),
      factors: graniteFactors(read),
      experts: read.experts({
        count: ['num_local_experts'],
        width: 'intermediate_size',
        defaults: { count: 8, chosen: 2, width: 11_008 },
      }),
    }),
  }),

  // GLM-4.5 to 4.7 (arXiv:2508.06471).
  decoderFamily({
    name: 'Glm4MoeForCausalLM',
    modelType: 'glm4_moe',
    covers: 'GLM-4.5, GLM-4.5 Air, GLM-4.6, GLM-4.7',
    maxPositions: 131_072,
    kvHeads: 8,
    epsilon: 1e-5,
    rotaryPart: 0.5,
    names: { ...LLAMA_NAMES, experts: GLM_EXPERTS },
    differences: (read) => ({
      biased: read.flag('attention_bias') ? ['q', 'k', 'v'] : [],
      ...(read.flag('use_qk_norm') ? { qkNorm: 'head' } : {}),
      experts: glmExperts(read),
    }),
  }),

  // ERNIE 4.5 with experts (Baidu, 2025).
  decoderFamily({
    name: 'Ernie4_5_MoeForCausalLM',
    modelType: 'ernie4_5_moe',
    covers: 'ERNIE 4.5 21B-A3B and 300B-A47B',
    maxPositions: 131_072,
    kvHeads: 4,
    theta: 500_000,
    epsilon: 1e-5,
    hasInterleavedPairs: true,
    isTied: true,
    names: { ...LLAMA_NAMES, experts: ERNIE_EXPERTS },
    differences: (read) => {
      // As in transformers: all matrices have biases, except those of the experts that a router chooses.
      if (!read.flag('use_bias')) return { biased: [], experts: ernieExperts(read) };
      return {
        biased: ['q', 'k', 'v', 'o', 'gate', 'up', 'down'],
        hasHeadBias: true,
        experts: { ...ernieExperts(read), hasSharedBiases: true },
      };
    },
  }),

  // MiniMax-M2 (2025): norms of whole rows of queries and keys, sigmoids with a bias, no shared expert.
  decoderFamily({
    name: 'MiniMaxM2ForCausalLM',
    modelType: 'minimax_m2',
    covers: 'MiniMax-M2 and M2.1',
    maxPositions: 196_608,
    kvHeads: 8,
    headDim: 128,
    theta: 5_000_000,
    rotaryPart: 1,
    names: { ...LLAMA_NAMES, experts: MIXTRAL_EXPERTS },
    prepare: minimaxPart,
    differences: (read) => ({
      biased: [],
      qkNorm: 'row',
      experts: {
        ...read.experts({
          count: ['num_local_experts', 'num_experts'],
          width: 'intermediate_size',
          defaults: { count: 256, chosen: 8, width: 1536 },
        }),
        routing: { scores: 'sigmoid', bias: 'block_sparse_moe.e_score_correction_bias' },
      },
    }),
  }),
] as const;
