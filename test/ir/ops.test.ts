import { EXPERT_EXAMPLES } from './expertExamples.js';
import { NARROW_EXAMPLES } from './narrowExamples.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { attributeProblem, inferred } from '../../ir/graph/checkNode.js';
import { evaluateScalar } from '../../ir/evaluateScalar.js';
import { gumbel, uniform } from '../../ir/gumbel.js';
import type { Attributes } from '../../ir/graph/graph.js';
import { concreteShape } from '../../ir/graph/interpreter.js';
import { OPS, OP_NAMES, isOpName, type OpName } from '../../ir/ops/index.js';
import { TypeMismatch, elementCount, type Tensor } from '../../ir/ops/opDef.js';
import { printType, type TensorType } from '../../ir/types.js';
import { attributesOf, opName, tensorType } from './randomGraph.js';

const parseType = (text: string): TensorType => {
  const [, dtype, dims] = /^(\w+)\[(.*)\]$/.exec(text)!;
  return {
    dtype: dtype as TensorType['dtype'],
    shape: dims === '' ? [] : dims!.split(', ').map((d) => (/^[TR]/.test(d) ? d : Number(d))),
  };
};

interface Example {
  readonly op: OpName;
  /** Types and elements of the operands; T is 2 and R is 3. */
  readonly operands: readonly (readonly [string, readonly number[]])[];
  readonly attributes?: Attributes;
  readonly type: string;
  readonly result: readonly number[];
}
const example = (
  op: OpName,
  operands: Example['operands'],
  type: string,
  result: readonly number[],
  attributes: Attributes = {},
): Example => ({ op, operands, type, result, attributes });
const SIZES = { T: 2, R: 3 };
const [X, Y] = [
  ['f32[2]', [6, -1.5]],
  ['f32[2]', [4, -1.5]],
] as const;
const [P, Q] = [
  ['bool[4]', [0, 0, 1, 1]],
  ['bool[4]', [0, 1, 0, 1]],
] as const;
/** Computed by hand. */
const EXAMPLES: readonly Example[] = [
  example('const', [], 'f32[]', [2.5], { value: 2.5 }),
  example('cast', [['f32[3]', [2.9, -2.9, 0]]], 'i32[3]', [2, -2, 0], { dtype: 'i32' }),
  example('cast', [['f32[2]', [1 + 2 ** -8, 1 + 3 * 2 ** -8]]], 'bf16[2]', [1, 1 + 2 ** -6], { dtype: 'bf16' }),
  example('cast', [['i32[2]', [7, -7]]], 'f32[2]', [7, -7], { dtype: 'f32' }),
  example('add', [X, Y], 'f32[2]', [10, -3]),
  example(
    'add',
    [
      ['f32[T, 1]', [10, 20]],
      ['f32[3]', [1, 2, 3]],
    ],
    'f32[T, 3]',
    [11, 12, 13, 21, 22, 23],
  ),
  example('sub', [X, Y], 'f32[2]', [2, 0]),
  example(
    'sub',
    [
      ['i32[1, T]', [5, 6]],
      ['i32[T, 1]', [1, 2]],
    ],
    'i32[T, T]',
    [4, 5, 3, 4],
  ),
  example('mul', [X, Y], 'f32[2]', [24, 2.25]),
  example('div', [X, Y], 'f32[2]', [1.5, 1]),
  example('max', [X, Y], 'f32[2]', [6, -1.5]),
  example('min', [X, Y], 'f32[2]', [4, -1.5]),
  example('le', [X, Y], 'bool[2]', [0, 1]),
  example('lt', [X, Y], 'bool[2]', [0, 0]),
  example('eq', [X, Y], 'bool[2]', [0, 1]),
  example('and', [P, Q], 'bool[4]', [0, 0, 0, 1]),
  example('or', [P, Q], 'bool[4]', [0, 1, 1, 1]),
  example('not', [['bool[2]', [0, 1]]], 'bool[2]', [1, 0]),
  example('neg', [X], 'f32[2]', [-6, 1.5]),
  example('exp', [['f32[2]', [0, -Infinity]]], 'f32[2]', [1, 0]),
  example('log', [['f32[2]', [1, 0]]], 'f32[2]', [0, -Infinity]),
  example('sqrt', [['f32[2]', [9, 0.25]]], 'f32[2]', [3, 0.5]),
  example('rsqrt', [['f32[2]', [4, 0.25]]], 'f32[2]', [0.5, 2]),
  example('sin', [['f32[1]', [0]]], 'f32[1]', [0]),
  example('cos', [['f32[1]', [0]]], 'f32[1]', [1]),
  example('tanh', [['f32[3]', [0, Math.log(3), -Infinity]]], 'f32[3]', [0, 0.8, -1]),
  example('erf', [['f32[3]', [0, Infinity, -7]]], 'f32[3]', [0, 1, -1]),
  example(
    'select',
    [
      ['bool[T, 1]', [1, 0]],
      ['f32[]', [0]],
      ['f32[1, 3]', [1, 2, 3]],
    ],
    'f32[T, 3]',
    [0, 0, 0, 1, 2, 3],
  ),
  example('sum', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 1]', [6, 15]),
  example('mean', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 1]', [2, 5]),
  example('reduce_max', [['f32[T, 3]', [1, 3, 2, -4, -6, -5]]], 'f32[T, 1]', [3, -4]),
  example('argmax', [['f32[T, 3]', [1, 3, 3, -4, -6, -4]]], 'i32[T, 1]', [1, 0]),
  example(
    'linear',
    [
      ['f32[T, 2]', [1, 2, 3, 4]],
      ['bf16[3, 2]', [1, 0, 0, 1, 1, -1]],
    ],
    'f32[T, 3]',
    [1, 2, -1, 3, 4, -1],
  ),
  example(
    'matmul',
    [
      ['f32[2, T, 1]', [1, 2, 3, 4]],
      ['f32[2, 1, 2]', [10, 100, -1, 1]],
    ],
    'f32[2, T, 2]',
    [10, 100, 20, 200, -3, 3, -4, 4],
  ),
  example('reshape', [['f32[T, 6]', [...Array(12).keys()]]], 'f32[T, 3, 2]', [...Array(12).keys()], {
    shape: ['T', 3, 2],
  }),
  example('transpose', [['f32[T, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[3, T]', [1, 4, 2, 5, 3, 6], { order: [1, 0] }),
  example('transpose', [['f32[2, 1, 3]', [1, 2, 3, 4, 5, 6]]], 'f32[3, 2, 1]', [1, 4, 2, 5, 3, 6], {
    order: [2, 0, 1],
  }),
  ...[...EXPERT_EXAMPLES, ...NARROW_EXAMPLES].map((each) => example(...each)),
  example('pair_halves', [['f32[2]', [1, 2]]], 'f32[2]', [1, 2], { headDim: 2, rotated: 2, interleaved: true }),
  example('repeat', [['f32[2, T]', [1, 2, 3, 4]]], 'f32[4, T]', [1, 2, 1, 2, 3, 4, 3, 4], { times: 2 }),
  example('rotate_half', [['f32[T, 4]', [1, 2, 3, 4, 5, 6, 7, 8]]], 'f32[T, 4]', [-3, -4, 1, 2, -7, -8, 5, 6]),
  example(
    'gather_rows',
    [
      ['bf16[4, 2]', [0, 1, 10, 11, 20, 21, 30, 31]],
      ['i32[R]', [3, 0, 3]],
    ],
    'bf16[R, 2]',
    [30, 31, 0, 1, 30, 31],
  ),
  example(
    'gather_last',
    [
      ['f32[T, 3]', [1, 2, 3, 4, 5, 6]],
      ['i32[T]', [2, 0]],
    ],
    'f32[T]',
    [3, 4],
  ),
  example(
    'write_rows',
    [
      ['f32[4, 2]', [1, 2, 3, 4, 5, 6, 7, 8]],
      ['f32[3, 2]', [10, 11, 12, 13, 14, 15]],
      ['i32[3]', [3, -1, 0]],
    ],
    'f32[4, 2]',
    [14, 15, 3, 4, 5, 6, 10, 11],
  ),
  example('iota', [], 'i32[T]', [0, 1], { size: ['T'] }),
  example('vector', [], 'f32[2]', [0.5, 0.25], { label: 'frequencies', values: [0.5, 0.25] }),
  // Scale ½ cancels the query 2: keys 0 and ln 3 weigh 1 : 3 for the second query; the first sees only the first key.
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [2, 2]],
      ['f32[T, 1, 1]', [0, Math.log(3)]],
      ['f32[T, 1, 1]', [4, 8]],
      ['i32[T]', [2, 2]],
    ],
    'f32[T, 1, 1]',
    [4, 7],
    { mask: 'column', scale: 0.5 },
  ),
  // Two query heads share the keys; the bias hides the first key from the second query.
  example(
    'attention',
    [
      ['f32[T, 2, 1]', [0, 0, 0, 0]],
      ['f32[T, 1, 1]', [1, 1]],
      ['f32[T, 1, 1]', [4, 8]],
      ['f32[T, T]', [0, 0, -Infinity, 0]],
    ],
    'f32[T, 2, 1]',
    [6, 6, 8, 8],
    { mask: 'bias', scale: 1 },
  ),
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [0, 0]],
      ['f32[T, 1, 1]', [1, 1]],
      ['f32[T, 1, 1]', [4, 8]],
      ['i32[T]', [2, 2]],
      ['i32[R]', [1, 0, 1]],
    ],
    'f32[R, 1, 1]',
    [6, 4, 6],
    { mask: 'column', scale: 1 },
  ),
  // Query 0 sees entry 2 of the list of keys, which is row 1; query 1 sees entries 0 and 1, which are rows 0 and 2.
  example(
    'attention',
    [
      ['f32[T, 1, 1]', [0, 0]],
      ['f32[3, 1, 1]', [1, 1, 1]],
      ['f32[3, 1, 1]', [4, 8, 16]],
      ['i32[T]', [2, 0]],
      ['i32[T]', [0, 1]],
      ['i32[R]', [0, 2, 1]],
    ],
    'f32[T, 1, 1]',
    [8, 10],
    { mask: 'path', scale: 1 },
  ),
  // Row r: z = scale·x·(0, ln 3); softmax is (¼, ¾) for scale·x = 1.
  example(
    'logprob',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [0, Math.log(3)]],
      ['f32[R, 1]', [1, 0.5, 0]],
      ['i32[R]', [0, 1, 1]],
    ],
    'f32[R]',
    [Math.log(1 / 4), Math.log(3 / 4), Math.log(1 / 2)],
  ),
  example(
    'is_argmax',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [0, Math.log(3)]],
      ['f32[R, 1]', [1, 0.5, 0]],
      ['i32[R]', [0, 1, 0]],
    ],
    'i32[R]',
    [0, 1, 1],
  ),
  // An inverse temperature of 0 takes the larger logit. At 10⁻⁶ the noise alone decides.
  example(
    'gumbel',
    [
      ['i32[R]', [1, 1, 2]],
      ['i32[R]', [0, 0, -1]],
    ],
    'f32[R, 2]',
    [
      [1, 0],
      [1, 0],
      [2, -1],
    ].flatMap(([low, high]) => [0, 1].map((token) => gumbel({ low: low!, high: high! }, token))),
    { size: 2 },
  ),
  ...(['draw', 'draw_logprob'] as const).map((op) =>
    example(
      op,
      [
        ['f32[R, 1]', [1, 2, 1]],
        ['bf16[2, 1]', [0, Math.log(3)]],
        ['f32[R, 1]', [1, 0.5, 1]],
        ['f32[R]', [0, 0, 1e-6]],
        ['i32[R]', [5, 6, 7]],
        ['i32[R]', [0, 0, 0]],
      ],
      op === 'draw' ? 'i32[R]' : 'f32[R]',
      [1, 1, uniform({ low: 7, high: 0 }, 1) < uniform({ low: 7, high: 0 }, 0) ? 1 : 0].map((token) =>
        op === 'draw' ? token : Math.log(token === 1 ? 3 / 4 : 1 / 4),
      ),
    ),
  ),
  example('first_rows', [['f32[R, 2]', [1, 2, 3, 4, 5, 6]]], 'f32[T, 2]', [1, 2, 3, 4], { rows: ['T'] }),
  example(
    'head_logits',
    [
      ['f32[R, 1]', [1, 2, 1]],
      ['bf16[2, 1]', [4, 5]],
      ['f32[R, 1]', [1, 0.5, 0]],
    ],
    'f32[T, 2]',
    [4, 5, 4, 5],
    { rows: ['T'] },
  ),
  // The first row bans the likeliest token; the second takes its last token, generated, to be less likely than 2.
  example(
    'sample',
    [
      ['f32[T, 3]', [3, 1, 2, 2, 1, 1.5]],
      ...(
        [
          [0, 0, 0],
          [5, 6, 7],
          [0, 0, 0],
        ] as const
      ).map((data, i) => [`${i === 0 ? 'f32' : 'i32'}[R]`, data] as const),
      ['i32[T]', [0, 0]],
      ['f32[T]', [1, 1]],
      ['f32[T]', [-Infinity, -Infinity]],
      ['f32[T]', [1, 1]],
      ['f32[T]', [0, 1]],
      ['f32[T]', [0, 0]],
      ['i32[T]', [0, 1]],
      ['i32[T]', [1, 1]],
      ['i32[1]', [0]],
      ['f32[1]', [-Infinity]],
      ['i32[1]', [-1]],
      ['i32[R]', [1, 1, 0]],
      ['i32[R]', [0, 2, 1]],
      ['i32[T]', [0, 1]],
    ],
    'i32[T]',
    [2, 2],
  ),
  example(
    'sample_logprob',
    [
      ['f32[T, 2]', [0, Math.log(3), 1, 1]],
      ['i32[T]', [1, 0]],
    ],
    'f32[T]',
    [Math.log(3 / 4), Math.log(1 / 2)],
  ),
  ...(['top_tokens', 'top_logprobs'] as const).map((op) =>
    example(
      op,
      [
        ['f32[T, 2]', [0, Math.log(3), 1, 1]],
        ['i32[T]', [2, 1]],
      ],
      op === 'top_tokens' ? 'i32[T, 3]' : 'f32[T, 3]',
      op === 'top_tokens' ? [1, 0, 0, 0, 0, 0] : [Math.log(3 / 4), Math.log(1 / 4), 0, Math.log(1 / 2), 0, 0],
      { most: 3 },
    ),
  ),
];

