import { describe, expect, it } from 'vitest';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretModule, type RawTensor } from '../../ir/kernelInterpreter.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import { expandExperts } from '../../passes/expandExperts.js';
import { lower, optimize } from '../../passes/runPasses.js';
import type { Numerics } from '../../passes/numerics.js';
import { unrecognized } from '../../passes/unrecognized.js';
import { expertGraph } from './expertGraph.js';
import { checkUnchanged, edit, parse, sameMeaning } from './support.js';

const expand = (graph: Graph): Graph => {
  const result = expandExperts(graph);
  return result === graph ? graph : eliminateDeadCode(result);
};

/** Chosen by sigmoids of the logits, which are their weights too. */
const SIGMOIDS = expertGraph(`
    %negative = neg(%logits) : f32[T, 3]
    %exp = exp(%negative) : f32[T, 3]
    %one = const() {value = 1} : f32[]
    %more = add(%exp, %one) : f32[T, 3]
    %p = div(%one, %more) : f32[T, 3]
    %mask = top_mask(%p) {k = 2} : f32[T, 3]
    %w = mul(%p, %mask) : f32[T, 3]
`);

/** The chosen of a softmax over the logits that are chosen: a maximum of rows that nothing else takes. */
const SOFTMAX = edit(
  SIGMOIDS,
  ['%negative = neg(%logits)', '%most = reduce_max(%logits) : f32[T, 1]\n    %negative = sub(%logits, %most)'],
  ['%mask = top_mask(%p)', '%mask = top_mask(%logits)'],
);

/** Biases of the ups, one behind another, and of the downs. */
const BIASED = edit(
  SIGMOIDS,
  ['weight @d2 : f32[3, 2]', 'weight @d2 : f32[3, 2]\n    weight @bu : bf16[3, 2]\n    weight @bd : f32[3, 3]'],
  [
    '%up = linear(%x, %ups) : f32[T, 6]',
    `%plain = linear(%x, %ups) : f32[T, 6]
    %bu_wide = cast(@bu) {dtype = "f32"} : f32[3, 2]
    %bu_flat = reshape(%bu_wide) {shape = [6]} : f32[6]
    %up = add(%plain, %bu_flat) : f32[T, 6]`,
  ],
  [
    '%out = linear(%flat, %downs) : f32[T, 3] at "layers.0.ffn.experts.down"',
    `%sum = linear(%flat, %downs) : f32[T, 3] at "layers.0.ffn.experts.down"
    %by_column = transpose(@bd) {order = [1, 0]} : f32[3, 3]
    %biases = linear(%w, %by_column) : f32[T, 3]
    %out = add(%sum, %biases) : f32[T, 3] at "layers.0.ffn.experts.down"`,
  ],
);

/** Experts read rows times their weights. */
const SCALED = edit(
  SIGMOIDS,
  [
    '%inner = mul(%gate, %up)',
    ['gate', 'up']
      .map(
        (name) => `%${name}_each = reshape(%${name}) {shape = [T, 3, 2]} : f32[T, 3, 2]
    %${name}_scaled = mul(%${name}_each, %scales) : f32[T, 3, 2]
    %${name}_flat = reshape(%${name}_scaled) {shape = [T, 6]} : f32[T, 6]`,
      )
      .join('\n    ')
      .replace(/^/, '%scales = reshape(%w) {shape = [T, 3, 1]} : f32[T, 3, 1]\n    ')
      .concat('\n    %inner = mul(%gate_flat, %up_flat)'),
  ],
  ['%w_by_expert = reshape(%w)', '%w_by_expert = reshape(%mask)'],
);

const F32: Numerics = { activations: 'f32', weights: { layout: 'panels', format: 'f32' } };

describe('expandExperts', () => {
  it.each([
    ['sigmoids', SIGMOIDS],
    ['a maximum', SOFTMAX],
    ['biases', BIASED],
    ['rows times their weights', SCALED],
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

  it.each([
    ['alone', SIGMOIDS],
    ['with biases', BIASED],
    ['with rows times their weights', SCALED],
  ])('takes equal numbers from the left, and leads to kernels that say what they are: %s', (_, text) => {
    // Sigmoids of what has the other sign, which no rule of a router's kernel is.
    const graph = parse(edit(text, ['%p = div(%one, %more)', '%p = div(%exp, %more)']));
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
    const module = lower(optimize(graph, F32), F32);
    const got = interpretModule(module, { sizes, buffers: params, tensors, round: false });
    const out = got.get(module.buffers.find(({ space }) => space === 'output')!.name)!;
    out.forEach((value, i) => expect(value).toBeCloseTo(wanted!.data[i]!, 12));
    expect(unrecognized(module)).toContain(
      'layers.0.ffn.experts: the choice of experts is not known: all of them compute every row',
    );
  });
});
