/** Elementwise ops with NumPy broadcasting. Each has the scalar expression that every backend prints. */
import { evaluateScalar } from '../evaluateScalar.js';
import { roundToDType } from '../round.js';
import type { BinaryOp, Scalar, UnaryOp } from '../scalar.js';
import { DTYPES, type Dim, type DType, type TensorType } from '../types.js';
import { TypeMismatch, elementCount, forEachIndex, op, strides, type Tensor } from './opDef.js';

/** The broadcast shape: axes are aligned at the last one, and extent 1 stretches. */
function broadcastShapes(shapes: readonly (readonly Dim[])[]): Dim[] {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  return Array.from({ length: rank }, (_, axis) => {
    let out: Dim = 1;
    for (const shape of shapes) {
      const dim = shape[axis - (rank - shape.length)] ?? 1;
      if (dim === 1 || dim === out) continue;
      if (out !== 1)
        throw new TypeMismatch(
          `cannot broadcast [${shapes.map((s) => s.join(', ')).join('] with [')}]: ${out} against ${dim}`,
        );
      out = dim;
    }
    return out;
  });
}

/** The operand `name` of a reference, as an element that an expression loads. */
const operand = (name: string): Scalar => ({ op: 'load', buffer: name, access: { kind: 'element' } });

/** An expression of operands in float64, for every element of `shape`. */
function evaluateBroadcast(
  expression: Scalar,
  operands: Readonly<Record<string, Tensor>>,
  shape: readonly number[],
): Tensor {
  const data = new Float64Array(elementCount(shape));
  const readers = Object.entries(operands).map(([name, { data: elements, shape: from }]) => {
    const own = strides(from);
    const pad = shape.length - from.length;
    const steps = shape.map((_, axis) => (axis < pad || from[axis - pad] === 1 ? 0 : (own[axis - pad] ?? 0)));
    return { name, elements, steps };
  });
  const values: Record<string, number> = {};
  const context = { row: 0, column: 0, load: (name: string): number => values[name] ?? NaN };
  forEachIndex(shape, (flat, index) => {
    for (const { name, elements, steps } of readers) {
      let at = 0;
      for (let axis = 0; axis < index.length; axis++) at += index[axis]! * steps[axis]!;
      values[name] = elements[at]!;
    }
    data[flat] = evaluateScalar(expression, context);
  });
  return { shape, data };
}

type ResultDtype = 'same' | 'bool' | 'f32';

/** The element type of an op of operands of one type. */
function dtypeOf(operands: readonly TensorType[], result: ResultDtype): DType {
  const [first, ...rest] = new Set(operands.map(({ dtype }) => dtype));
  if (first === undefined || rest.length > 0) {
    const all = operands.map(({ dtype }) => dtype).join(', ');
    throw new TypeMismatch(`operands have different element types: ${all}; insert a cast`);
  }
  if (result === 'f32' && first !== 'f32') throw new TypeMismatch(`needs f32, got ${first}; insert a cast`);
  return result === 'bool' ? 'bool' : first;
}

const unary = (name: UnaryOp, summary: string, result: ResultDtype = 'f32') => {
  const expression: Scalar = { op: name, a: operand('x') };
  return op({
    summary,
    fuse: 'elementwise',
    operands: { x: 'one' },
    infer: ({ x }) => ({ dtype: dtypeOf([x], result), shape: x.shape }),
    evaluate: ({ x }, _, shape) => evaluateBroadcast(expression, { x }, shape),
    scalar: ({ x }) => ({ op: name, a: x }),
  });
};

const binary = (name: BinaryOp, summary: string, result: ResultDtype = 'same') => {
  const expression: Scalar = { op: name, a: operand('a'), b: operand('b') };
  return op({
    summary,
    fuse: 'elementwise',
    operands: { a: 'one', b: 'one' },
    infer: ({ a, b }) => ({ dtype: dtypeOf([a, b], result), shape: broadcastShapes([a.shape, b.shape]) }),
    evaluate: ({ a, b }, _, shape) => evaluateBroadcast(expression, { a, b }, shape),
    scalar: ({ a, b }) => ({ op: name, a, b }),
  });
};

