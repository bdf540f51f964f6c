/** Llama 4's chunks and temperature, slopes of BLOOM and MPT, OPT's norms, beside second definitions in float64. */
import { expect, it } from 'vitest';
import {
  add,
  attend,
  embedded,
  gelu,
  heads,
  layerNorm,
  linear,
  logProbabilities,
  ofGraph,
  rmsNorm,
  type Row,
  silu,
  sum,
  times,
  turned,
  type Weights,
} from './byHand.js';

const SIZES = { hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 6, vocab_size: 13 };
const HIDDEN = 24;
const TOKENS = Array.from({ length: 29 }, (_, i) => (i * i + 3 * i) % 13);
const expectSame = (got: Row, want: Row): void => want.forEach((value, i) => expect(got[i]).toBeCloseTo(value, 9));

it('Llama 4: chunks where heads are turned, and elsewhere queries that grow with positions', () => {
  const [WIDTH, CHUNK, EVERY, BY] = [4, 5, 3, 0.7];
  const { logProb, weights } = ofGraph(
    {
      architectures: ['Llama4ForCausalLM'],
      model_type: 'llama4_text',
      ...{ ...SIZES, num_hidden_layers: 4, num_key_value_heads: 2, head_dim: WIDTH, rms_norm_eps: 0.01 },
      ...{
        no_rope_layers: [1, 0, 1, 0],
        layer_types: ['chunked', 'full', 'chunked', 'chunked'].map((x) => `${x}_attention`),
      },
      ...{
        attention_chunk_size: CHUNK,
        floor_scale: EVERY,
        attn_scale: BY,
        moe_layers: [],
        intermediate_size: 8,
        intermediate_size_mlp: 20,
      },
      rope_parameters: { rope_type: 'default', rope_theta: 50 },
    },
    TOKENS,
  );
  const [norm, turn] = [rmsNorm(0.01), turned(50, true)];
  const unit = (head: Row): Row => times(head, 1 / Math.sqrt(sum(head.map((x) => x * x)) / WIDTH + 0.01));
  let rows: readonly Row[] = embedded(weights, 'model.embed_tokens.weight', TOKENS, HIDDEN);
  for (let layer = 0; layer < 4; layer++) {
    const at = `model.layers.${layer}`;
    const own = rows.map((row, position) => {
      const [q, k, v] = ['q', 'k', 'v'].map((name) =>
        heads(linear(weights, `${at}.self_attn.${name}_proj`, norm(weights, `${at}.input_layernorm`, row)), WIDTH),
      );
      const warm = (head: Row): Row => times(head, 1 + BY * Math.log(1 + Math.floor((position + 1) / EVERY)));
      return layer % 2 === 0
        ? { q: q!.map((head) => unit(turn(head, position))), k: k!.map((head) => unit(turn(head, position))), v: v! }
        : { q: q!.map(warm), k: k!, v: v! };
    });
    const hides = (key: number, query: number): boolean =>
      layer !== 1 && Math.floor(key / CHUNK) !== Math.floor(query / CHUNK);
    rows = attend(own, WIDTH ** -0.5, (_, key, query) => (hides(key, query) ? -Infinity : 0)).map((mixed, i) =>
      add(rows[i]!, linear(weights, `${at}.self_attn.o_proj`, mixed)),
    );
    rows = rows.map((row) => {
      const read = norm(weights, `${at}.post_attention_layernorm`, row);
      const [gate, up] = ['gate', 'up'].map((name) => linear(weights, `${at}.feed_forward.${name}_proj`, read));
      const inner = gate!.map((x, i) => silu(x) * up![i]!);
      return add(row, linear(weights, `${at}.feed_forward.down_proj`, inner));
    });
  }
  expectSame(
    logProb,
    logProbabilities(TOKENS, rows, (row) => linear(weights, 'lm_head', norm(weights, 'model.norm', row))),
  );
});

const norm = layerNorm(0.01);

