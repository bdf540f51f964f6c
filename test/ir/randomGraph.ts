/** Random well-typed graphs, and random calls of ops that may or may not be well typed. */
import fc from 'fast-check';
import { inferred } from '../../ir/graph/checkNode.js';
import { GraphBuilder, type Graph, type Value } from '../../ir/graph/graph.js';
import { OPS, OP_NAMES, type OpName } from '../../ir/ops/index.js';
import { arityOf, type Attribute, type AttributeKind, type Attributes } from '../../ir/ops/opDef.js';
import type { Dim, DType, TensorType } from '../../ir/types.js';

const dim: fc.Arbitrary<Dim> = fc.constantFrom<Dim>('T', 'R', 1, 2, 3, 4);
const shape: fc.Arbitrary<Dim[]> = fc.array(dim, { maxLength: 3 });
const dtype: fc.Arbitrary<DType> = fc.constantFrom('f32', 'f32', 'f32', 'i32', 'bool', 'bf16', 'f16');
export const tensorType: fc.Arbitrary<TensorType> = fc.record({ dtype, shape });
const finite = fc.double({ noNaN: true, noDefaultInfinity: true });

/** Attribute values of the right kind, biased towards values that some op accepts. */
const attributeOf: Readonly<Record<Extract<AttributeKind, string>, fc.Arbitrary<Attribute>>> = {
  number: fc.oneof(fc.integer({ min: 1, max: 3 }), finite, fc.constantFrom(-Infinity, Infinity, -0)),
  string: fc.string(),
  boolean: fc.boolean(),
  dims: shape,
  numbers: fc.oneof(
    fc.array(fc.nat({ max: 3 }), { maxLength: 3 }),
    fc.shuffledSubarray([0, 1, 2], { minLength: 3 }),
    fc.array(finite, { maxLength: 4 }),
  ),
};

export const opName: fc.Arbitrary<OpName> = fc.constantFrom(...OP_NAMES);

/** Attributes of the kinds that `op` declares. */
export function attributesOf(op: OpName): fc.Arbitrary<Attributes> {
  return fc.record(
    Object.fromEntries(
      Object.entries(OPS[op].attributes).map(([name, kind]) => [
        name,
        typeof kind === 'string' ? attributeOf[kind] : fc.constantFrom(...kind),
      ]),
    ),
  );
}

/** As many of `each` as the op takes with these attributes. */
export function listFor<T>(op: OpName, attributes: Attributes, each: fc.Arbitrary<T>): fc.Arbitrary<T[]> {
  const [minLength, maxLength] = arityOf(OPS[op], attributes);
  return fc.array(each, { minLength, maxLength });
}

/** One attempt to add a node: which op, which of the values so far (counted back from the newest), which attributes. */
const step = opName
  .chain((name) => fc.tuple(fc.constant(name), attributesOf(name)))
  .chain(([op, attributes]) =>
    fc.record({
      op: fc.constant(op),
      operands: listFor(op, attributes, fc.nat({ max: 8 })),
      attributes: fc.constant(attributes),
      hint: fc.constantFrom('x', 'y', 'heads0', 'q_by_head'),
      scope: fc.constantFrom('', 'layers.0', 'layers.1.attention.q'),
    }),
  );

/** Graphs of up to 40 nodes. Steps that are not well typed are skipped, so every op that fits somewhere appears. */
export const graph: fc.Arbitrary<Graph> = fc
  .record({
    params: fc.array(tensorType, { minLength: 1, maxLength: 4 }),
    weights: fc.array(fc.record({ dtype, shape: fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 3 }) }), {
      maxLength: 3,
    }),
    steps: fc.array(step, { maxLength: 40 }),
    results: fc.array(fc.nat({ max: 50 }), { minLength: 1, maxLength: 3 }),
  })
  .map(({ params, weights, steps, results }) => {
    const b = new GraphBuilder('random');
    const values: Value[] = [
      ...params.map((type, i) => b.param(`input${i}`, type.dtype, type.shape)),
      ...weights.map((type, i) => b.weight(`model.layers.${i}.w-${i}.weight`, type.dtype, type.shape)),
    ];
    for (const { op, operands, attributes, hint, scope } of steps) {
      const picked = operands.map((back) => values[values.length - 1 - (back % values.length)]!);
      if (
        typeof inferred(
          OPS[op],
          picked.map((v) => v.type),
          attributes,
        ) !== 'string'
      )
        values.push(b.append(op, picked, attributes, hint, scope));
    }
    return b.finish(results.map((i) => values[i % values.length]!));
  });
