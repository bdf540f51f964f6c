/** OLMo 1 beside a second definition in float64: norms without weights, bounds of queries, keys and values. */
import { expect, it } from 'vitest';
import {
  add,
  attend,
  embedded,
  heads,
  linear,
  logProbabilities,
  ofGraph,
  type Row,
  sum,
  swiglu,
  turned,
} from './byHand.js';

const TOKENS = [3, 1, 12, 7, 0, 5, 5, 9];
const [HIDDEN, WIDTH, CLIP] = [24, 4, 0.6];

function unit(row: Row): Row {
  const mean = sum(row) / row.length;
  const deviation = Math.sqrt(sum(row.map((x) => (x - mean) ** 2)) / row.length + 1e-5);
  return row.map((x) => (x - mean) / deviation);
}

it('OLMo 1', () => {
  const { logProb, weights } = ofGraph(
    {
      ...{ architectures: ['OlmoForCausalLM'], model_type: 'olmo', hidden_size: HIDDEN, intermediate_size: 20 },
      ...{ num_hidden_layers: 2, num_attention_heads: 6, num_key_value_heads: 2, vocab_size: 13 },
      ...{ max_position_embeddings: 64, rope_theta: 50, clip_qkv: CLIP },
    },
    TOKENS,
  );
  expect([...weights.keys()].filter((name) => name.includes('norm'))).toEqual([]);
  let rows: readonly Row[] = embedded(weights, 'model.embed_tokens.weight', TOKENS, HIDDEN);
  for (const at of ['model.layers.0', 'model.layers.1']) {
    const tokens = rows.map((row, position) => {
      const [q, k, v] = ['q', 'k', 'v'].map((name) => {
        const own = linear(weights, `${at}.self_attn.${name}_proj`, unit(row));
        return heads(
          own.map((x) => Math.min(CLIP, Math.max(-CLIP, x))),
          WIDTH,
        );
      });
      const turn = (head: Row): Row => turned(50)(head, position);
      return { q: q!.map(turn), k: k!.map(turn), v: v! };
    });
    rows = attend(tokens, WIDTH ** -0.5).map((mixed, i) =>
      add(rows[i]!, linear(weights, `${at}.self_attn.o_proj`, mixed)),
    );
    rows = rows.map((row) => add(row, swiglu(weights, `${at}.mlp`, unit(row))));
  }
  logProbabilities(TOKENS, rows, (row) => linear(weights, 'lm_head', unit(row))).forEach((value, i) =>
    expect(logProb[i]).toBeCloseTo(value, 10),
  );
});
