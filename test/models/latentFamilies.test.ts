/** Latent attention beside a second definition in float64, in which keys and values of every head are made. */
import { describe, expect, it } from 'vitest';
import {
  add,
  attend,
  embedded,
  heads,
  linear,
  logProbabilities,
  ofGraph,
  rmsNorm,
  type Row,
  sigmoid,
  sum,
  swiglu,
  times,
  turned,
  type Weights,
} from './byHand.js';

const HIDDEN = 12;
const TOKENS = [3, 1, 12, 7, 0, 5, 5, 9, 2, 2, 11];
const BASE = {
  hidden_size: HIDDEN,
  intermediate_size: 20,
  moe_intermediate_size: 10,
  num_hidden_layers: 3,
  num_attention_heads: 3,
  vocab_size: 13,
  max_position_embeddings: 64,
  rope_theta: 50,
  rms_norm_eps: 0.01,
  q_lora_rank: null as number | null,
  kv_lora_rank: 24,
  qk_nope_head_dim: 6,
  qk_rope_head_dim: 8,
  v_head_dim: 10,
  n_routed_experts: 6,
  num_experts_per_tok: 2,
  n_shared_experts: 1 as number | null,
  first_k_dense_replace: 1,
  moe_layer_freq: 1,
  routed_scaling_factor: 1.5,
  norm_topk_prob: false,
  n_group: 1,
  topk_group: 1,
  attention_bias: false,
  topk_method: 'greedy',
  rope_interleave: true,
  rope_scaling: null as object | null,
};
type Config = typeof BASE;

interface Yarn {
  readonly factor: number;
  readonly original_max_position_embeddings: number;
  readonly beta_fast?: number;
  readonly beta_slow?: number;
  readonly mscale?: number;
  readonly mscale_all_dim?: number;
}

const mscale = (factor: number, weight: number): number => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);

