/**
 * Random well-typed graphs of the ops that kernels are made of: arithmetic, row reductions, contractions, views,
 * gathers.
 */
import { extentIn } from '../../ir/extents.js';
import fc from 'fast-check';
import { inferred } from '../../ir/graph/checkNode.js';
import { GraphBuilder, type Graph, type Value } from '../../ir/graph/graph.js';
import { arityOf, type Attributes } from '../../ir/ops/opDef.js';
import { OPS, type OpName } from '../../ir/ops/index.js';
import { printGraph } from '../../ir/graph/printer.js';
import { isSymbol, type Dim } from '../../ir/types.js';
import { SIZES } from './support.js';

const SHAPES: readonly (readonly Dim[])[] = [
  ['T', 1],
  [1, 'T'],
  ['T'],
  ['T', 4],
  ['T', 2, 2],
  ['T', 1, 4],
  ['T', 1, 2],
  ['R', 1],
  ['R'],
  ['R', 4],
  ['R', 2, 2],
  [1, 4],
  [4],
  [2, 2],
];
/** Ops with the attributes that fit them. Those that occur often in models occur often here. */
const CALLS: readonly (readonly [OpName, Attributes])[] = [
  ...(
    [
      'add',
      'add',
      'mul',
      'mul',
      'mul',
      'sub',
      'max',
      'cos',
      'tanh',
      'erf',
      'neg',
      'lt',
      'select',
      'sum',
      'mean',
      'linear',
      'linear',
      'linear',
      'gather_rows',
      'gather_rows',
      'gather_rows',
      'rotate_half',
    ] as const
  ).map((op) => [op, {}] as const),
  ...SHAPES.map((shape) => ['reshape', { shape }] as const),
  ['cast', { dtype: 'f32' }],
  ['cast', { dtype: 'f32' }],
  ['cast', { dtype: 'bool' }],
  ['iota', { size: ['T'] }],
  ['const', { value: 0 }],
  ['const', { value: 1 }],
  ['const', { value: -2 }],
];

const step = fc.record({
  call: fc.constantFrom(...CALLS),
  operands: fc.array(fc.nat({ max: 11 }), { minLength: 3, maxLength: 3 }),
});

const elements = (shape: readonly Dim[]): number => shape.reduce<number>((n, dim) => n * extentIn(dim, SIZES), 1);

/** Graphs of up to 24 nodes over T and R rows of 4 columns. Steps that are not well typed are skipped. */
export const program: fc.Arbitrary<Graph> = fc
  .record({
    steps: fc.array(step, { minLength: 6, maxLength: 60 }),
    results: fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 2 }),
  })
  .map(({ steps, results }) => {
    const b = new GraphBuilder('program');
    const row = b.param('row', 'i32', ['R']);
    const values: Value[] = [
      b.param('step', 'f32', ['T', 1]),
      b.param('one', 'f32', ['T']),
      b.param('square', 'f32', ['T', 'T']),
      b.weight('bias', 'f32', [4]),
      b.weight('narrow', 'f32', [2, 4]),
      b.weight('matrix', 'bf16', [4, 4]),
      b.weight('table', 'f32', [8, 4]),
      b.param('z', 'f32', ['R', 4]),
      b.param('y', 'f32', ['T', 4]),
      b.param('x', 'f32', ['T', 4]),
    ];
    const inputs = values.length;
    for (const {
      call: [op, attributes],
      operands,
    } of steps) {
      if (values.length === inputs + 24) break;
      const pick = (back: number): Value => values[values.length - 1 - (back % values.length)]!;
      const picked =
        op === 'gather_rows' ? [pick(operands[0]!), row] : operands.slice(0, arityOf(OPS[op], attributes)[1]).map(pick);
      if (op === 'gather_rows' && picked[0]!.type.shape[0] !== 'T' && picked[0]!.type.shape[0] !== 8) continue;
      const type = inferred(
        OPS[op],
        picked.map((v) => v.type),
        attributes,
      );
      if (typeof type !== 'string' && type.shape.length <= 3 && elements(type.shape) <= 256)
        values.push(b.append(op, picked, attributes, op === 'sum' || op === 'mean' ? 'total' : op, ''));
    }
    // What a kernel could return: elementwise results with rows.
    const computed = b
      .finish([])
      .nodes.filter(({ op, result }) => OPS[op].fuse === 'elementwise' && isSymbol(result.type.shape[0] ?? 0))
      .map((n) => n.result);
    if (computed.length === 0) computed.push(b.add('neg', { x: values[inputs - 1]! }));
    const graph = b.finish([
      ...new Set(results.map((back) => computed[computed.length - 1 - (back % computed.length)]!)),
    ]);
    return Object.defineProperty(graph, fc.toStringMethod, { value: () => `\n${printGraph(graph)}` });
  });
