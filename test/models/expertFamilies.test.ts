/** Families with experts beside second definitions in float64, with attention in every layer. */
import { expect, it } from 'vitest';
import {
  add,
  attend,
  embedded,
  heads,
  layerNorm,
  linear,
  logProbabilities,
  ofGraph,
  rmsNorm,
  type Row,
  sigmoid,
  silu,
  sum,
  swiglu,
  times,
  turned,
  type Weights,
} from './byHand.js';

const [HIDDEN, WIDTH, LAYERS, EXPERTS] = [16, 8, 3, 6];
const TOKENS = [3, 1, 12, 7, 0, 5, 5, 9];
const SIZES = {
  hidden_size: HIDDEN,
  intermediate_size: 20,
  moe_intermediate_size: 10,
  num_hidden_layers: LAYERS,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: WIDTH,
  vocab_size: 13,
  max_position_embeddings: 64,
  rope_theta: 50,
  rms_norm_eps: 0.01,
  norm_eps: 0.01,
  tie_word_embeddings: true,
  layer_types: Array.from({ length: LAYERS }, () => 'full_attention'),
};

const softmax = (logits: Row): Row => {
  const parts = logits.map((z) => Math.exp(z - Math.max(...logits)));
  return times(parts, 1 / sum(parts));
};

/** Σ of what the `chosen` experts with the largest `compared` give, by their shares of `scores`. */
function mixture(
  weights: Weights,
  module: string,
  x: Row,
  { scores, compared, chosen, least = 0 }: { scores: Row; compared: Row; chosen: number; least?: number },
  [gate, up, down]: readonly [string, string, string] = ['gate_proj', 'up_proj', 'down_proj'],
): Row {
  const order = scores.map((_, expert) => expert).sort((a, b) => compared[b]! - compared[a]!);
  const own = order.slice(0, chosen);
  const total = sum(own.map((expert) => scores[expert]!)) + least;
  return own
    .map((expert) => {
      const at = `${module}.${expert}`;
      const [g, u] = [linear(weights, `${at}.${gate}`, x), linear(weights, `${at}.${up}`, x)];
      const inner = g.map((value, i) => silu(value) * u[i]!);
      return times(linear(weights, `${at}.${down}`, inner), scores[expert]! / total);
    })
    .reduce(add);
}

const norm = rmsNorm(0.01);
/** Norm weights around 1. */
const around = (weights: Weights, module: string, x: Row): Row =>
  norm(new Map([[`${module}.weight`, weights.get(`${module}.weight`)!.map((w) => 1 + w)]]), module, x);

interface Family {
  readonly title: string;
  readonly config: object;
  readonly normed: typeof norm;
  readonly norms: readonly [attention: string, ffn: string, last: string];
  readonly output: string;
  /** What heads of q and k are before they are compared. */
  readonly heads: (weights: Weights, at: string, name: 'q' | 'k', head: Row, position: number) => Row;
  readonly isGated?: boolean;
  readonly feedForward: (weights: Weights, at: string, layer: number, x: Row) => Row;
}

/** The first two elements of eight turn; the others stay. */
const partly = (head: Row, position: number): Row => [...turned(50)(head.slice(0, 2), position), ...head.slice(2)];

const ERNIE: Family = {
  title: 'ERNIE 4.5: a softmax plus a bias, shared experts, a first layer without experts',
  config: {
    architectures: ['Ernie4_5_MoeForCausalLM'],
    model_type: 'ernie4_5_moe',
    moe_num_experts: EXPERTS,
    moe_k: 2,
    moe_num_shared_experts: 2,
  },
  normed: norm,
  norms: ['input_layernorm', 'post_attention_layernorm', 'model.norm'],
  output: 'o_proj',
  heads: (_weights, _at, _name, head, position) => turned(50, true)(head, position),
  feedForward: (weights, at, layer, x) => {
    if (layer === 0) return swiglu(weights, `${at}.mlp`, x);
    const scores = softmax(linear(weights, `${at}.mlp.gate`, x));
    const bias = [...weights.get(`${at}.mlp.moe_statics.e_score_correction_bias`)!];
    const routed = mixture(weights, `${at}.mlp.experts`, x, { scores, compared: add(scores, bias), chosen: 2 });
    return add(routed, swiglu(weights, `${at}.mlp.shared_experts`, x));
  },
};