/** YaRN (arXiv:2309.00071): what pairs turn by, and the factor of the turned elements. */
function yarn(yarn: Yarn, theta: number, width: number): { frequencies: Row; size: number } {
  const { factor, original_max_position_embeddings: context, beta_fast: fast = 32, beta_slow: slow = 1 } = yarn;
  const pairOf = (turns: number): number => (width * Math.log(context / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const [low, high] = [Math.max(Math.floor(pairOf(fast)), 0), Math.min(Math.ceil(pairOf(slow)), width - 1)];
  const frequencies = Array.from({ length: width / 2 }, (_, i) => {
    const plain = 1 / theta ** ((2 * i) / width);
    const ramp = Math.min(1, Math.max(0, (i - low) / (high === low ? 0.001 : high - low)));
    return Math.fround((plain / factor) * ramp + plain * (1 - ramp));
  });
  const { mscale: own, mscale_all_dim: all } = yarn;
  const size = own && all ? mscale(factor, own) / mscale(factor, all) : mscale(factor, 1);
  return { frequencies, size };
}

const rope = ({ rope_theta: theta, rope_interleave: isInterleaved, rope_scaling: scaling }: Config) => {
  if (scaling === null) return turned(theta, isInterleaved);
  return (head: Row, position: number): Row => {
    const { frequencies, size } = yarn(scaling as Yarn, theta, head.length);
    const half = head.length / 2;
    return head.map((x, i) => {
      const pair = isInterleaved ? Math.floor(i / 2) : i % half;
      const isFirst = isInterleaved ? i % 2 === 0 : i < half;
      const other = head[isInterleaved ? i + (isFirst ? 1 : -1) : i + (isFirst ? half : -half)]!;
      const angle = position * frequencies[pair]!;
      return size * (x * Math.cos(angle) + (isFirst ? -other : other) * Math.sin(angle));
    });
  };
};

const softmax = (logits: Row): Row => {
  const parts = logits.map((z) => Math.exp(z - Math.max(...logits)));
  return times(parts, 1 / sum(parts));
};
const largest = (values: Row, count: number): readonly number[] =>
  values
    .map((_, i) => i)
    .sort((a, b) => values[b]! - values[a]!)
    .slice(0, count);

function experts(weights: Weights, module: string, x: Row, config: Config, isV3: boolean): Row {
  const { n_routed_experts: count, num_experts_per_tok: chosen, n_group: groups, topk_group: kept } = config;
  const logits = linear(weights, `${module}.gate`, x);
  const scores = isV3 ? logits.map(sigmoid) : softmax(logits);
  const bias = weights.get(`${module}.gate.e_score_correction_bias`);
  const compared = scores.map((score, i) => score + (isV3 ? bias![i]! : 0));
  const isGrouped = isV3 || config.topk_method === 'group_limited_greedy';
  const members = Array.from({ length: groups }, (_, group) =>
    compared.slice((group * count) / groups, ((group + 1) * count) / groups),
  );
  const worth = members.map((own) => sum(largest(own, isV3 ? 2 : 1).map((i) => own[i]!)));
  const open = new Set(largest(worth, kept));
  const allowed = compared.map((value, i) =>
    !isGrouped || open.has(Math.floor((i * groups) / count)) ? value : -Infinity,
  );
  const own = largest(allowed, chosen);
  const total = isV3 && config.norm_topk_prob ? sum(own.map((i) => scores[i]!)) + 1e-20 : 1;
  const mixed = own
    .map((i) =>
      times(swiglu(weights, `${module}.experts.${i}`, x), (config.routed_scaling_factor * scores[i]!) / total),
    )
    .reduce(add);
  return config.n_shared_experts === null ? mixed : add(mixed, swiglu(weights, `${module}.shared_experts`, x));
}

function byHand(weights: Weights, config: Config, isV3: boolean): Row {
  const { num_attention_heads: count, kv_lora_rank: rank, qk_nope_head_dim: plain, rope_scaling: scaling } = config;
  const { qk_rope_head_dim: tail, v_head_dim: width, rms_norm_eps: epsilon } = config;
  const [norm, narrow, turn] = [rmsNorm(epsilon), rmsNorm(1e-6), rope(config)];
  const { factor = 1, mscale_all_dim: all = 0 } = (scaling ?? {}) as Partial<Yarn>;
  const scale = (plain + tail) ** -0.5 * (all ? mscale(factor, all) ** 2 : 1);
  let stream = embedded(weights, 'model.embed_tokens.weight', TOKENS, HIDDEN);
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const at = `model.layers.${layer}`;
    const attention = `${at}.self_attn`;
    const tokens = stream.map((x, position) => {
      const normed = norm(weights, `${at}.input_layernorm`, x);
      const q =
        config.q_lora_rank === null
          ? linear(weights, `${attention}.q_proj`, normed)
          : linear(
              weights,
              `${attention}.q_b_proj`,
              narrow(weights, `${attention}.q_a_layernorm`, linear(weights, `${attention}.q_a_proj`, normed)),
            );
      const down = linear(weights, `${attention}.kv_a_proj_with_mqa`, normed);
      const latent = narrow(weights, `${attention}.kv_a_layernorm`, down.slice(0, rank));
      const shared = turn(down.slice(rank), position);
      const own = heads(linear(weights, `${attention}.kv_b_proj`, latent), plain + width);
      return {
        q: heads(q, plain + tail).map((head) => [...head.slice(0, plain), ...turn(head.slice(plain), position)]),
        k: own.map((head) => [...head.slice(0, plain), ...shared]),
        v: own.map((head) => head.slice(plain)),
      };
    });
    expect(tokens[0]!.q).toHaveLength(count);
    const mixed = attend(tokens, scale);
    stream = stream.map((x, i) => add(x, linear(weights, `${attention}.o_proj`, mixed[i]!)));
    const isDense = layer < config.first_k_dense_replace || layer % config.moe_layer_freq !== 0;
    stream = stream.map((x) => {
      const normed = norm(weights, `${at}.post_attention_layernorm`, x);
      return add(
        x,
        isDense ? swiglu(weights, `${at}.mlp`, normed) : experts(weights, `${at}.mlp`, normed, config, isV3),
      );
    });
  }
  return logProbabilities(TOKENS, stream, (x) =>
    linear(weights, weights.has('lm_head.weight') ? 'lm_head' : 'model.embed_tokens', norm(weights, 'model.norm', x)),
  );
}

const YARN = { type: 'yarn', factor: 8, original_max_position_embeddings: 8, beta_fast: 4, beta_slow: 1 };
const NAMES = { deepseek_v2: 'DeepseekV2ForCausalLM', deepseek_v3: 'DeepseekV3ForCausalLM' };
const GROUPS = { n_group: 3, topk_group: 2, topk_method: 'group_limited_greedy' };

describe('latent attention by hand', () => {
  it.each<[keyof typeof NAMES, Partial<Config>]>([
    ['deepseek_v2', {}],
    ['deepseek_v2', { q_lora_rank: 14, kv_lora_rank: 40, qk_rope_head_dim: 16, v_head_dim: 6, ...GROUPS }],
    ['deepseek_v2', { first_k_dense_replace: 0, moe_layer_freq: 2, n_shared_experts: null, attention_bias: true }],
    ['deepseek_v2', { rope_scaling: { ...YARN, mscale: 0.7, mscale_all_dim: 0.7 } }],
    ['deepseek_v2', { rope_scaling: { ...YARN, mscale: 1, mscale_all_dim: 0.4 } }],
    ['deepseek_v2', { rope_scaling: { ...YARN, mscale_all_dim: 1 } }],
    ['deepseek_v3', { rope_scaling: YARN, n_group: 2, topk_group: 1, norm_topk_prob: true }],
    ['deepseek_v3', { rope_scaling: { ...YARN, mscale: 1, mscale_all_dim: 1 }, q_lora_rank: 9, attention_bias: true }],
    ['deepseek_v3', { kv_lora_rank: 96, qk_rope_head_dim: 24, qk_nope_head_dim: 8, v_head_dim: 3, ...GROUPS }],
    ['deepseek_v3', { rope_interleave: false, first_k_dense_replace: 3 }],
    ['deepseek_v3', { first_k_dense_replace: 0, moe_layer_freq: 2, norm_topk_prob: true, n_shared_experts: 2 }],
  ])('%s: %j', (type, changed) => {
    const config = { ...BASE, ...changed };
    const isV3 = type === 'deepseek_v3';
    const json = { ...config, ...(isV3 ? { topk_method: 'noaux_tc' } : {}) };
    const { logProb, weights } = ofGraph({ ...json, architectures: [NAMES[type]], model_type: type }, TOKENS);
    const wanted = byHand(weights, config, isV3);
    wanted.forEach((x, i) => expect(logProb[i]).toBeCloseTo(x, 6));
  });
});
