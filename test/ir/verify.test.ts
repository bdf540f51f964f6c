import { describe, expect, it } from 'vitest';
import type { Graph, Node, Value } from '../../ir/graph/graph.js';
import type { OpName } from '../../ir/ops/index.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { verifyGraph } from '../../ir/graph/verify.js';

const GOOD = parseGraph(`func @g(%x: f32[T, 4], %i: i32[R]) -> (f32[R, 8]) {
  weight @w.0 : bf16[8, 4]
  %n = neg(%x) : f32[T, 4] at "layers.0"
  %y = linear(%n, @w.0) : f32[T, 8]
  %z = gather_rows(%y, %i) : f32[R, 8]
  return %z
}`);
const [neg, linear, gather] = GOOD.nodes as [Node, Node, Node];
const w = GOOD.weights[0]!;

const withNodes = (...nodes: readonly unknown[]): Graph => ({ ...GOOD, nodes: nodes as readonly Node[] });
const stale: Value = { ...neg.result };

describe('verifyGraph', () => {
  it('accepts a sound graph', () => expect(() => verifyGraph(GOOD)).not.toThrow());

  it('names the pass and prints the node', () => {
    const bad = withNodes(
      neg,
      { ...linear, result: { ...linear.result, type: { dtype: 'bf16', shape: ['T', 8] } } },
      gather,
    );
    expect(() => verifyGraph(bad, 'foldNormWeights')).toThrowErrorMatchingInlineSnapshot(`
      [Error: Graph @g after foldNormWeights: linear gives f32[T, 8], the node declares bf16[T, 8].
        in: %y = linear(%n, @w.0) : bf16[T, 8]]
    `);
  });

  const cases: readonly (readonly [string, Graph, string])[] = [
    ['a use before the definition', withNodes(linear, neg, gather), '%n is used before it is defined'],
    ['a missing definition', withNodes(linear, gather), '%n is used before it is defined'],
    [
      'a value of an older graph',
      withNodes(neg, { ...linear, operands: { x: stale, w }, inputs: [stale, w] }, gather),
      '%n is not the %n of this graph, but an object with that name from an earlier graph',
    ],
    [
      'a returned value of an older graph',
      { ...GOOD, results: [{ ...gather.result }] },
      '%z is not the %z of this graph',
    ],
    ['a weight that is not declared', { ...GOOD, weights: [] }, '@w.0 is not declared as a weight'],
    ['a weight declared twice', { ...GOOD, weights: [w, { ...w }] }, '@w.0 is defined twice'],
    [
      'a weight with a symbol',
      { ...GOOD, weights: [{ ...w, type: { dtype: 'bf16', shape: ['T', 4] } }] },
      '@w.0 is bf16[T, 4]: a weight has a fixed shape',
    ],
    [
      'two values of one name',
      withNodes(neg, { ...linear, result: { ...linear.result, name: 'n' } }),
      '%n is defined twice',
    ],
    [
      "a result that takes a parameter's name",
      withNodes({ ...neg, result: { ...neg.result, name: 'x' } }),
      '%x is defined twice',
    ],
    [
      'a name outside the grammar',
      withNodes({ ...neg, result: { ...neg.result, name: 'n; drop' } }),
      '"n; drop" is not a name of a result',
    ],
    [
      'a result that says it is a parameter',
      withNodes({ ...neg, result: { ...neg.result, kind: 'param' } }),
      '%n is declared as a result, but its kind is param',
    ],
    ['a path outside the grammar', withNodes({ ...neg, path: '../up' }), '"../up" is not a model path'],
    ['an unknown op', withNodes({ ...neg, op: 'softmax' as OpName }), 'softmax is not an op'],
    [
      'too many operands',
      withNodes({ ...neg, inputs: [GOOD.params[0]!, GOOD.params[0]!] }),
      'neg: it takes 1 operand, not 2',
    ],
    [
      'operands that do not fit',
      withNodes(neg, { ...linear, inputs: [GOOD.params[1]!, w] }, gather),
      'linear: linear: x has R columns, w has 4',
    ],
    [
      'names of operands that are not those in order',
      withNodes(neg, { ...linear, operands: { x: w, w } }, gather),
      'linear: the operands by name are not those in order',
    ],
    [
      'an attribute the op does not know',
      withNodes({ ...neg, attributes: { scale: 2 } }),
      "found attribute 'scale', expected none: 'neg' takes no attributes",
    ],
    [
      'a missing attribute',
      withNodes({ ...neg, op: 'cast' }),
      'found \'cast\' without attribute \'dtype\', expected {dtype = …}, one of "f32", "f16", "bf16"',
    ],
    [
      'an attribute of another kind',
      withNodes({ ...neg, op: 'cast', attributes: { dtype: 3 } }),
      'found attribute \'dtype\' = 3, expected one of "f32", "f16"',
    ],
    [
      'a NaN attribute',
      withNodes({ ...neg, op: 'const', operands: {}, inputs: [], attributes: { value: NaN } }),
      "found attribute 'value' = null, expected a number",
    ],
    [
      'a fractional extent',
      { ...GOOD, params: [{ ...GOOD.params[0]!, type: { dtype: 'f32', shape: [1.5] } }] },
      '%x is f32[1.5]: 1.5 is not a dimension',
    ],
    [
      'an extent without bound',
      { ...GOOD, params: [{ ...GOOD.params[0]!, type: { dtype: 'f32', shape: [2 ** 40] } }] },
      'is not a dimension',
    ],
    ['no results', { ...GOOD, results: [] }, 'it returns nothing'],
  ];
  it.each(cases)('rejects %s', (_what, graph, message) => expect(() => verifyGraph(graph)).toThrow(message));
});
