/** What C and CUDA write alike of scalar programs: operators, and angles in double. */
import type { Scalar } from '../ir/scalar.js';
import { isBinary, isUnary } from '../ir/scalar.js';

export const C_ARITHMETIC = { add: '+', sub: '-', mul: '*', div: '/' } as const;
export const C_COMPARE = { le: '<=', lt: '<', eq: '==' } as const;
export const C_LOGIC = { and: '&&', or: '||' } as const;

/** How a target writes the leaves of an expression in double, at one column. */
export interface DoubleLeaves {
  readonly literal: (value: number) => string;
  readonly rowIndex: string;
  readonly columnIndex: string;
  /** A load, if the target reads it directly. */
  readonly load?: (s: Extract<Scalar, { op: 'load' }>) => string;
  /** A value that was computed in float. */
  readonly widened: (s: Scalar) => string;
}

/**
 * sin and cos take their angle in double, because position × frequency needs more bits than a float has. Expressions
 * without a double form are computed in float and widened.
 */
export function printDouble(s: Scalar, leaves: DoubleLeaves): string {
  const sub = (x: Scalar): string => printDouble(x, leaves);
  if (isUnary(s)) {
    switch (s.op) {
      case 'toF32':
        return sub(s.a);
      case 'neg':
        return `(-${sub(s.a)})`;
      case 'exp':
      case 'log':
      case 'sqrt':
        return `${s.op}(${sub(s.a)})`;
      default:
        return leaves.widened(s);
    }
  }
  if (isBinary(s)) {
    const { op } = s;
    return op === 'add' || op === 'sub' || op === 'mul' || op === 'div'
      ? `(${sub(s.a)} ${C_ARITHMETIC[op]} ${sub(s.b)})`
      : leaves.widened(s);
  }
  switch (s.op) {
    case 'const':
      return leaves.literal(s.value);
    case 'rowIndex':
      return leaves.rowIndex;
    case 'columnIndex':
      return leaves.columnIndex;
    case 'load':
      return leaves.load?.(s) ?? leaves.widened(s);
    case 'acc':
    case 'arg':
    case 'rowSum':
    case 'segmentSum':
    case 'rotateHalf':
    case 'groupSum':
    case 'select':
      return leaves.widened(s);
    default:
      return s satisfies never;
  }
}
