/** DeepSeek V2 (arXiv:2405.04434) and V3 (arXiv:2412.19437), and families with the same keys: Kimi K2, GLM 4.7. */
import { groupsProblem, type ExpertGroups } from '../../ir/experts.js';
import { isGiven, isRecord, quote } from '../../system/json.js';
import { defined } from '../../system/defined.js';
import type { Differences } from '../decoder/config.js';
import { type ExpertNames, type ExpertsConfig, QWEN_EXPERTS, type RoutingConfig } from '../decoder/experts.js';
import { decoderFamily } from '../decoder/family.js';
import type { LatentConfig } from '../decoder/latent.js';
import type { ConfigReader } from '../decoder/reader.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';

const EXPERTS: ExpertNames = { ...QWEN_EXPERTS, shared: 'mlp.shared_experts' };
const BIAS = 'mlp.gate.e_score_correction_bias';
const NAMES = { ...LLAMA_NAMES, experts: EXPERTS };

const MAX_WIDTH = 1 << 16;
const MAX_HEAD = 1024;
const MAX_HEADS = 1024;

/** What transformers takes absent keys for. */
interface Defaults {
  readonly latent: Omit<LatentConfig, 'interleaved' | 'isBiased'>;
  readonly experts: Pick<ExpertsConfig, 'count' | 'chosen' | 'width'> & { readonly shared: number };
  readonly isNormalized: boolean;
  readonly groups: Pick<ExpertGroups, 'count' | 'kept'> | undefined;
  readonly factor: number;
  readonly dense: number;
}

/** A whole number, whose `fallback` counts where the key is absent. */
const size = (read: ConfigReader, key: string, fallback: number, max: number): number =>
  read.whole(key, fallback, [1, max]);

/** The file in the words of decoders: all heads have keys of their own, and their turned elements are turned whole. */
const prepare =
  ({ latent }: Defaults) =>
  (read: ConfigReader): Json => {
    const heads = read.whole('num_attention_heads', 32, [1, MAX_HEADS]);
    const { num_key_value_heads: kvHeads } = read.json;
    if (isGiven(kvHeads) && kvHeads !== heads)
      read.fail(
        `num_key_value_heads is ${quote(kvHeads)}: latent attention has keys for each of ${quote(heads)} heads`,
      );
    const turned = size(read, 'qk_rope_head_dim', latent.turned, MAX_HEAD);
    return { ...read.json, num_key_value_heads: heads, head_dim: turned };
  };

function latentOf(read: ConfigReader, { latent }: Defaults, interleaved: boolean): LatentConfig {
  const { q_lora_rank: queries = latent.queryRank } = read.json;
  const turned = size(read, 'qk_rope_head_dim', latent.turned, MAX_HEAD);
  return {
    queryRank: queries === null ? null : size(read, 'q_lora_rank', latent.queryRank ?? 1, MAX_WIDTH),
    rank: size(read, 'kv_lora_rank', latent.rank, MAX_WIDTH),
    plain: size(read, 'qk_nope_head_dim', latent.plain, MAX_HEAD),
    turned,
    values: size(read, 'v_head_dim', latent.values, MAX_HEAD),
    interleaved,
    isBiased: read.flag('attention_bias'),
  };
}

/** What scores are multiplied by: 1/√d, and where a scaling of rotary embedding says so, the square of its factor. */
function scoresFactor(read: ConfigReader, { plain, turned }: LatentConfig): number {
  const { rope_parameters: own, rope_scaling: older } = read.json;
  const settings = isRecord(own) ? own : isRecord(older) ? older : {};
  const { rope_type: type = settings['type'], mscale_all_dim: weight, factor } = settings;
  const plainFactor = (plain + turned) ** -0.5;
  const isScaled = isGiven(type) && type !== 'default' && typeof weight === 'number' && weight !== 0;
  if (!isScaled || typeof factor !== 'number' || factor <= 1) return plainFactor;
  return plainFactor * (0.1 * weight * Math.log(factor) + 1) ** 2;
}

/** Groups of experts, of which a row's are in some; undefined where they are in all. */
function groupsOf(
  read: ConfigReader,
  { count, chosen }: Pick<ExpertsConfig, 'count' | 'chosen'>,
  defaults: Defaults['groups'],
  best: number,
): ExpertGroups | undefined {
  const { n_group: stated = defaults?.count } = read.json;
  if (!isGiven(stated)) return undefined;
  const groups = {
    count: read.whole('n_group', defaults?.count ?? 1, [1, count]),
    kept: read.whole('topk_group', defaults?.kept ?? 1, [1, count]),
    best,
  };
  const problem = groupsProblem(groups, count, chosen);
  if (problem !== undefined) read.fail(`n_group and topk_group: ${problem}`);
  return groups.count === groups.kept ? undefined : groups;
}

