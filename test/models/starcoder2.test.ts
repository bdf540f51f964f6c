/**
 * StarCoder 2 written down once more: loops over numbers, one sequence, no op of the compiler. The graph of the family
 * gives the same log-probabilities in float64.
 */
import { expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { describeModel } from '../../models/config.js';
import { Dice } from '../support/families.js';

const [HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, VOCAB] = [16, 20, 2, 4, 2, 13];
const WIDTH = HIDDEN / HEADS;
const TOKENS = [3, 1, 12, 7, 0, 5, 5, 9];

const config = (changes: object): Record<string, unknown> => ({
  architectures: ['Starcoder2ForCausalLM'],
  model_type: 'starcoder2',
  hidden_size: HIDDEN,
  intermediate_size: INNER,
  num_hidden_layers: LAYERS,
  num_attention_heads: HEADS,
  num_key_value_heads: KV_HEADS,
  vocab_size: VOCAB,
  norm_epsilon: 0.01,
  rope_theta: 50,
  ...changes,
});

type Row = readonly number[];
type Weights = ReadonlyMap<string, Float64Array>;

const sum = (values: Row): number => values.reduce((total, x) => total + x, 0);
const add = (a: Row, b: Row): Row => a.map((x, i) => x + b[i]!);

/** W·x, plus a bias where the weights have one. */
function linear(weights: Weights, module: string, x: Row): Row {
  const matrix = weights.get(`${module}.weight`)!;
  const bias = weights.get(`${module}.bias`);
  return Array.from(
    { length: matrix.length / x.length },
    (_, row) => sum(x.map((value, i) => value * matrix[row * x.length + i]!)) + (bias?.[row] ?? 0),
  );
}

/** (x − mean) / √(variance + ε) · weight + bias. */
function layerNorm(weights: Weights, module: string, x: Row): Row {
  const mean = sum(x) / x.length;
  const deviation = Math.sqrt(sum(x.map((value) => (value - mean) ** 2)) / x.length + 0.01);
  const [weight, bias] = [weights.get(`${module}.weight`)!, weights.get(`${module}.bias`)!];
  return x.map((value, i) => ((value - mean) / deviation) * weight[i]! + bias[i]!);
}

/** A head at a position: elements i and i + WIDTH / 2 turn by position · theta^(−2i / WIDTH), the latter in f32. */
const turned = (head: Row, position: number): Row =>
  head.map((x, i) => {
    const half = WIDTH / 2;
    const angle = position * Math.fround(1 / 50 ** ((2 * (i % half)) / WIDTH));
    return x * Math.cos(angle) + (i < half ? -head[i + half]! : head[i - half]!) * Math.sin(angle);
  });

const headOf = (row: Row, head: number): Row => row.slice(head * WIDTH, (head + 1) * WIDTH);
const gelu = (x: number): number => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

/** Rows of attention. A query sees itself and the keys before it, `window` in all. */
function attend(weights: Weights, module: string, rows: readonly Row[], window: number): readonly Row[] {
  const [q, k, v] = ['q', 'k', 'v'].map((name) => rows.map((row) => linear(weights, `${module}.${name}_proj`, row)));
  return rows.map((_, at) => {
    const mixed = Array.from({ length: HEADS }, (_unused, head) => {
      const kvHead = Math.floor(head / (HEADS / KV_HEADS));
      const query = turned(headOf(q![at]!, head), at);
      const seen = rows.map((_row, key) => key).filter((key) => key <= at && key > at - window);
      const scores = seen.map((key) => {
        const own = turned(headOf(k![key]!, kvHead), key);
        return Math.exp(sum(query.map((x, i) => x * own[i]!)) / Math.sqrt(WIDTH));
      });
      const values = seen.map((key) => headOf(v![key]!, kvHead));
      return Array.from(
        { length: WIDTH },
        (_element, i) => sum(scores.map((s, j) => s * values[j]![i]!)) / sum(scores),
      );
    });
    return linear(weights, `${module}.o_proj`, mixed.flat());
  });
}

/** log p(TOKENS[i + 1]) after token i. */
function logProbabilities(weights: Weights, head: string, window: number): Row {
  const table = weights.get('model.embed_tokens.weight')!;
  let rows: readonly Row[] = TOKENS.map((token) => [...table.slice(token * HIDDEN, (token + 1) * HIDDEN)]);
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `model.layers.${layer}`;
    const normed = rows.map((row) => layerNorm(weights, `${at}.input_layernorm`, row));
    const mixed = attend(weights, `${at}.self_attn`, normed, window);
    rows = rows.map((row, i) => add(row, mixed[i]!));
    rows = rows.map((row) => {
      const inner = linear(weights, `${at}.mlp.c_fc`, layerNorm(weights, `${at}.post_attention_layernorm`, row));
      return add(row, linear(weights, `${at}.mlp.c_proj`, inner.map(gelu)));
    });
  }
  return rows.slice(0, -1).map((row, i) => {
    const logits = linear(weights, head, layerNorm(weights, 'model.norm', row));
    return logits[TOKENS[i + 1]!]! - Math.log(sum(logits.map(Math.exp)));
  });
}

it.each([
  ['as published: a window, biases, a tied head', { sliding_window: 3 }, 3, 'model.embed_tokens'],
  ['without a window', {}, Infinity, 'model.embed_tokens'],
  ['without biases, with a head of its own', { use_bias: false, tie_word_embeddings: false }, Infinity, 'lm_head'],
])('%s', (_, changes, window, head) => {
  const model = describeModel(config(changes), 'config.json', 'f32');
  const graph = model.graph({ mask: 'tree', dtypeOf: () => 'f32' });
  const dice = new Dice(5);
  const weights = new Map(
    model.tensors.map(({ name, shape }) => [
      name,
      Float64Array.from({ length: shape.reduce((a, b) => a * b) }, () => 2 * dice.next() - 1),
    ]),
  );
  const count = TOKENS.length;
  const position = TOKENS.map((_token, i) => i);
  const params = {
    tokens: TOKENS,
    position,
    subtreeEnd: position.map(() => count),
    row: position.slice(0, -1),
    target: TOKENS.slice(1),
  };
  const [logProb] = interpretGraph(graph, {
    sizes: { T: count, R: count - 1 },
    weights,
    params: new Map(Object.entries(params).map(([name, values]) => [name, Float64Array.from(values)])),
  });
  const expected = logProbabilities(weights, head, window);
  expected.forEach((value, i) => expect(logProb!.data[i]).toBeCloseTo(value, 12));
});
