import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { concreteShape, interpretGraph } from '../../ir/graph/interpreter.js';
import { elementCount } from '../../ir/ops/opDef.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { graph as randomGraph } from './randomGraph.js';

const f64 = (...values: number[]): Float64Array => Float64Array.from(values);

/** RMSNorm, a projection, and its scored rows. */
const NORMED = parseGraph(`func @normed(%x: f32[T, 2], %row: i32[R]) -> (f32[R, 1], f32[T, 2]) {
  weight @norm : f32[2]
  weight @w : bf16[1, 2]
  weight @unused : bf16[1000000]
  %square = mul(%x, %x) : f32[T, 2]
  %mean = mean(%square) : f32[T, 1]
  %scale = rsqrt(%mean) : f32[T, 1]
  %unit = mul(%x, %scale) : f32[T, 2]
  %normed = mul(%unit, @norm) : f32[T, 2]
  %y = linear(%normed, @w) : f32[T, 1]
  %scored = gather_rows(%y, %row) : f32[R, 1]
  return %scored, %normed
}`);
const ENV = {
  sizes: { T: 3, R: 2 },
  params: new Map([
    ['x', f64(3, 3, 1, -1, 7, 1)],
    ['row', f64(2, 0)],
  ]),
  weights: new Map([
    ['norm', f64(2, 10)],
    ['w', f64(1, 0.5)],
  ]),
};

describe('interpretGraph', () => {
  it('agrees with a result computed by hand', () => {
    const [scored, normed] = interpretGraph(NORMED, ENV);
    // Root mean squares are 3, 1 and 5; (x / rms)·norm is (2, 10), (2, −10), (2.8, 2).
    expect([...normed!.data]).toEqual([2, 10, 2, -10, 2.8, 2].map((x) => expect.closeTo(x, 12)));
    expect(scored!.shape).toEqual([2, 1]);
    expect([...scored!.data]).toEqual([expect.closeTo(3.8, 12), expect.closeTo(7, 12)]);
  });

  it('traces every node in order', () => {
    const seen: string[] = [];
    interpretGraph(NORMED, { ...ENV, trace: (node, tensor) => seen.push(`${node.op}[${tensor.shape.join(', ')}]`) });
    expect(seen).toEqual([
      'mul[3, 2]',
      'mean[3, 1]',
      'rsqrt[3, 1]',
      'mul[3, 2]',
      'mul[3, 2]',
      'linear[3, 1]',
      'gather_rows[2, 1]',
    ]);
  });

  it('returns parameters and weights that are results', () => {
    const graph = parseGraph('func @g(%x: f32[T]) -> (f32[T], f32[2]) { weight @w : f32[2] return %x, @w }');
    const results = interpretGraph(graph, {
      sizes: { T: 1, R: 0 },
      params: new Map([['x', f64(5)]]),
      weights: new Map([['w', f64(6, 7)]]),
    });
    expect(results.map((t) => [...t.data])).toEqual([[5], [6, 7]]);
  });

  it.each([
    ['a missing input', { ...ENV, params: new Map([['x', f64(3, 3, 1, -1, 7, 1)]]) }, '%row : i32[R] was not given.'],
    [
      'an input of another size',
      { ...ENV, weights: new Map([...ENV.weights, ['w', f64(1)]]) },
      '@w : bf16[1, 2] has 2 elements, but 1 were given.',
    ],
    ['a size that is not one', { ...ENV, sizes: { T: -1, R: 2 } }, 'Extent T is -1, which is not a whole number.'],
    [
      'an index out of range',
      { ...ENV, params: new Map([...ENV.params, ['row', f64(0, 3)]]) },
      'index 3 at position 1 is not a whole number below 3\n  in: %scored = gather_rows(%y, %row) : f32[R, 1]',
    ],
  ])('refuses %s', (_what, env, message) => expect(() => interpretGraph(NORMED, env)).toThrow(message));

  it('refuses to allocate without bound', () => {
    const graph = parseGraph(
      'func @g[T]() -> (i32[T, T, T]) { %i = iota() {size = [T, T, T]} : i32[T, T, T] return %i }',
    );
    expect(() => interpretGraph(graph, { sizes: { T: 1000, R: 0 }, params: new Map(), weights: new Map() })).toThrow(
      "more than the interpreter's 134217728",
    );
  });

  it('gives results of the declared shapes for every random graph', () => {
    let finished = 0;
    fc.assert(
      fc.property(randomGraph, fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 3 }), (graph, T, R) => {
        const sizes = { T, R };
        const fill = (values: typeof graph.params): Map<string, Float64Array> =>
          new Map(
            values.map((v) => [
              v.name,
              new Float64Array(elementCount(concreteShape(v.type.shape, sizes))).fill(v.type.dtype === 'f32' ? 0.5 : 0),
            ]),
          );
        const env = { sizes, params: fill(graph.params), weights: fill(graph.weights) };
        // Values of i32 results can be any number, so a gather by one of them may be out of range.
        try {
          expect(interpretGraph(graph, env).map((t) => t.shape)).toEqual(
            graph.results.map((v) => concreteShape(v.type.shape, sizes)),
          );
          finished++;
        } catch (error) {
          expect(String(error)).toMatch(/is not a whole number below|comes twice|more than the interpreter's/);
        }
      }),
      { numRuns: 300, seed: 11 },
    );
    expect(finished).toBeGreaterThan(200);
  });
});
