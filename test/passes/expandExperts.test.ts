import { describe, expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { expandExperts } from '../../passes/expandExperts.js';
import { lower, optimise, type Numerics } from '../../passes/pipeline.js';
import { unrecognised } from '../../passes/unrecognised.js';
import { checkUnchanged, edit, parse, sameMeaning } from './support.js';

const expand = (graph: Graph): Graph => {
  const result = expandExperts(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

/** Two of three experts of width 2, chosen by sigmoids of the logits, which are their weights too. */
const SIGMOIDS = `
  func @g(%x: f32[T, 3]) -> (f32[T, 3]) {
    weight @router : f32[3, 3]
    weight @g0 : f32[2, 3]
    weight @g1 : f32[2, 3]
    weight @g2 : f32[2, 3]
    weight @u0 : f32[2, 3]
    weight @u1 : f32[2, 3]
    weight @u2 : f32[2, 3]
    weight @d0 : f32[3, 2]
    weight @d1 : f32[3, 2]
    weight @d2 : f32[3, 2]
    %logits = linear(%x, @router) : f32[T, 3]
    %negative = neg(%logits) : f32[T, 3]
    %exp = exp(%negative) : f32[T, 3]
    %one = const() {value = 1} : f32[]
    %more = add(%exp, %one) : f32[T, 3]
    %p = div(%one, %more) : f32[T, 3]
    %mask = top_mask(%p) {k = 2} : f32[T, 3]
    %w = mul(%p, %mask) : f32[T, 3]
    %gates = concat(@g0, @g1, @g2) {axis = 0} : f32[6, 3]
    %gate = linear(%x, %gates) : f32[T, 6]
    %ups = concat(@u0, @u1, @u2) {axis = 0} : f32[6, 3]
    %up = linear(%x, %ups) : f32[T, 6]
    %inner = mul(%gate, %up) : f32[T, 6]
    %by_expert = reshape(%inner) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %w_by_expert = reshape(%w) {shape = [T, 3, 1]} : f32[T, 3, 1]
    %weighted = mul(%by_expert, %w_by_expert) : f32[T, 3, 2]
    %flat = reshape(%weighted) {shape = [T, 6]} : f32[T, 6]
    %downs = concat(@d0, @d1, @d2) {axis = 1} : f32[3, 6]
    %out = linear(%flat, %downs) : f32[T, 3] at "layers.0.ffn.experts.down"
    return %out
  }
`;

/** The chosen of a softmax over the logits that are chosen: a maximum of rows that nothing else takes. */
const SOFTMAX = edit(
  SIGMOIDS,
  ['%negative = neg(%logits)', '%most = reduce_max(%logits) : f32[T, 1]\n    %negative = sub(%logits, %most)'],
  ['%mask = top_mask(%p)', '%mask = top_mask(%logits)'],
);

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

describe('expandExperts', () => {
  it.each([
    ['sigmoids', SIGMOIDS],
    ['a maximum', SOFTMAX],
  ])('adds up all experts of every row: %s', (_, text) => {
    const before = parse(text);
    const after = expand(before);
    const ops = after.nodes.map(({ op }) => op);
    expect(ops.filter((op) => op === 'linear')).toHaveLength(1 + 3 * 3);
    for (const op of ['concat', 'top_mask', 'reduce_max'] as const) expect(ops).not.toContain(op);
    sameMeaning(before, after);
  });

  it('leaves a graph without experts alone', () => {
    checkUnchanged(
      'func @g(%x: f32[T, 3]) -> (f32[T, 1]) { %y = reduce_max(%x) : f32[T, 1] return %y }',
      expandExperts,
    );
  });

  it('takes equal numbers from the left, and leads to kernels that say what they are', () => {
    const graph = parse(SIGMOIDS);
    const rows = 4;
    // The router has two equal rows; the second row of x makes all logits 0.
    const x = Float64Array.from([1, 2, -1, 0, 0, 0, -1, 0.5, 2, 3, -2, 1]);
    const tensors = new Map<string, RawTensor>();
    graph.weights.forEach(({ name, type }, i) => {
      const [height, width] = type.shape as readonly [number, number];
      const data = Float64Array.from({ length: height * width }, (_, at) => Math.sin(7 * i + 3 * at + 1));
      tensors.set(name, { rows: height, columns: width, data });
    });
    tensors.set('router', { rows: 3, columns: 3, data: Float64Array.from([1, 0.5, -1, 0.2, -1, 1, 1, 0.5, -1]) });
    const sizes = { T: rows };
    const params = new Map([['x', x]]);
    const weights = new Map([...tensors].map(([name, { data }]) => [name, data]));
    const [wanted] = interpretGraph(graph, { sizes, weights, params });
    const module = lower(optimise(graph, F32), F32);
    const got = interpretModule(module, { sizes, buffers: params, tensors, round: false });
    const out = got.get(module.buffers.find(({ space }) => space === 'output')!.name)!;
    out.forEach((value, i) => expect(value).toBeCloseTo(wanted!.data[i]!, 12));
    expect(unrecognised(module)).toContain(
      'layers.0.ffn.experts: the choice of experts is not known: all of them compute every row',
    );
  });
});
