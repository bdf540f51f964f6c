/** Heads of classes: what passes and kernels make of them is what the graph says, for any number of classes. */
import { describe, expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { buildStep } from '../../models/decoder/graph.js';
import type { ClassHead } from '../../models/model/model.js';
import type { Numerics } from '../../passes/numerics.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama, SHAPE } from './llamaGraph.js';
import { distance, environment, inputsOf, TREES } from './modelEnvironment.js';

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };
const { target: _, ...INPUTS } = TREES;

const one = (rows: number, isBiased: boolean): ClassHead => ({
  kind: 'labels',
  layers: [{ module: 'score', rows, isBiased }],
});
const two = (rows: number): ClassHead => ({
  kind: 'reward',
  layers: [
    { module: 'score.0', rows: 48, isBiased: true },
    { module: 'score.2', rows, isBiased: true },
  ],
});
const HEADS: readonly ClassHead[] = [...[1, 2, 3, 19].map((rows) => one(rows, rows % 2 === 0)), two(1), two(2)];
const nameOf = ({ layers }: ClassHead): string => layers.map(({ rows }) => rows).join(', ');

describe.each(HEADS.map((head) => [nameOf(head), head] as const))('a head of %s rows', (_name, head) => {
  const classes = head.layers.at(-1)!.rows;
  const graph = llama({ head });
  const env = environment(graph, INPUTS);
  const [wanted] = interpretGraph(graph, env);

  it('gives numbers for the rows that are asked for, and takes no targets', () => {
    expect(graph.results.map(({ type }) => type)).toEqual([{ dtype: 'f32', shape: ['R', classes] }]);
    expect(graph.params.map(({ name }) => name)).toEqual(['tokens', 'position', 'subtreeEnd', 'row']);
    expect(graph.weights.map(({ name }) => name)).not.toContain('lm_head.weight');
    expect(wanted!.data).toHaveLength(classes * INPUTS.row.length);
  });

  it('means the same in kernels', () => {
    const module = lower(optimize(graph, F32), F32);
    verifyIndices(module);
    const found = interpretModule(module, { ...env, buffers: inputsOf(module, env), round: false });
    const output = module.buffers.find(({ space }) => space === 'output')!;
    expect(output.columns).toBe(classes);
    expect(distance(found.get(output.name)!, wanted!.data)).toBeLessThan(1e-9);
  });

  it('stays as it is where layers are narrowed', () => {
    const narrow = { format: 'i8', from: 'values', keep: [] } as const;
    const module = lower(optimize(graph, { ...F32, narrow }), { ...F32, narrow });
    const formats = new Map(module.weights.flatMap(({ sources, format }) => sources.map((s) => [s.tensor, format])));
    for (const { module: own } of head.layers) expect(formats.get(`${own}.weight`)).toBe('f32');
    expect(formats.get('model.layers.0.mlp.up_proj.weight')).toBe('i8');
  });

  it('is that of step, which draws nothing', () => {
    const rotary = { inverseFrequencies: Float64Array.from({ length: 4 }, (_, i) => 1 / (i + 1)), factor: 1 };
    const cache = { rows: 32, dtype: 'f32' } as const;
    const options = { cache, filters: true, feeds: true, rotary, dtypeOf: () => 'bf16' as const };
    const step = buildStep({ ...SHAPE, head }, options);
    expect(step.params.map(({ name }) => name)).toEqual(['tokens', 'position', 'slot', 'key', 'begin', 'row']);
    expect(step.states.map(({ name }) => name)).toEqual(['k_0', 'v_0', 'k_1', 'v_1']);
    verifyIndices(lower(optimize(step, F32), F32));
    // One path of five tokens is what score makes of one tree.
    const tokens = [5, 17, 599, 0, 3];
    const at = [...tokens.keys()];
    const sizes = { T: 5, C: 5, R: 2 };
    const states = new Map(step.states.map(({ name }) => [name, new Float64Array(32 * 2 * 8)]));
    const params = { tokens, position: at, slot: at, key: at, begin: at.map(() => 0), row: [1, 4] };
    const [found] = interpretGraph(step, {
      ...environment(step, params),
      sizes,
      weights: env.weights,
      states,
    });
    const [whole] = interpretGraph(graph, {
      ...environment(graph, { tokens, position: at, subtreeEnd: at.map(() => 5), row: [1, 4] }),
      sizes: { T: 5, R: 2 },
      weights: env.weights,
    });
    expect(distance(found!.data, whole!.data)).toBeLessThan(1e-9);
  });
});
