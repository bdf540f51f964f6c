/** Elementwise ops with NumPy broadcasting. Each has the scalar expression that every backend prints. */
import type { Dim, DType, TensorType } from '../types.js';
import { DTYPES } from '../types.js';
import { evaluateScalar } from '../evaluateScalar.js';
import { mapScalar, type BinaryOp, type Scalar, type UnaryOp } from '../scalar.js';
import { roundToDType } from '../round.js';
import {
  TypeMismatch,
  elementCount,
  forEachIndex,
  numberAttribute,
  stringAttribute,
  strides,
  type OpDef,
  type Tensor,
} from './opDef.js';

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

/** Evaluates a scalar expression of operands in float64. Leaves that belong to kernels throw. */
export const evaluateOperands = (s: Scalar, operands: readonly number[]): number =>
  evaluateScalar(s, { row: 0, column: 0, arg: (index) => operands[index]! });

function evaluateBroadcast(
  operands: readonly Tensor[],
  shape: readonly number[],
  f: (values: readonly number[]) => number,
): Tensor {
  const data = new Float64Array(elementCount(shape));
  const steps = operands.map((t) => {
    const own = strides(t.shape);
    const pad = shape.length - t.shape.length;
    return shape.map((_, axis) => (axis < pad || t.shape[axis - pad] === 1 ? 0 : own[axis - pad]!));
  });
  const values = new Array<number>(operands.length).fill(0);
  forEachIndex(shape, (flat, index) => {
    for (let i = 0; i < operands.length; i++) {
      let at = 0;
      for (let axis = 0; axis < index.length; axis++) at += index[axis]! * steps[i]![axis]!;
      values[i] = operands[i]!.data[at]!;
    }
    data[flat] = f(values);
  });
  return { shape, data };
}

type ResultDtype = 'same' | 'bool' | 'f32';

function elementwise(summary: string, count: number, expression: Scalar, result: ResultDtype): OpDef {
  const checkDtypes = (operands: readonly TensorType[]): DType => {
    const first = operands[count === 3 ? 1 : 0]!.dtype;
    if (operands.slice(count === 3 ? 1 : 0).some((t) => t.dtype !== first)) {
      throw new TypeMismatch(
        `operands have different element types: ${operands.map((t) => t.dtype).join(', ')}; insert a cast`,
      );
    }
    if (count === 3 && operands[0]!.dtype !== 'bool') throw new TypeMismatch('the condition of select must be bool');
    if (result === 'f32' && first !== 'f32') throw new TypeMismatch(`needs f32, got ${first}; insert a cast`);
    return first;
  };
  const substitute = (args: readonly Scalar[]): Scalar => substituteArgs(expression, args);
  return {
    summary,
    fuse: 'elementwise',
    attributes: {},
    arity: [count, count],
    infer: (operands) => {
      const dtype = checkDtypes(operands);
      return { dtype: result === 'bool' ? 'bool' : dtype, shape: broadcastShapes(operands.map((t) => t.shape)) };
    },
    evaluate: (operands, _, shape) =>
      evaluateBroadcast(operands, shape, (values) => evaluateOperands(expression, values)),
    scalar: substitute,
  };
}

/** Replaces `arg` leaves. */
const substituteArgs = (s: Scalar, args: readonly Scalar[]): Scalar =>
  mapScalar(s, (leaf) => (leaf.op === 'arg' ? args[leaf.index]! : leaf));

const A: Scalar = { op: 'arg', index: 0 };
const B: Scalar = { op: 'arg', index: 1 };
const unary = (op: UnaryOp, summary: string, result: ResultDtype = 'f32'): OpDef =>
  elementwise(summary, 1, { op, a: A }, result);
const binary = (op: BinaryOp, summary: string, result: ResultDtype = 'same'): OpDef =>
  elementwise(summary, 2, { op, a: A, b: B }, result);

const dtypeAttribute = (value: string): DType => {
  const dtype = DTYPES.find((d) => d === value);
  if (dtype === undefined) throw new TypeMismatch(`'${value}' is not an element type (${DTYPES.join(', ')})`);
  return dtype;
};

/**
 * `const` and `cast`, which are not in the table of arithmetic. A cast to f32 keeps the value; only a narrowing cast
 * rounds.
 */
export const ELEMENTWISE = {
  const: {
    summary: 'const {value}: f32[] — a literal',
    fuse: 'elementwise',
    attributes: { value: 'number' },
    arity: [0, 0],
    infer: () => ({ dtype: 'f32', shape: [] }),
    evaluate: (_, attributes) => ({ shape: [], data: Float64Array.of(numberAttribute(attributes, 'value')) }),
    scalar: (_, attributes) => ({ op: 'const', value: numberAttribute(attributes, 'value') }),
  },
  cast: {
    summary: 'cast(x) {dtype}: x in another element type',
    fuse: 'elementwise',
    attributes: { dtype: 'string' },
    arity: [1, 1],
    infer: ([x], attributes) => ({ dtype: dtypeAttribute(stringAttribute(attributes, 'dtype')), shape: x!.shape }),
    evaluate: ([x], attributes, shape) => {
      const dtype = dtypeAttribute(stringAttribute(attributes, 'dtype'));
      return { shape, data: dtype === 'f32' ? x!.data : x!.data.map((v) => roundToDType(v, dtype)) };
    },
    scalar: ([x], attributes) => {
      const dtype = dtypeAttribute(stringAttribute(attributes, 'dtype'));
      switch (dtype) {
        case 'bf16':
          return { op: 'roundBf16', a: x! };
        case 'bool':
          return { op: 'not', a: { op: 'eq', a: x!, b: { op: 'const', value: 0 } } };
        case 'f32':
          return { op: 'toF32', a: x! };
        // The store rounds.
        case 'i32':
        case 'f16':
        case 'e4m3':
        case 'i8':
          return { op: 'toF32', a: x! };
        default:
          return dtype satisfies never;
      }
    },
  },
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
  not: unary('not', 'not(a)', 'same'),
  neg: unary('neg', 'neg(a) = −a', 'same'),
  exp: unary('exp', 'exp(a)'),
  log: unary('log', 'log(a), natural'),
  sqrt: unary('sqrt', 'sqrt(a)'),
  rsqrt: unary('rsqrt', 'rsqrt(a) = 1/√a'),
  sin: unary('sin', 'sin(a), radians'),
  cos: unary('cos', 'cos(a), radians'),
  tanh: unary('tanh', 'tanh(a)'),
  erf: unary('erf', 'erf(a) = 2/√π·∫₀ᵃ exp(−t²) dt'),
  select: elementwise(
    'select(c, a, b) = c ? a : b',
    3,
    { op: 'select', condition: A, a: B, b: { op: 'arg', index: 2 } },
    'same',
  ),
} as const satisfies Record<string, OpDef>;
