import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { attributeProblem, inferred } from '../../ir/graph/checkNode.js';
import { evaluateScalar } from '../../ir/evaluateScalar.js';
import { concreteShape } from '../../ir/graph/interpreter.js';
import { OPS, OP_NAMES, isOpName, type OpName } from '../../ir/ops/index.js';
import { TypeMismatch, elementCount, nameOperands, type Tensor } from '../../ir/ops/opDef.js';
import { printType, type TensorType } from '../../ir/types.js';
import { EXAMPLES, EXAMPLE_SIZES, type Example } from './opExamples.js';
import { attributesOf, listFor, opName, tensorType } from './randomGraph.js';

const parseType = (text: string): TensorType => {
  const [, dtype, dims] = /^(\w+)\[(.*)\]$/.exec(text)!;
  return {
    dtype: dtype as TensorType['dtype'],
    shape: dims === '' ? [] : dims!.split(', ').map((d) => (/^[TR]/.test(d) ? d : Number(d))),
  };
};

describe('references of ops', () => {
  it.each(
    EXAMPLES.map(
      (e) => [`${e.op}(${e.operands.map(([t]) => t).join(', ')}) ${JSON.stringify(e.attributes)}`, e] as const,
    ),
  )('%s', (_title, e) => {
    const types = e.operands.map(([text]) => parseType(text));
    expect(attributeProblem(e.op, OPS[e.op], e.attributes!)).toBeUndefined();
    const type = OPS[e.op].infer(nameOperands(OPS[e.op], types, e.attributes!), e.attributes!);
    expect(printType(type)).toBe(e.type);
    const tensors = e.operands.map(([, data], i): Tensor => ({
      shape: concreteShape(types[i]!.shape, EXAMPLE_SIZES),
      data: Float64Array.from(data),
    }));
    for (const t of tensors) expect(t.data.length, 'the example gives every element').toBe(elementCount(t.shape));
    const operands = nameOperands(OPS[e.op], tensors, e.attributes!);
    const result = OPS[e.op].evaluate(operands, e.attributes!, concreteShape(type.shape, EXAMPLE_SIZES));
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
    const type = OPS[op].infer(nameOperands(OPS[op], types, attributes), attributes);
    const shape = concreteShape(type.shape, EXAMPLE_SIZES);
    const tensors = operands.map(([, data], i): Tensor => ({
      shape: concreteShape(types[i]!.shape, EXAMPLE_SIZES),
      data: Float64Array.from(data),
    }));
    expect(() => OPS[op].evaluate(nameOperands(OPS[op], tensors, attributes), attributes, shape)).toThrow(
      /is not a whole number below/,
    );
  });
});

describe('types of ops', () => {
  it.each([
    ['add', ['f32[T]', 'bf16[T]'], {}, 'operands have different element types: f32, bf16; insert a cast'],
    ['add', ['f32[T]', 'f32[R]'], {}, 'cannot broadcast [T] with [R]: T against R'],
    ['add', ['f32[2]', 'f32[3]'], {}, 'cannot broadcast [2] with [3]: 2 against 3'],
    ['exp', ['bf16[T]'], {}, 'needs f32, got bf16; insert a cast'],
    ['select', ['f32[T]', 'f32[T]', 'f32[T]'], {}, 'the condition of select must be bool'],
    ['sum', ['f32[]'], {}, 'cannot reduce a scalar'],
    ['mean', ['bf16[T, 4]'], {}, 'needs f32, got bf16; insert a cast'],
    ['linear', ['f32[T, 4]', 'bf16[8, 5]'], {}, 'linear: x has 4 columns, w has 5'],
    ['head_linear', ['f32[T, 2, 4]', 'bf16[5, 4]'], {}, 'head_linear: 5 rows are not those of 2 heads'],
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
    const call = opName
      .chain((op) => fc.tuple(fc.constant(op), attributesOf(op)))
      .chain(([op, attributes]) =>
        fc.tuple(fc.constant(op), listFor(op, attributes, tensorType), fc.constant(attributes)),
      );
    fc.assert(
      fc.property(
        call,
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 3 }),
        ([op, operands, attributes], T, R) => {
          let type: TensorType;
          try {
            type = OPS[op].infer(nameOperands(OPS[op], operands, attributes), attributes);
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
          const result = OPS[op].evaluate(nameOperands(OPS[op], tensors, attributes), attributes, shape);
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
      const { fuse, scalar, slots, evaluate } = OPS[op];
      expect(scalar !== undefined, op).toBe(fuse === 'elementwise');
      if (scalar === undefined || op === 'const' || op === 'cast') continue;
      const minLength = slots.length;
      fc.assert(
        fc.property(fc.array(fc.double(), { minLength, maxLength: minLength }), (values) => {
          const tensors = values.map((x): Tensor => ({ shape: [], data: Float64Array.of(x) }));
          const constants = values.map((value) => ({ op: 'const' as const, value }));
          const program = scalar(nameOperands(OPS[op], constants, {}), {});
          const reference = evaluate(nameOperands(OPS[op], tensors, {}), {}, []);
          expect(evaluateScalar(program, { row: 0, column: 0 })).toBe(reference.data[0]);
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
