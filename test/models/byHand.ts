/**
 * Decoders written down once more: loops over numbers, one sequence, no op of the compiler. What families differ in is
 * given as functions.
 */
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { describeModel } from '../../models/config.js';
import { Dice } from '../support/families.js';

export type Row = readonly number[];
export type Weights = ReadonlyMap<string, Float64Array>;

export const sum = (values: Row): number => values.reduce((total, x) => total + x, 0);
export const add = (a: Row, b: Row): Row => a.map((x, i) => x + b[i]!);
export const times = (a: Row, by: number): Row => a.map((x) => x * by);

/** W·x, plus a bias where the weights have one. */
export function linear(weights: Weights, module: string, x: Row): Row {
  const matrix = weights.get(`${module}.weight`)!;
  const bias = weights.get(`${module}.bias`);
  return Array.from(
    { length: matrix.length / x.length },
    (_, row) => sum(x.map((value, i) => value * matrix[row * x.length + i]!)) + (bias?.[row] ?? 0),
  );
}

/** Rows [first, first + count) of x·Wᵀ, of a tensor that has more. */
export function rowsOf(weights: Weights, tensor: string, x: Row, first: number, count: number): Row {
  const matrix = weights.get(tensor)!;
  return Array.from({ length: count }, (_, row) =>
    sum(x.map((value, i) => value * matrix[(first + row) * x.length + i]!)),
  );
}

export const rmsNorm =
  (epsilon: number) =>
  (weights: Weights, module: string, x: Row): Row => {
    const scale = Math.sqrt(sum(x.map((value) => value * value)) / x.length + epsilon);
    return x.map((value, i) => (value / scale) * weights.get(`${module}.weight`)![i]!);
  };

/** (x − mean) / √(variance + ε) · weight, plus a bias where the weights have one. */
export const layerNorm =
  (epsilon: number) =>
  (weights: Weights, module: string, x: Row): Row => {
    const mean = sum(x) / x.length;
    const deviation = Math.sqrt(sum(x.map((value) => (value - mean) ** 2)) / x.length + epsilon);
    const [weight, bias] = [weights.get(`${module}.weight`)!, weights.get(`${module}.bias`)];
    return x.map((value, i) => ((value - mean) / deviation) * weight[i]! + (bias?.[i] ?? 0));
  };