describe('references of ops', () => {
  it.each(
    EXAMPLES.map(
      (e) => [`${e.op}(${e.operands.map(([t]) => t).join(', ')}) ${JSON.stringify(e.attributes)}`, e] as const,
    ),
  )('%s', (_title, e) => {
    const types = e.operands.map(([text]) => parseType(text));
    expect(attributeProblem(e.op, OPS[e.op], e.attributes!)).toBeUndefined();
    const type = OPS[e.op].infer(types, e.attributes!);
    expect(printType(type)).toBe(e.type);
    const tensors = e.operands.map(([, data], i): Tensor => ({
      shape: concreteShape(types[i]!.shape, SIZES),
      data: Float64Array.from(data),
    }));
    for (const t of tensors) expect(t.data.length, 'the example gives every element').toBe(elementCount(t.shape));
    const result = OPS[e.op].evaluate(tensors, e.attributes!, concreteShape(type.shape, SIZES));
    expect([...result.data]).toEqual(e.result.map((x) => (Number.isFinite(x) ? expect.closeTo(x, 12) : x)));
  });

  it('has an example for every op', () => {
    expect([...new Set(EXAMPLES.map((e) => e.op))].sort()).toEqual([...OP_NAMES].sort());
  });

  const index = (type: string, data: readonly number[]): Example['operands'][number] => [type, data];
  it.each([
    ['gather_rows', [['f32[2, 1]', [1, 2]], index('i32[1]', [2])], {}],
    ['gather_rows', [['f32[2, 1]', [1, 2]], index('i32[1]', [-1])], {}],
    ['gather_last', [['f32[1, 2]', [1, 2]], index('i32[1]', [2])], {}],
    ['logprob', [['f32[1, 1]', [1]], ['f32[2, 1]', [1, 2]], ['f32[1, 1]', [1]], index('i32[1]', [2])], {}],
    [
      'attention',
      [['f32[1, 1, 1]', [1]], ['f32[1, 1, 1]', [1]], ['f32[1, 1, 1]', [1]], ['i32[1]', [1]], index('i32[1]', [1])],
      { mask: 'column', scale: 1 },
    ],
  ] as const)('%s refuses an index out of range', (op, operands, attributes) => {
    const types = operands.map(([text]) => parseType(text));
    const shape = concreteShape(OPS[op].infer(types, attributes).shape, SIZES);
    const tensors = operands.map(([, data], i): Tensor => ({
      shape: concreteShape(types[i]!.shape, SIZES),
      data: Float64Array.from(data),
    }));
    expect(() => OPS[op].evaluate(tensors, attributes, shape)).toThrow(/is not a whole number below/);
  });
});