/** Two experts, one after the other: the first of the largest logits, by its part of those that are near it. */
function inTurn(logits: Row, jitter: number): readonly (readonly [expert: number, weight: number])[] {
  const chosen: [number, number][] = [];
  for (let turn = 0; turn < 2; turn++) {
    const open = logits.map((z, expert) => (chosen.some(([own]) => own === expert) ? -Infinity : z));
    const top = Math.max(...open);
    const isFar = (z: number): boolean => (top - z) / Math.max(Math.abs(z), top) > 2 * jitter;
    const near = open.map((z, expert) => (isFar(logits[expert]!) ? -Infinity : z));
    const expert = open.indexOf(top);
    chosen.push([expert, softmax(near)[expert]!]);
  }
  return chosen;
}

const LONG = { factors: [1, 1.5, 2.5, 4], scale: 1.2 };
/** A head whose pairs turn slower by a factor each, and all of whose elements are scaled. */
const slowed = (head: Row, position: number): Row =>
  head.map((x, i) => {
    const pair = i % 4;
    const angle = position * Math.fround(50 ** (-pair / 4) / LONG.factors[pair]!);
    return LONG.scale * (x * Math.cos(angle) + (i < 4 ? -1 : 1) * head[(i + 4) % 8]! * Math.sin(angle));
  });

const FAMILIES: readonly Family[] = [
  ERNIE,
  {
    ...ERNIE,
    title: 'ERNIE 4.5 with biases on all but routers and the experts that they choose',
    config: { ...ERNIE.config, use_bias: true },
  },
  {
    title: 'Qwen 3.5: a shared expert with a gate, gated attention',
    config: {
      architectures: ['Qwen3_5MoeForCausalLM'],
      model_type: 'qwen3_5_moe_text',
      num_experts: EXPERTS,
      num_experts_per_tok: 3,
      shared_expert_intermediate_size: 12,
    },
    normed: around,
    norms: ['input_layernorm', 'post_attention_layernorm', 'model.norm'],
    output: 'o_proj',
    heads: (weights, at, name, head, position) => partly(around(weights, `${at}.${name}_norm`, head), position),
    isGated: true,
    feedForward: (weights, at, _layer, x) => {
      const scores = softmax(linear(weights, `${at}.mlp.gate`, x));
      const routed = mixture(weights, `${at}.mlp.experts`, x, { scores, compared: scores, chosen: 3 });
      const [share] = linear(weights, `${at}.mlp.shared_expert_gate`, x);
      return add(routed, times(swiglu(weights, `${at}.mlp.shared_expert`, x), sigmoid(share!)));
    },
  },
  {
    title: 'Llama 4: two experts read a token times their sigmoids, and a shared one reads it as it is',
    config: {
      architectures: ['Llama4ForCausalLM'],
      model_type: 'llama4_text',
      num_local_experts: EXPERTS,
      num_experts_per_tok: 2,
      no_rope_layers: [1, 1, 1],
      attention_chunk_size: null,
      attn_temperature_tuning: false,
      use_qk_norm: false,
    },
    normed: norm,
    norms: ['input_layernorm', 'post_attention_layernorm', 'model.norm'],
    output: 'o_proj',
    heads: (_weights, _at, _name, head, position) => turned(50, true)(head, position),
    feedForward: (weights, at, _layer, x) => {
      const module = `${at}.feed_forward`;
      const logits = linear(weights, `${module}.router`, x);
      const chosen = logits.map((_, expert) => expert).sort((a, b) => logits[b]! - logits[a]!);
      return chosen
        .slice(0, 2)
        .map((expert) => swiglu(weights, `${module}.experts.${expert}`, times(x, sigmoid(logits[expert]!))))
        .reduce(add, swiglu(weights, `${module}.shared_expert`, x));
    },
  },
  {
    title: 'Phi 3.5 MoE: experts in turn, LayerNorm and biases, LongRoPE with a scale of its own',
    config: {
      architectures: ['PhiMoEForCausalLM'],
      model_type: 'phimoe',
      num_local_experts: EXPERTS,
      num_experts_per_tok: 2,
      router_jitter_noise: 0.4,
      attention_bias: true,
      lm_head_bias: true,
      rope_scaling: {
        ...{ type: 'longrope', original_max_position_embeddings: 32, short_factor: LONG.factors },
        ...{ long_factor: [9, 9, 9, 9], short_mscale: LONG.scale, long_mscale: 9 },
      },
    },
    normed: layerNorm(0.01),
    norms: ['input_layernorm', 'post_attention_layernorm', 'model.norm'],
    output: 'o_proj',
    heads: (_weights, _at, _name, head, position) => slowed(head, position),
    feedForward: (weights, at, _layer, x) => {
      const module = `${at}.block_sparse_moe`;
      return inTurn(linear(weights, `${module}.gate`, x), 0.4)
        .map(([expert, weight]) => {
          const [gate, up] = ['w1', 'w3'].map((name) => linear(weights, `${module}.experts.${expert}.${name}`, x));
          const inner = gate!.map((value, i) => silu(value) * up![i]!);
          return times(linear(weights, `${module}.experts.${expert}.w2`, inner), weight);
        })
        .reduce(add);
    },
  },
  {
    title: 'LFM2: sigmoids plus a bias, a factor, a first layer without experts',
    config: {
      architectures: ['Lfm2MoeForCausalLM'],
      model_type: 'lfm2_moe',
      num_experts: EXPERTS,
      num_experts_per_tok: 2,
      num_dense_layers: 1,
      routed_scaling_factor: 1.5,
    },
    normed: norm,
    norms: ['operator_norm', 'ffn_norm', 'model.embedding_norm'],
    output: 'out_proj',
    heads: (weights, at, name, head, position) => turned(50)(norm(weights, `${at}.${name}_layernorm`, head), position),
    feedForward: (weights, at, layer, x) => {
      const module = `${at}.feed_forward`;
      const names = ['w1', 'w3', 'w2'] as const;
      if (layer === 0) {
        const [gate, up] = [linear(weights, `${module}.w1`, x), linear(weights, `${module}.w3`, x)];
        return linear(
          weights,
          `${module}.w2`,
          gate.map((value, i) => silu(value) * up[i]!),
        );
      }
      const scores = linear(weights, `${module}.gate`, x).map(sigmoid);
      const compared = add(scores, [...weights.get(`${module}.expert_bias`)!]);
      const routed = mixture(weights, `${module}.experts`, x, { scores, compared, chosen: 2, least: 1e-6 }, names);
      return times(routed, 1.5);
    },
  },
];