export const silu = (x: number): number => x / (1 + Math.exp(-x));
const erf = (x: number): number => {
  // Its series, for arguments of a few units.
  let [term, total] = [x, x];
  for (let n = 1; n < 200; n++) {
    term *= -(x * x) / n;
    total += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * total;
};
export const gelu = (x: number): number => (x / 2) * (1 + (Math.abs(x) > 8 ? Math.sign(x) : erf(x / Math.SQRT2)));
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** down·(silu(gate·x) ∘ up·x) */
export function swiglu(weights: Weights, module: string, x: Row): Row {
  const [gate, up] = [linear(weights, `${module}.gate_proj`, x), linear(weights, `${module}.up_proj`, x)];
  return linear(
    weights,
    `${module}.down_proj`,
    gate.map((value, i) => silu(value) * up[i]!),
  );
}

/** A head at a position: pair i of elements turns by position · theta^(−2i / width), an f32 frequency. */
export const turned =
  (theta: number, isInterleaved = false) =>
  (head: Row, position: number): Row => {
    const half = head.length / 2;
    return head.map((x, i) => {
      const pair = isInterleaved ? Math.floor(i / 2) : i % half;
      const isFirst = isInterleaved ? i % 2 === 0 : i < half;
      const other = head[isInterleaved ? i + (isFirst ? 1 : -1) : i + (isFirst ? half : -half)]!;
      const angle = position * Math.fround(1 / theta ** ((2 * pair) / head.length));
      return x * Math.cos(angle) + (isFirst ? -other : other) * Math.sin(angle);
    });
  };

export const heads = (row: Row, width: number): readonly Row[] =>
  Array.from({ length: row.length / width }, (_, head) => row.slice(head * width, (head + 1) * width));

/** Heads of a token's queries, keys and values, as they are compared. */
export interface TokenHeads {
  readonly q: readonly Row[];
  readonly k: readonly Row[];
  readonly v: readonly Row[];
}

/** What heads make of all tokens up to their own. `added`: to scores, by head and positions of key and query. */
export function attend(
  tokens: readonly TokenHeads[],
  scale: number,
  added: (head: number, key: number, query: number) => number = () => 0,
): readonly Row[] {
  return tokens.map(({ q }, at) =>
    q.flatMap((query, head) => {
      const seen = tokens.slice(0, at + 1).map(({ k, v }) => {
        const own = Math.floor((head * k.length) / q.length);
        return [k[own]!, v[own]!] as const;
      });
      const scores = seen.map(([key], place) => scale * sum(query.map((x, i) => x * key[i]!)) + added(head, place, at));
      const top = scores.reduce((a, b) => Math.max(a, b));
      const parts = scores.map((score) => Math.exp(score - top));
      return seen[0]![1].map((_, i) => sum(parts.map((part, j) => part * seen[j]![1][i]!)) / sum(parts));
    }),
  );
}

/** log p(tokens[i + 1]) after token i, of the last rows of a stream. */
export const logProbabilities = (tokens: Row, rows: readonly Row[], logitsOf: (row: Row) => Row): Row =>
  rows.slice(0, -1).map((row, i) => {
    const logits = logitsOf(row);
    const top = logits.reduce((a, b) => Math.max(a, b));
    return logits[tokens[i + 1]!]! - top - Math.log(sum(logits.map((z) => Math.exp(z - top))));
  });

export const embedded = (weights: Weights, tensor: string, tokens: Row, hidden: number): readonly Row[] =>
  tokens.map((token) => [...weights.get(tensor)!.slice(token * hidden, (token + 1) * hidden)]);

/** The same by the family's graph in float64, and the random numbers of its tensors, by the names of checkpoints. */
export function ofGraph(json: object, tokens: Row): { readonly logProb: Row; readonly weights: Weights } {
  const model = describeModel({ ...json }, 'config.json', 'f32');
  const graph = model.graph({ mask: 'tree', dtypeOf: () => 'f32' });
  const dice = new Dice(5);
  const weights = new Map<string, Float64Array>();
  const parts = new Map<string, Float64Array>();
  for (const { name, shape, parts: held = [], partOf } of model.tensors) {
    const data = Float64Array.from({ length: shape.reduce((a, b) => a * b) }, () => 2 * dice.next() - 1);
    weights.set(name, data);
    parts.set(partOf?.name ?? name, data);
    const columns = data.length / shape[0]!;
    for (const part of held) {
      if ('columns' in part) {
        const { first, columns: own, from, rows } = part;
        const at = (i: number): number => data[(first + (i % own)) * columns + from + Math.floor(i / own)]!;
        parts.set(
          part.name,
          Float64Array.from({ length: rows * own }, (_, i) => at(i)),
        );
      }
      if (!('count' in part)) continue;
      const blocks = Array.from({ length: part.count }, (_, i) => {
        const from = (part.first + i * part.stride) * columns;
        return [...data.slice(from, from + part.rows * columns)];
      });
      parts.set(part.name, Float64Array.from(blocks.flat()));
    }
  }
  const count = tokens.length;
  const position = tokens.map((_token, i) => i);
  const params = {
    tokens,
    position,
    subtreeEnd: position.map(() => count),
    row: position.slice(0, -1),
    target: tokens.slice(1),
  };
  const [logProb] = interpretGraph(graph, {
    sizes: { T: count, R: count - 1 },
    weights: parts,
    params: new Map(Object.entries(params).map(([name, values]) => [name, Float64Array.from(values)])),
  });
  return { logProb: [...logProb!.data], weights };
}