describe('types of ops', () => {
  it.each([
    ['add', ['f32[T]', 'bf16[T]'], {}, 'operands have different element types: f32, bf16; insert a cast'],
    ['add', ['f32[T]', 'f32[R]'], {}, 'cannot broadcast [T] with [R]: T against R'],
    ['add', ['f32[2]', 'f32[3]'], {}, 'cannot broadcast [2] with [3]: 2 against 3'],
    ['exp', ['bf16[T]'], {}, 'needs f32, got bf16; insert a cast'],
    ['select', ['f32[T]', 'f32[T]', 'f32[T]'], {}, 'the condition of select must be bool'],
    ['cast', ['f32[T]'], { dtype: 'int8' }, "'int8' is not an element type (f32, f16, bf16, e4m3, i8, i32, bool)"],
    ['sum', ['f32[]'], {}, 'cannot reduce a scalar'],
    ['mean', ['bf16[T, 4]'], {}, 'needs f32, got bf16; insert a cast'],
    ['linear', ['f32[T, 4]', 'bf16[8, 5]'], {}, 'linear: x has 4 columns, w has 5'],
    ['matmul', ['f32[2, T, 4]', 'f32[3, 4, T]'], {}, 'matmul: [2, T, 4] by [3, 4, T]'],
    ['reshape', ['f32[T, 6]'], { shape: ['T', 5] }, 'reshape: [T, 6] and [T, 5] differ in size'],
    ['reshape', ['f32[T, R]'], { shape: ['T', 'T'] }, 'reshape: [T, R] and [T, T] differ in size'],
    ['transpose', ['f32[T, 6]'], { order: [0, 0] }, 'transpose: [0, 0] is not an order of 2 axes'],
    ['repeat', ['f32[T, 6]'], { times: 2 }, 'repeat needs a fixed extent on axis 0'],
    ['repeat', ['f32[2, 6]'], { times: 1.5 }, 'repeat: 1.5 times is not a whole number, at least 1'],
    ['rotate_half', ['f32[T, 5]'], {}, 'rotate_half needs an even last extent, got 5'],
    ['gather_rows', ['f32[T, 5]', 'f32[R]'], {}, 'gather_rows needs x[N, …] and an i32[M] index'],
    ['gather_last', ['f32[T, 5]', 'i32[R]'], {}, 'gather_last needs x[M, N] and an i32[M] index'],
    [
      'attention',
      ['f32[T, 3, 4]', 'f32[T, 2, 4]', 'f32[T, 2, 4]', 'i32[T]'],
      { scale: 1, mask: 'column' },
      '3 query heads cannot be shared evenly among 2 key heads',
    ],
    [
      'attention',
      ['f32[T, 2, 4]', 'f32[T, 2, 4]', 'f32[T, 2, 4]', 'f32[T, T]'],
      { scale: 1, mask: 'column' },
      "an operand of mask 'column' has the wrong type",
    ],
    [
      'attention',
      ['f32[T, 2, 4]', 'f32[R, 2, 4]', 'f32[T, 2, 4]', 'i32[R]'],
      { scale: 1, mask: 'column' },
      'attention: the shapes of q, k and v do not match',
    ],
    ['logprob', ['f32[R, 4]', 'f32[9, 4]', 'f32[R]', 'i32[R]'], {}, 'the row scale must be f32[R, 1] or f32[]'],
  ] as const)('%s(%s) %j: %s', (op, operands, attributes, message) => {
    expect(inferred(OPS[op], operands.map(parseType), attributes)).toBe(message);
  });

  it('inference throws TypeMismatch or agrees with the reference on the shape', () => {
    const typed = new Set<OpName>();
    const call = opName.chain((op) =>
      fc.tuple(
        fc.constant(op),
        fc.array(tensorType, { minLength: OPS[op].arity[0], maxLength: OPS[op].arity[1] }),
        attributesOf(op),
      ),
    );
    fc.assert(
      fc.property(
        call,
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 3 }),
        ([op, operands, attributes], T, R) => {
          let type: TensorType;
          try {
            type = OPS[op].infer(operands, attributes);
          } catch (error) {
            expect(error).toBeInstanceOf(TypeMismatch);
            return;
          }
          const shape = concreteShape(type.shape, { T, R });
          if (elementCount(shape) > 10_000) return;
          typed.add(op);
          // Index operands are 0, which is valid on every nonempty axis.
          const tensors = operands.map((t): Tensor => {
            const s = concreteShape(t.shape, { T, R });
            return {
              shape: s,
              data: Float64Array.from({ length: elementCount(s) }, (_, i) => (t.dtype === 'f32' ? i + 1 : 0)),
            };
          });
          const result = OPS[op].evaluate(tensors, attributes, shape);
          expect(result.shape).toEqual(shape);
          expect(result.data.length).toBe(elementCount(shape));
        },
      ),
      { numRuns: 20_000, seed: 42 },
    );
    expect(typed.size).toBeGreaterThan(30);
  });
});

describe('the registry', () => {
  it('gives every elementwise op, and no other, a scalar expression equal to its reference', () => {
    for (const op of OP_NAMES) {
      const { fuse, scalar, arity, evaluate } = OPS[op];
      expect(scalar !== undefined, op).toBe(fuse === 'elementwise');
      if (scalar === undefined || op === 'const' || op === 'cast') continue;
      const program = scalar(
        Array.from({ length: arity[0] }, (_, index) => ({ op: 'arg' as const, index })),
        {},
      );
      fc.assert(
        fc.property(fc.array(fc.double(), { minLength: arity[0], maxLength: arity[0] }), (values) => {
          const reference = evaluate(
            values.map((x) => ({ shape: [], data: Float64Array.of(x) })),
            {},
            [],
          );
          expect(evaluateScalar(program, { row: 0, column: 0, arg: (i) => values[i]! })).toBe(reference.data[0]);
        }),
        { numRuns: 50, seed: 3 },
      );
    }
  });

  it('accepts only names of ops', () => {
    expect(isOpName('add')).toBe(true);
    expect(isOpName('toString')).toBe(false);
    expect(isOpName('__proto__')).toBe(false);
  });
});