function expertsOf(
  read: ConfigReader,
  { experts: own, isNormalized, dense }: Defaults,
  routing: (chosen: Pick<ExpertsConfig, 'count' | 'chosen'>) => RoutingConfig,
): ExpertsConfig {
  const { count, chosen, width } = read.experts({
    count: ['n_routed_experts', 'num_experts', 'num_local_experts'],
    width: 'moe_intermediate_size',
    defaults: own,
  });
  const { n_shared_experts: stated } = read.json;
  const shared = (stated === null ? 0 : read.whole('n_shared_experts', own.shared, [0, 64])) * width;
  const first = read.whole('first_k_dense_replace', dense, [0, 1024]);
  // DeepSeek's own code reads it; transformers takes it for 1, and looks for experts in every layer.
  const interval = read.whole('moe_layer_freq', 1, [1, 1024]);
  const types: unknown = read.json['mlp_layer_types'];
  const layers = read.layers();
  if (isGiven(types) && !(Array.isArray(types) && types.length === layers.length && types.every(isLayerType)))
    read.fail(
      `mlp_layer_types: expected a list of dense and sparse for ${layers.length} layers, got ${quote(types, 60)}`,
    );
  const isDense = (layer: number): boolean =>
    Array.isArray(types) ? types[layer] === 'dense' : layer < first || layer % interval !== 0;
  const denseLayers = layers.filter(isDense);
  return {
    count,
    chosen,
    width,
    isNormalized: read.flag('norm_topk_prob', isNormalized),
    routing: routing({ count, chosen }),
    ...(shared === 0 ? {} : { sharedWidth: shared, hasSharedGate: false }),
    ...(denseLayers.length === 0 ? {} : { dense: denseLayers }),
  };
}

const isLayerType = (type: unknown): boolean => type === 'dense' || type === 'sparse';

/** Refuses a setting with another value: transformers computes as if it had one of these. */
function requireValue(read: ConfigReader, key: string, ...values: readonly (string | number | boolean)[]): void {
  const value = read.json[key];
  if (isGiven(value) && !values.some((each) => each === value))
    read.fail(`${key} is ${quote(value)}: supported is ${values.map((each) => quote(each)).join(' or ')}`);
}

const V2: Defaults = {
  latent: { queryRank: 1536, rank: 512, plain: 128, turned: 64, values: 128 },
  experts: { count: 64, chosen: 1, width: 1407, shared: 2 },
  isNormalized: false,
  groups: undefined,
  factor: 1,
  dense: 0,
};

const V3: Defaults = {
  latent: { queryRank: 1536, rank: 512, plain: 128, turned: 64, values: 128 },
  experts: { count: 256, chosen: 8, width: 2048, shared: 1 },
  isNormalized: true,
  groups: { count: 8, kept: 4 },
  factor: 2.5,
  dense: 3,
};

const GLM: Defaults = {
  latent: { queryRank: 768, rank: 512, plain: 192, turned: 64, values: 256 },
  experts: { count: 64, chosen: 4, width: 1536, shared: 1 },
  isNormalized: true,
  groups: { count: 1, kept: 1 },
  factor: 1.8,
  dense: 1,
};

const factorOf = (read: ConfigReader, { factor }: Defaults): Pick<RoutingConfig, 'factor'> => {
  const own = read.number('routed_scaling_factor', factor);
  return own === 1 ? {} : { factor: own };
};

function differencesOf(
  read: ConfigReader,
  defaults: Defaults,
  experts: ExpertsConfig,
  interleaved: boolean,
): Differences {
  const latent = latentOf(read, defaults, interleaved);
  return {
    biased: read.flag('attention_bias') ? ['o'] : [],
    experts,
    latent,
    factors: { scores: scoresFactor(read, latent) },
  };
}

/** Scores are softmaxes of all experts, and a group is worth its largest one. */
function v2(read: ConfigReader): Differences {
  requireValue(read, 'topk_method', 'greedy', 'group_limited_greedy');
  requireValue(read, 'scoring_func', 'softmax');
  // transformers takes no notice of it, and DeepSeek's own code then leaves routed_scaling_factor out.
  requireValue(read, 'norm_topk_prob', false);
  requireValue(read, 'mlp_bias', false);
  const inGroups = read.json['topk_method'] === 'group_limited_greedy';
  const experts = expertsOf(read, V2, (counts) => ({
    ...defined({ groups: inGroups ? groupsOf(read, counts, V2.groups, 1) : undefined }),
    ...factorOf(read, V2),
  }));
  return differencesOf(read, V2, experts, true);
}

/** Scores are sigmoids, a bias counts in the choice only, and a group is worth its two largest. */
const v3 =
  (defaults: Defaults) =>
  (read: ConfigReader): Differences => {
    requireValue(read, 'topk_method', 'noaux_tc');
    requireValue(read, 'scoring_func', 'sigmoid');
    const experts = expertsOf(read, defaults, (counts) => ({
      scores: 'sigmoid',
      bias: BIAS,
      ...defined({ groups: groupsOf(read, counts, defaults.groups, 2) }),
      ...factorOf(read, defaults),
    }));
    return differencesOf(read, defaults, experts, read.flag('rope_interleave', true));
  };

export const DEEPSEEK_FAMILIES = [
  decoderFamily({
    name: 'DeepseekV2ForCausalLM',
    modelType: 'deepseek_v2',
    covers: 'DeepSeek V2, V2 Lite, Coder V2',
    maxPositions: 2048,
    names: NAMES,
    prepare: prepare(V2),
    differences: v2,
  }),

  decoderFamily({
    name: 'DeepseekV3ForCausalLM',
    modelType: 'deepseek_v3',
    otherModelTypes: ['kimi_k2'],
    covers: 'DeepSeek V3, R1; Kimi K2',
    maxPositions: 4096,
    names: NAMES,
    prepare: prepare(V3),
    differences: v3(V3),
  }),

  decoderFamily({
    name: 'Glm4MoeLiteForCausalLM',
    modelType: 'glm4_moe_lite',
    covers: 'GLM 4.7 Flash',
    maxPositions: 202_752,
    epsilon: 1e-5,
    names: NAMES,
    prepare: prepare(GLM),
    differences: v3(GLM),
  }),
] as const;
