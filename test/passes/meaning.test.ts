/**
 * Every stage of the pipeline, and the kernels at its end, compute what the model's graph computes. The weights here
 * are ten times as large as a trained model's, so that 16 bits show: the bounds for bf16 are its noise, those for f32
 * mean exactness.
 */
import { describe, expect, it } from 'vitest';
import type { Graph } from '../../ir/graph/graph.js';
import { type GraphEnv, interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { buildDecoder, type DecoderShape } from '../../models/decoder/graph.js';
import type { MaskKind } from '../../models/model/model.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { distance, environment, TREES } from './modelEnvironment.js';

const SHAPE: DecoderShape = {
  hiddenSize: 48,
  intermediateSize: 40,
  layers: 2,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  vocabSize: 600,
  rmsNormEps: 1e-5,
  tieWordEmbeddings: false,
  biased: [],
};
const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const BF16: Numerics = { activations: 'bf16', weights: { layout: 'vnni', format: 'bf16' } };

/** The same number of tokens as meta-pairs: question 0–1 with answers 2–3 and 4–5, question 6 with answer 7. */
const PAIRS = {
  ...TREES,
  position: [0, 1, 2, 3, 2, 3, 0, 1],
  branch: [0, 0, 1, 1, 2, 2, 0, 1],
  pair: [0, 0, 0, 0, 0, 0, 1, 1],
};

/** The same environment with the most likely token as the second target. */
function withLikelyTarget<E extends GraphEnv>(graph: Graph, env: E): E {
  const target = Float64Array.from(env.params.get('target')!);
  interpretGraph(graph, {
    ...env,
    trace: (node, tensor) => {
      if (node.op === 'argmax') target[1] = tensor.data[env.params.get('row')![1]!]!;
    },
  });
  return { ...env, params: new Map([...env.params, ['target', target]]) };
}

function model(mask: MaskKind, shape: DecoderShape): Graph {
  return buildDecoder(shape, {
    mask,
    window: 3,
    rotary: { inverseFrequencies: Float64Array.from([1, 0.3, 0.1, 0.03]), factor: 1 },
    dtypeOf: () => 'bf16',
  });
}

describe.each([
  ['tree mask', 'tree', TREES, SHAPE],
  ['meta-pair mask', 'metaPair', PAIRS, SHAPE],
  ['sliding window, materialized', 'slidingWindow', TREES, SHAPE],
  ['tied head, no grouping', 'tree', TREES, { ...SHAPE, kvHeads: 4, tieWordEmbeddings: true }],
] as const)('LLaMA with %s', (_title, mask, inputs, shape) => {
  const graph = model(mask, shape);
  const env = withLikelyTarget(graph, environment(graph, inputs));
  const [logProb, isArgmax] = interpretGraph(graph, env);

  it('gives log-probabilities, and 1 if the target is the most likely token', () => {
    expect([...logProb!.data].every((x) => x < 0 && x > -50)).toBe(true);
    expect([...isArgmax!.data]).toEqual([0, 1, 0, 0, 0]);
  });

  it('depends on which tokens see which', () => {
    const key = mask === 'metaPair' ? 'branch' : 'subtreeEnd';
    const other = mask === 'metaPair' ? [0, 0, 0, 0, 0, 0, 0, 0] : [8, 8, 8, 8, 8, 8, 8, 8];
    const [changed] = interpretGraph(graph, {
      ...env,
      params: new Map([...env.params, [key, Float64Array.from(other)]]),
    });
    expect(distance(changed!.data, logProb!.data)).toBeGreaterThan(0.1);
  });

  it.each([
    ['f32', F32, 1e-9],
    ['bf16', BF16, 0.05],
  ] as const)('keeps its meaning in every pass in %s', (_name, numerics, bound) => {
    const stages: string[] = [];
    optimize(graph, numerics, (stage) => {
      if (stage.level !== 'graph') return;
      // A pass may ask for derived inputs (the column form's subtreeEnd). For meta-pairs they follow from branch and
      // pair.
      const params = new Map(env.params);
      if (mask === 'metaPair') params.set('subtreeEnd', Float64Array.of(6, 6, 4, 4, 6, 6, 8, 8));
      const [lp, am] = interpretGraph(stage.graph, { ...env, params });
      stages.push(stage.name);
      expect(distance(lp!.data, logProb!.data), `log-probabilities after ${stage.name}`).toBeLessThan(bound);
      if (numerics === F32) expect([...am!.data], `argmax after ${stage.name}`).toEqual([...isArgmax!.data]);
    });
    expect(stages.length).toBeGreaterThan(8);
  });

  it.each([
    ['f32', F32, false, 1e-9],
    ['f32, stores rounded', F32, true, 1e-4],
    ['bf16, stores rounded', BF16, true, 0.2],
  ] as const)('has kernels that verify and compute the same in %s', (_name, numerics, round, bound) => {
    const optimized = optimize(graph, numerics);
    const lowered = lower(optimized, numerics);
    verifyKernels(lowered);
    const names = new Map(optimized.params.map((p) => [p.name.toLowerCase(), p.name]));
    const given: ReadonlyMap<string, Float64Array> = new Map([
      ...env.params,
      ['subtreeEnd', Float64Array.from(mask === 'metaPair' ? [6, 6, 4, 4, 6, 6, 8, 8] : TREES.subtreeEnd)],
    ]);
    const buffers = new Map(
      lowered.buffers
        .filter((b) => b.space === 'input')
        .map((b) => [b.name, given.get(names.get(b.name.replaceAll('_', ''))!)!]),
    );
    const out = interpretModule(lowered, { sizes: env.sizes, buffers, tensors: env.tensors, round });
    const outputs = lowered.buffers.filter((b) => b.space === 'output');
    expect(outputs.map((b) => `${b.dtype}[${b.rows}, ${b.columns}]`).sort()).toEqual(['f32[R, 1]', 'i32[R, 1]']);
    expect(distance(out.get(outputs.find((b) => b.dtype === 'f32')!.name)!, logProb!.data)).toBeLessThan(bound);
    if (numerics === F32)
      expect([...out.get(outputs.find((b) => b.dtype === 'i32')!.name)!]).toEqual([...isArgmax!.data]);
  });
});
