/** Falcon with ALiBi beside a second definition in float64, in texts so long that bf16 rounds their positions. */
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
  type Row,
  type TokenHeads,
  type Weights,
} from './byHand.js';

const [WIDTH, HEADS, LAYERS] = [2, 6, 1];
const HIDDEN = WIDTH * HEADS;
const TOKENS = Array.from({ length: 270 }, (_, i) => (i * i + 3 * i) % 13);

const config = (changes: object): object => ({
  architectures: ['FalconForCausalLM'],
  model_type: 'falcon',
  alibi: true,
  hidden_size: HIDDEN,
  ffn_hidden_size: 10,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  vocab_size: 13,
  layer_norm_epsilon: 0.01,
  ...changes,
});

/** The nearest number of 8 bits, of two the even one. */
function bf16(x: number): number {
  if (x === 0) return 0;
  const unit = 2 ** (Math.floor(Math.log2(Math.abs(x))) - 7);
  const below = Math.floor(x / unit);
  const rest = x / unit - below;
  return (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below) * unit;
}

/** 2^(−8/4 · i) for the first four of six heads, then 2^(−8/8 · i) for i = 1 and 3. */
const SLOPES = [2 ** -2, 2 ** -4, 2 ** -6, 2 ** -8, 2 ** -1, 2 ** -3];
const leaning = (head: number, key: number): number => bf16(SLOPES[head]! * bf16(key)) / Math.sqrt(WIDTH);

const norm = layerNorm(0.01);
/** What the branches read: norms in turn, one for both, or one for each. */
type Norms = 'in turn' | 'one' | 'two';

function falcon(weights: Weights, split: (row: Row) => TokenHeads, norms: Norms): Row {
  let rows: readonly Row[] = embedded(weights, 'transformer.word_embeddings.weight', TOKENS, HIDDEN);
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `transformer.h.${layer}`;
    const first = norms === 'two' ? 'ln_attn' : 'input_layernorm';
    const normed = rows.map((row) => norm(weights, `${at}.${first}`, row));
    const tokens = normed.map((row) => split(linear(weights, `${at}.self_attention.query_key_value`, row)));
    const mixed = attend(tokens, 1 / Math.sqrt(WIDTH), leaning).map((row) =>
      linear(weights, `${at}.self_attention.dense`, row),
    );
    rows = rows.map((row, i) => {
      const sum = add(row, mixed[i]!);
      const reads = {
        one: (): Row => normed[i]!,
        two: (): Row => norm(weights, `${at}.ln_mlp`, row),
        'in turn': (): Row => norm(weights, `${at}.post_attention_layernorm`, sum),
      };
      const read = reads[norms]();
      const inner = linear(weights, `${at}.mlp.dense_h_to_4h`, read).map(gelu);
      return add(sum, linear(weights, `${at}.mlp.dense_4h_to_h`, inner));
    });
  }
  return logProbabilities(TOKENS, rows, (row) =>
    linear(weights, 'transformer.word_embeddings', norm(weights, 'transformer.ln_f', row)),
  );
}

it.each<[string, object, Norms, (row: Row) => TokenHeads]>([
  [
    'branches in turn, keys of each head, biases',
    { multi_query: false, parallel_attn: false, bias: true },
    'in turn',
    (row) => {
      const all = heads(row, WIDTH);
      const every = (from: number): readonly Row[] => all.filter((_, i) => i % 3 === from);
      return { q: every(0), k: every(1), v: every(2) };
    },
  ],
  [
    'parallel branches, keys of all heads',
    {},
    'one',
    (row) => {
      const all = heads(row, WIDTH);
      return { q: all.slice(0, HEADS), k: all.slice(HEADS, HEADS + 1), v: all.slice(HEADS + 1) };
    },
  ],
  [
    'parallel branches with norms of their own, keys of groups of heads',
    { new_decoder_architecture: true, num_kv_heads: 2 },
    'two',
    (row) => {
      // Three queries, a key and a value of each group.
      const all = heads(row, WIDTH);
      const every = (...from: readonly number[]): readonly Row[] => all.filter((_, i) => from.includes(i % 5));
      return { q: every(0, 1, 2), k: every(3), v: every(4) };
    },
  ],
])('%s', (_, changes, norms, split) => {
  const { logProb, weights } = ofGraph(config(changes), TOKENS);
  const expected = falcon(weights, split, norms);
  expected.forEach((value, i) => expect(logProb[i]).toBeCloseTo(value, 8));
});
