/**
 * The function step against score: a sequence that is cut into pieces anywhere, with its keys and values in any rows of
 * the cache, gets the log-probabilities that score gives it in one piece. At every level of the pipeline.
 */
import { describe, expect, it } from 'vitest';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import type { Draw } from '../../ir/gumbel.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretFunction, interpretGraph } from '../../ir/graph/interpreter.js';
import { drawScore, noiseKey } from '../../ir/gumbel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep } from '../../models/decoder/graph.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama, SHAPE } from './llamaGraph.js';
import { distance, environment } from './modelEnvironment.js';

const CACHE_ROWS = 40;
const ROTARY = { inverseFrequencies: Float64Array.from({ length: 4 }, (_, i) => 1 / (i + 1)), factor: 1 };
const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

/** Two sequences, and the rows of the cache that their tokens get. */
const SEQUENCES = [
  { tokens: [5, 17, 599, 0, 3, 4, 5, 511, 9], rows: [30, 2, 3, 17, 0, 39, 8, 9, 10] },
  { tokens: [7, 7, 20, 599], rows: [5, 11, 4, 1] },
];

/** Pieces of both sequences for each call: [from, to) of each. */
const CALLS = [
  [
    [0, 5],
    [0, 0],
  ],
  [
    [5, 6],
    [0, 3],
  ],
  [
    [6, 9],
    [3, 4],
  ],
] as const;

interface Piece {
  readonly sizes: { readonly T: number; readonly C: number; readonly R: number };
  readonly params: ReadonlyMap<string, Float64Array>;
  /** Sequence and position of each row. */
  readonly asked: readonly (readonly [number, number])[];
}

/** The most likely token after each of the first sequence, and drawn ones after those of the second. */
const drawAt = (s: number, at: number): Draw => ({
  inverseTemperature: s === 0 ? 0 : 1 / (0.5 + at),
  ...noiseKey(77n + BigInt(s), at),
});

/** The inputs of a call, every new token of which is scored against the next. */
function pieceOf(call: (typeof CALLS)[number]): Piece {
  const arrays: Record<string, number[]> = {
    tokens: [],
    position: [],
    slot: [],
    begin: [],
    key: [],
    row: [],
    target: [],
  };
  Object.assign(arrays, { inverseTemperature: [], keyLow: [], keyHigh: [] });
  const asked: [number, number][] = [];
  call.forEach(([from, to], s) => {
    if (from === to) return;
    const { tokens, rows } = SEQUENCES[s]!;
    const begin = arrays['key']!.length;
    arrays['key']!.push(...rows.slice(0, to));
    for (let at = from; at < to; at++) {
      arrays['row']!.push(arrays['tokens']!.length);
      arrays['target']!.push(tokens[at + 1] ?? 0);
      asked.push([s, at]);
      const draw = drawAt(s, at);
      arrays['inverseTemperature']!.push(draw.inverseTemperature);
      arrays['keyLow']!.push(draw.low);
      arrays['keyHigh']!.push(draw.high);
      arrays['tokens']!.push(tokens[at]!);
      arrays['position']!.push(at);
      arrays['slot']!.push(rows[at]!);
      arrays['begin']!.push(begin);
    }
  });
  const params = new Map(Object.entries(arrays).map(([name, values]) => [name, Float64Array.from(values)]));
  return { sizes: { T: asked.length, C: arrays['key']!.length, R: asked.length }, params, asked };
}

const states = (graph: Graph): ReadonlyMap<string, Float64Array> =>
  new Map(
    graph.states.map(({ name, type }) => [
      name,
      new Float64Array(type.shape.reduce((n: number, d) => n * Number(d), 1)),
    ]),
  );

interface Wanted {
  readonly logProb: Float64Array;
  /** The token that is drawn after each, and its log-probability. */
  readonly nextToken: Float64Array;
  readonly nextTokenLogProb: Float64Array;
}

/** score's log-probability of each token's successor, and what is drawn from its logits. */
function expected(): readonly Wanted[] {
  const graph = llama({}, 'tree');
  return SEQUENCES.map(({ tokens }, s) => {
    const all = tokens.map((_, i) => i);
    const inputs = {
      tokens,
      position: all,
      subtreeEnd: tokens.map(() => tokens.length),
      row: all,
      target: tokens.map((_, i) => tokens[i + 1] ?? 0),
    };
    const nextToken = new Float64Array(tokens.length);
    const nextTokenLogProb = new Float64Array(tokens.length);
    const env = environment(graph, inputs);
    const [logProb] = interpretGraph(graph, {
      ...env,
      sizes: { T: tokens.length, R: tokens.length },
      trace: (node, { data }) => {
        if (node.result.name === 'log_probs')
          tokens.forEach((_, at) => {
            const z = data.subarray(at * SHAPE.vocabSize, (at + 1) * SHAPE.vocabSize);
            const { inverseTemperature, ...key } = drawAt(s, at);
            const scores = z.map((value, token) => drawScore(value, inverseTemperature, key, token));
            nextToken[at] = scores.indexOf(Math.max(...scores));
            nextTokenLogProb[at] = z[nextToken[at]!]!;
          });
      },
    });
    return { logProb: logProb!.data, nextToken, nextTokenLogProb };
  });
}

