/** Evaluates scalar expressions in float64. This is the meaning that every generated program is tested against. */
import { type Access, evaluateBinary, evaluateUnary, isBinary, isUnary, printScalar, type Scalar } from './scalar.js';

/**
 * Where an expression is evaluated. Each kind of leaf reads through one member. A leaf whose member is absent is an
 * error (a loop kernel has no `acc`, and so on).
 */
export interface ScalarContext {
  row: number;
  column: number;
  /** Width of a head, an even number; `rotateHalf` needs it. */
  headDim?: number | undefined;
  acc?(index: 0 | 1, row: number, column: number): number;
  load?(buffer: string, access: Access, row: number, column: number): number;
  rowSum?(buffer: string, via: string | undefined, row: number, by?: 'max'): number;
  /** Sum of buffer[row, first … first + count), or the largest of these. */
  partSum?(buffer: string, via: string | undefined, row: number, first: number, count: number, by?: 'max'): number;
}

/**
 * Value of `expr` at (context.row, context.column). Booleans are 0 and 1. `select` evaluates only the side that it
 * takes. Throws if a leaf has no meaning in this context.
 */
export const evaluateScalar = (expr: Scalar, context: ScalarContext): number =>
  evaluatorOf(expr)(context, context.column);

type Evaluator = (context: ScalarContext, column: number) => number;

/** Takes an expression apart once, rather than once per element. */
const EVALUATORS = new WeakMap<Scalar, Evaluator>();

function evaluatorOf(s: Scalar): Evaluator {
  let evaluator = EVALUATORS.get(s);
  if (evaluator === undefined) EVALUATORS.set(s, (evaluator = makeEvaluator(s)));
  return evaluator;
}

function makeEvaluator(s: Scalar): Evaluator {
  if (isUnary(s)) {
    const [f, a] = [evaluateUnary[s.op], evaluatorOf(s.a)];
    return (context, column) => f(a(context, column));
  }
  if (isBinary(s)) {
    const [f, a, b] = [evaluateBinary[s.op], evaluatorOf(s.a), evaluatorOf(s.b)];
    return (context, column) => f(a(context, column), b(context, column));
  }
  switch (s.op) {
    case 'const':
      return () => s.value;
    case 'acc':
      return (context, column) =>
        context.acc === undefined ? misplaced(s) : context.acc(s.index, context.row, column);
    case 'load':
      return (context, column) =>
        context.load === undefined ? misplaced(s) : context.load(s.buffer, s.access, context.row, column);
    case 'rowSum':
      return (context) =>
        context.rowSum === undefined ? misplaced(s) : context.rowSum(s.buffer, s.via, context.row, s.by);
    case 'segmentSum':
      return (context, column) =>
        context.partSum === undefined
          ? misplaced(s)
          : context.partSum(s.buffer, s.via, context.row, s.parts * Math.floor(column / s.width), s.parts, s.by);
    case 'rowIndex':
      return (context) => context.row;
    case 'columnIndex':
      return (_, column) => column;
    case 'select': {
      const [condition, a, b] = [evaluatorOf(s.condition), evaluatorOf(s.a), evaluatorOf(s.b)];
      return (context, column) => (condition(context, column) !== 0 ? a : b)(context, column);
    }
    case 'groupSum': {
      const a = evaluatorOf(s.a);
      return (context, column) => {
        const first = column - (column % s.width);
        let sum = 0;
        for (let i = first; i < first + s.width; i++) sum += a(context, i);
        return sum;
      };
    }
    case 'rotateHalf': {
      const a = evaluatorOf(s.a);
      return (context, column) => {
        if (context.headDim === undefined) return misplaced(s);
        const half = context.headDim / 2;
        return column % context.headDim < half ? -a(context, column + half) : a(context, column - half);
      };
    }
    default:
      return s satisfies never;
  }
}

function misplaced(s: Scalar): never {
  throw new Error(`${printScalar(s)} has no meaning here: the program around it gives no value for '${s.op}'.`);
}

// Soft caps of attention scores and of logits.

/** cap·tanh(x / cap): nearly x near 0, and never past ±cap. Without a cap, x. */
export const softCap = (x: number, cap: number | undefined): number =>
  cap === undefined ? x : cap * Math.tanh(x / cap);