const CHOICE: Scalar = { op: 'select', condition: operand('condition'), a: operand('a'), b: operand('b') };

/** A cast to f32 keeps the value; only a narrowing cast rounds. */
export const ELEMENTWISE = {
  const: op({
    summary: 'const {value}: f32[] — a literal',
    fuse: 'elementwise',
    operands: {},
    attributes: { value: 'number' },
    infer: () => ({ dtype: 'f32', shape: [] }),
    evaluate: (_, { value }) => ({ shape: [], data: Float64Array.of(value) }),
    scalar: (_, { value }) => ({ op: 'const', value }),
  }),
  cast: op({
    summary: 'cast(x) {dtype}: x in another element type',
    fuse: 'elementwise',
    operands: { x: 'one' },
    attributes: { dtype: DTYPES },
    infer: ({ x }, { dtype }) => ({ dtype, shape: x.shape }),
    evaluate: ({ x }, { dtype }, shape) => ({
      shape,
      data: dtype === 'f32' ? x.data : x.data.map((v) => roundToDType(v, dtype)),
    }),
    scalar: ({ x }, { dtype }) => {
      switch (dtype) {
        case 'bf16':
          return { op: 'roundBf16', a: x };
        case 'bool':
          return { op: 'not', a: { op: 'eq', a: x, b: { op: 'const', value: 0 } } };
        case 'f32':
          return { op: 'toF32', a: x };
        // The store rounds.
        case 'i32':
        case 'f16':
        case 'e4m3':
        case 'i8':
          return { op: 'toF32', a: x };
        default:
          return dtype satisfies never;
      }
    },
  }),
  add: binary('add', 'add(a, b) = a + b'),
  sub: binary('sub', 'sub(a, b) = a − b'),
  mul: binary('mul', 'mul(a, b) = a·b'),
  div: binary('div', 'div(a, b) = a / b'),
  max: binary('max', 'max(a, b)'),
  min: binary('min', 'min(a, b)'),
  le: binary('le', 'le(a, b) = a <= b', 'bool'),
  lt: binary('lt', 'lt(a, b) = a < b', 'bool'),
  eq: binary('eq', 'eq(a, b) = (a == b)', 'bool'),
  and: binary('and', 'and(a, b)', 'bool'),
  or: binary('or', 'or(a, b)', 'bool'),
  not: unary('not', 'not(x)', 'same'),
  neg: unary('neg', 'neg(x) = −x', 'same'),
  exp: unary('exp', 'exp(x)'),
  log: unary('log', 'log(x), natural'),
  sqrt: unary('sqrt', 'sqrt(x)'),
  rsqrt: unary('rsqrt', 'rsqrt(x) = 1/√x'),
  sin: unary('sin', 'sin(x), radians'),
  cos: unary('cos', 'cos(x), radians'),
  tanh: unary('tanh', 'tanh(x)'),
  erf: unary('erf', 'erf(x) = 2/√π·∫₀ˣ exp(−t²) dt'),
  floor: unary('floor', 'floor(x): the largest whole number that is at most x'),
  select: op({
    summary: 'select(condition, a, b) = condition ? a : b',
    fuse: 'elementwise',
    operands: { condition: 'one', a: 'one', b: 'one' },
    infer: ({ condition, a, b }) => {
      const dtype = dtypeOf([a, b], 'same');
      if (condition.dtype !== 'bool') throw new TypeMismatch('the condition of select must be bool');
      return { dtype, shape: broadcastShapes([condition.shape, a.shape, b.shape]) };
    },
    evaluate: ({ condition, a, b }, _, shape) => evaluateBroadcast(CHOICE, { condition, a, b }, shape),
    scalar: ({ condition, a, b }) => ({ op: 'select', condition, a, b }),
  }),
};