describe('step', () => {
  const graph = buildStep(SHAPE, { cache: { rows: CACHE_ROWS, dtype: 'f32' }, rotary: ROTARY, dtypeOf: () => 'bf16' });
  const wanted = expected();
  const { tensors, weights } = environment(graph, {});
  const check = (asked: Piece['asked'], found: (name: keyof Wanted) => Float64Array): void => {
    const all = (name: keyof Wanted): number[] => asked.map(([s, at]) => wanted[s]![name][at]!);
    for (const name of ['logProb', 'nextTokenLogProb'] as const)
      expect(distance(found(name), all(name)), name).toBeLessThan(1e-9);
    expect([...found('nextToken')]).toEqual(all('nextToken'));
  };

  it.each([
    ['as the model writes it', (g: Graph) => g],
    ['optimized', (g: Graph) => optimize(g, F32)],
  ])('continues paths: the graph %s', (_title, change) => {
    const changed = change(graph);
    let kept = states(changed);
    for (const call of CALLS) {
      const { sizes, params, asked } = pieceOf(call);
      const outcome = interpretFunction(changed, { sizes, params, states: kept, weights });
      check(asked, (name) => outcome.results[changed.outputs.indexOf(name)]!.data);
      kept = outcome.states;
    }
  });

  it('is recognized: attention reads the cache where it lies, with no copy of the path', () => {
    const lowered = lower(optimize(graph, F32), F32);
    const attention = lowered.kernels.filter((kernel) => kernel.anchor === 'attention');
    expect(attention.map(({ k, v, mask }) => [k, v, mask.kind])).toEqual([
      ['k_0', 'v_0', 'path'],
      ['k_1', 'v_1', 'path'],
    ]);
    expect(lowered.buffers.filter(({ rows }) => rows === 'C').map(({ name }) => name)).toEqual(['key']);
  });

  it('is recognized where the cache holds 16 bits: attention reads them as they lie', () => {
    const numerics = cudaNumerics('bf16');
    const narrow = buildStep(SHAPE, {
      cache: { rows: CACHE_ROWS, dtype: 'bf16' },
      rotary: ROTARY,
      dtypeOf: () => 'bf16',
    });
    const lowered = lower(optimize(narrow, numerics), numerics);
    verifyIndices(lowered);
    const dtypes = new Map(lowered.buffers.map(({ name, dtype }) => [name, dtype]));
    const attention = lowered.kernels.filter((kernel) => kernel.anchor === 'attention');
    expect(attention.map(({ q, k, v, mask }) => [dtypes.get(q), k, v, dtypes.get(k), mask.kind])).toEqual([
      ['bf16', 'k_0', 'v_0', 'bf16', 'path'],
      ['bf16', 'k_1', 'v_1', 'bf16', 'path'],
    ]);
    expect(lowered.buffers.filter(({ rows }) => rows === 'C').map(({ name }) => name)).toEqual(['key']);
    // A target whose attention reads f32 widens what it gathers.
    const wide = optimize(narrow, F32);
    expect(wide.nodes.some(({ op, attributes }) => op === 'attention' && attributes['mask'] === 'path')).toBe(false);
  });

  it('writes keys and values of a layer in one kernel, before its attention', () => {
    const lowered = lower(optimize(graph, F32), F32);
    const order = lowered.kernels.map(({ path }) => path).filter((path) => path.startsWith('layers.0.attention'));
    expect(order).toEqual(['qkv', 'write', 'mix', 'o'].map((name) => `layers.0.attention.${name}`));
  });

  it('continues paths: the kernels', () => {
    const lowered = lower(optimize(graph, F32), F32);
    verifyIndices(lowered);
    let kept = states(graph);
    for (const call of CALLS) {
      const { sizes, params, asked } = pieceOf(call);
      const inputs = lowered.interface.inputs.map(({ name, buffer }) => [buffer, params.get(name)!] as const);
      const out = interpretModule(lowered, { sizes, buffers: new Map([...inputs, ...kept]), tensors });
      const result = (name: string) => out.get(lowered.interface.outputs.find((each) => each.name === name)!.buffer)!;
      check(asked, result);
      kept = new Map([...kept.keys()].map((name) => [name, out.get(name)!]));
    }
  });
});