/** A decoder of two branches in turn, both behind LayerNorm. */
function inTurn(
  weights: Weights,
  start: readonly Row[],
  names: (layer: number) => readonly [norm: string, own: string, o: string, norm: string, up: string, down: string],
  split: (row: Row) => Parameters<typeof attend>[0][number],
  slopes: Row,
  activation: (x: number) => number,
  scale = (HIDDEN / slopes.length) ** -0.5,
): readonly Row[] {
  let rows = start;
  for (let layer = 0; layer < 2; layer++) {
    const [first, own, o, second, up, down] = names(layer);
    const tokens = rows.map((row) => split(linear(weights, own, norm(weights, first, row))));
    // Positions of keys: all scores of a query are as much lower by distances.
    const mixed = attend(tokens, scale, (head, key) => slopes[head]! * key);
    rows = rows.map((row, i) => {
      const stream = add(row, linear(weights, o, mixed[i]!));
      return add(stream, linear(weights, down, linear(weights, up, norm(weights, second, stream)).map(activation)));
    });
  }
  return rows;
}

it('BLOOM: slopes of six heads, whose queries, keys and values lie side by side', () => {
  const { logProb, weights } = ofGraph(
    { architectures: ['BloomForCausalLM'], model_type: 'bloom', ...SIZES, layer_norm_epsilon: 0.01 },
    TOKENS,
  );
  const rows = inTurn(
    weights,
    embedded(weights, 'transformer.word_embeddings.weight', TOKENS, HIDDEN).map((row) =>
      norm(weights, 'transformer.word_embeddings_layernorm', row),
    ),
    (layer) => {
      const at = `transformer.h.${layer}`;
      const [own, mlp] = [`${at}.self_attention`, `${at}.mlp`];
      return [
        ...([`${at}.input_layernorm`, `${own}.query_key_value`, `${own}.dense`] as const),
        ...([`${at}.post_attention_layernorm`, `${mlp}.dense_h_to_4h`, `${mlp}.dense_4h_to_h`] as const),
      ];
    },
    (row) => {
      const all = heads(row, 4);
      return {
        q: all.filter((_, i) => i % 3 === 0),
        k: all.filter((_, i) => i % 3 === 1),
        v: all.filter((_, i) => i % 3 === 2),
      };
    },
    [2 ** -2, 2 ** -4, 2 ** -6, 2 ** -8, 2 ** -1, 2 ** -3],
    (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  );
  expectSame(
    logProb,
    logProbabilities(TOKENS, rows, (row) =>
      linear(weights, 'transformer.word_embeddings', norm(weights, 'transformer.ln_f', row)),
    ),
  );
});

it('MPT: slopes of six heads up to another exponent, bounded queries, keys and values, a scale of its own', () => {
  const own = { alibi: true, alibi_bias_max: 16, clip_qkv: 0.75, softmax_scale: 0.3 };
  const { hidden_size: d_model, num_hidden_layers: n_layers, num_attention_heads: n_heads, vocab_size } = SIZES;
  const sizes = { d_model, n_layers, n_heads, vocab_size, layer_norm_epsilon: 0.01 };
  const { logProb, weights } = ofGraph(
    { architectures: ['MptForCausalLM'], model_type: 'mpt', ...sizes, attn_config: own },
    TOKENS,
  );
  const rows = inTurn(
    weights,
    embedded(weights, 'transformer.wte.weight', TOKENS, HIDDEN),
    (layer) => {
      const at = `transformer.blocks.${layer}`;
      const [attn, ffn] = [`${at}.attn`, `${at}.ffn`];
      return [`${at}.norm_1`, `${attn}.Wqkv`, `${attn}.out_proj`, `${at}.norm_2`, `${ffn}.up_proj`, `${ffn}.down_proj`];
    },
    (row) => {
      const all = heads(
        row.map((x) => Math.min(0.75, Math.max(-0.75, x))),
        4,
      );
      return { q: all.slice(0, 6), k: all.slice(6, 12), v: all.slice(12) };
    },
    // 2^(−16/8 · i) for i = 2, 4, 6, 8, then 1 and 3.
    [2 ** -4, 2 ** -8, 2 ** -12, 2 ** -16, 2 ** -2, 2 ** -6],
    gelu,
    0.3,
  );
  expectSame(
    logProb,
    logProbabilities(TOKENS, rows, (row) =>
      linear(weights, 'transformer.wte', norm(weights, 'transformer.norm_f', row)),
    ),
  );
});

it.each([true, false])('OPT: norms behind sums, narrow embeddings, weights in its norms: %s', (hasWeights) => {
  const [NARROW, WIDTH] = [8, 4];
  const { logProb, weights } = ofGraph(
    {
      ...{ architectures: ['OPTForCausalLM'], model_type: 'opt', ...SIZES, word_embed_proj_dim: NARROW, ffn_dim: 20 },
      ...{ do_layer_norm_before: false, layer_norm_elementwise_affine: hasWeights, max_position_embeddings: 64 },
    },
    TOKENS,
  );
  const own = (module: string, row: Row): Row => {
    const mean = sum(row) / HIDDEN;
    const deviation = Math.sqrt(sum(row.map((x) => (x - mean) ** 2)) / HIDDEN + 1e-5);
    return hasWeights ? layerNorm(1e-5)(weights, module, row) : row.map((x) => (x - mean) / deviation);
  };
  const at = 'model.decoder';
  // The table has two rows before that of the first position.
  const places = embedded(
    weights,
    `${at}.embed_positions.weight`,
    [...TOKENS.keys()].map((i) => i + 2),
    HIDDEN,
  );
  let rows: readonly Row[] = embedded(weights, `${at}.embed_tokens.weight`, TOKENS, NARROW).map((row, i) =>
    add(linear(weights, `${at}.project_in`, row), places[i]!),
  );
  for (let layer = 0; layer < 2; layer++) {
    const below = `${at}.layers.${layer}`;
    const tokens = rows.map((row) => {
      const [q, k, v] = ['q', 'k', 'v'].map((name) =>
        heads(linear(weights, `${below}.self_attn.${name}_proj`, row), WIDTH),
      );
      return { q: q!, k: k!, v: v! };
    });
    const mixed = attend(tokens, WIDTH ** -0.5);
    rows = rows.map((row, i) => {
      const sums = add(row, linear(weights, `${below}.self_attn.out_proj`, mixed[i]!));
      const stream = own(`${below}.self_attn_layer_norm`, sums);
      const inner = linear(weights, `${below}.fc1`, stream).map((x) => Math.max(0, x));
      return own(`${below}.final_layer_norm`, add(stream, linear(weights, `${below}.fc2`, inner)));
    });
  }
  expectSame(
    logProb,
    logProbabilities(TOKENS, rows, (row) =>
      linear(weights, `${at}.embed_tokens`, linear(weights, `${at}.project_out`, row)),
    ),
  );
});

it('OPT without a norm before the head', () => {
  const { logProb, weights } = ofGraph(
    {
      ...{ architectures: ['OPTForCausalLM'], model_type: 'opt', ...SIZES, ffn_dim: 20 },
      ...{ _remove_final_layer_norm: true, max_position_embeddings: 64 },
    },
    TOKENS,
  );
  const own = layerNorm(1e-5);
  const at = 'model.decoder';
  const places = weights.get(`${at}.embed_positions.weight`)!.slice(2 * HIDDEN);
  const start = embedded(weights, `${at}.embed_tokens.weight`, TOKENS, HIDDEN).map((row, i) =>
    add(row, [...places.slice(i * HIDDEN, (i + 1) * HIDDEN)]),
  );
  let rows: readonly Row[] = start;
  for (let layer = 0; layer < 2; layer++) {
    const below = `${at}.layers.${layer}`;
    const tokens = rows.map((row) => {
      const x = own(weights, `${below}.self_attn_layer_norm`, row);
      const [q, k, v] = ['q', 'k', 'v'].map((name) => heads(linear(weights, `${below}.self_attn.${name}_proj`, x), 4));
      return { q: q!, k: k!, v: v! };
    });
    const mixed = attend(tokens, 4 ** -0.5);
    rows = rows.map((row, i) => {
      const stream = add(row, linear(weights, `${below}.self_attn.out_proj`, mixed[i]!));
      const x = own(weights, `${below}.final_layer_norm`, stream);
      const inner = linear(weights, `${below}.fc1`, x).map((value) => Math.max(0, value));
      return add(stream, linear(weights, `${below}.fc2`, inner));
    });
  }
  expect(weights.has(`${at}.final_layer_norm.weight`)).toBe(false);
  expectSame(
    logProb,
    logProbabilities(TOKENS, rows, (row) => linear(weights, `${at}.embed_tokens`, row)),
  );
});
