/** Ministral 3 beyond its original context, beside a second definition in float64. */
import { expect, it } from 'vitest';
import {
  add,
  attend,
  embedded,
  heads,
  linear,
  logProbabilities,
  ofGraph,
  rmsNorm,
  times,
  turned,
  type Row,
  swiglu,
} from './byHand.js';

const [HIDDEN, WIDTH, LAYERS, EVERY, BETA] = [16, 6, 2, 3, 0.7];
const TOKENS = [3, 1, 12, 7, 0, 5, 5, 9, 2, 2, 11];

const config = {
  architectures: ['Ministral3ForCausalLM'],
  model_type: 'ministral3',
  hidden_size: HIDDEN,
  intermediate_size: 20,
  num_hidden_layers: LAYERS,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: WIDTH,
  vocab_size: 13,
  rms_norm_eps: 0.01,
  max_position_embeddings: 64,
  rope_parameters: {
    rope_type: 'default',
    rope_theta: 50,
    original_max_position_embeddings: EVERY,
    llama_4_scaling_beta: BETA,
  },
};

it('multiplies queries of all layers by a number that grows with their positions', () => {
  const { logProb, weights } = ofGraph(config, TOKENS);
  const [norm, turn] = [rmsNorm(0.01), turned(50)];
  let rows: readonly Row[] = embedded(weights, 'model.embed_tokens.weight', TOKENS, HIDDEN);
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `model.layers.${layer}`;
    const own = rows.map((row, position) => {
      const [q, k, v] = ['q', 'k', 'v'].map((name) =>
        heads(linear(weights, `${at}.self_attn.${name}_proj`, norm(weights, `${at}.input_layernorm`, row)), WIDTH),
      );
      const growth = 1 + BETA * Math.log(1 + Math.floor(position / EVERY));
      return {
        q: q!.map((head) => times(turn(head, position), growth)),
        k: k!.map((head) => turn(head, position)),
        v: v!,
      };
    });
    rows = attend(own, WIDTH ** -0.5).map((mixed, i) =>
      add(rows[i]!, linear(weights, `${at}.self_attn.o_proj`, mixed)),
    );
    rows = rows.map((row) =>
      add(row, swiglu(weights, `${at}.mlp`, norm(weights, `${at}.post_attention_layernorm`, row))),
    );
  }
  const expected = logProbabilities(TOKENS, rows, (row) =>
    linear(weights, 'lm_head', norm(weights, 'model.norm', row)),
  );
  expected.forEach((value, i) => expect(logProb[i]).toBeCloseTo(value, 11));
});