it.each(FAMILIES)('$title', ({ config, normed, norms, output, heads: compared, isGated = false, feedForward }) => {
  const { logProb, weights } = ofGraph({ ...SIZES, ...config }, TOKENS);
  let rows: readonly Row[] = embedded(weights, 'model.embed_tokens.weight', TOKENS, HIDDEN);
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `model.layers.${layer}`;
    const own = rows.map((row, position) => {
      const x = normed(weights, `${at}.${norms[0]}`, row);
      const [q, k, v] = ['q', 'k', 'v'].map((name) => heads(linear(weights, `${at}.self_attn.${name}_proj`, x), WIDTH));
      // A gate's rows follow those of each head of queries.
      const queries = q!.filter((_, i) => !isGated || i % 2 === 0);
      const gates = q!.filter((_, i) => i % 2 === 1).flat();
      const turn = (name: 'q' | 'k', head: Row): Row => compared(weights, `${at}.self_attn`, name, head, position);
      return { q: queries.map((head) => turn('q', head)), k: k!.map((head) => turn('k', head)), v: v!, gates };
    });
    const mixed = attend(own, WIDTH ** -0.5).map((row, i) =>
      isGated ? row.map((x, j) => x * sigmoid(own[i]!.gates[j]!)) : row,
    );
    rows = mixed.map((row, i) => add(rows[i]!, linear(weights, `${at}.self_attn.${output}`, row)));
    rows = rows.map((row) => add(row, feedForward(weights, at, layer, normed(weights, `${at}.${norms[1]}`, row))));
  }
  const bias = weights.get('lm_head.bias');
  const logits = (row: Row): Row =>
    linear(weights, 'model.embed_tokens', normed(weights, norms[2], row)).map((x, i) => x + (bias?.[i] ?? 0));
  // A millionth in the sum of LFM2's shares is left out.
  const digits = 'num_dense_layers' in config ? 4 : 10;
  logProbabilities(TOKENS, rows, logits).forEach((value, i) => expect(logProb[i]).toBeCloseTo(value, digits));
});
