/** Numbers as the text of C and CUDA. */

export interface Literals {
  /** A float literal, exact for every float. */
  readonly float: (value: number) => string;
  /** A double literal, exact for every double. */
  readonly double: (value: number) => string;
}

/** `nan`, `infinity`: C expressions (float) of what has no literal. */
export function literalsOf({ nan, infinity }: Readonly<Record<'nan' | 'infinity', string>>): Literals {
  const float = (value: number): string => {
    if (Number.isNaN(value)) return nan;
    const single = Math.fround(value);
    if (!Number.isFinite(single)) return single > 0 ? infinity : `-${infinity}`;
    const text = String(single);
    return `${/[.e]/.test(text) ? text : `${text}.0`}f`;
  };
  const double = (value: number): string =>
    Number.isFinite(value) ? value.toExponential() : `(double)(${float(value)})`;
  return { float, double };
}

/** What C and CUDA write alike of scalar programs: operators, and angles in double. */
import { isBinary, isUnary, type Scalar } from '../ir/scalar.js';
import type { KernelOperands } from './operands.js';

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

// Statements that run once for a row of a generated kernel: each value is defined once, under a name.

/** A statement that defines `name`, of C type `type`. */
export interface RowStatement {
  readonly name: string;
  readonly type: string;
  readonly line: string;
}

export class RowStatements<O extends KernelOperands> {
  readonly statements: RowStatement[] = [];
  readonly operands: O;
  /** The mark of the statements that are being printed: that of the innermost expression which has one. */
  mark = '';
  private readonly names = new Map<string, string>();
  private readonly prefix: string;

  /** `prefix`: of the variables that are defined here; rows within one block of statements need different ones. */
  constructor(operands: O, prefix: string) {
    this.operands = operands;
    this.prefix = prefix;
  }

  /** The statements as lines. */
  get lines(): readonly string[] {
    return this.statements.map(({ line }) => line);
  }

  /** What `print` adds belongs to `s`. */
  within<T>(s: Scalar, print: () => T): T {
    const outer = this.mark;
    this.mark = this.operands.markOf?.(s) ?? outer;
    const made = print();
    this.mark = outer;
    return made;
  }

  /** The variable that holds `code`, of C type `type`; the same `key` has the same variable. */
  define(key: string, type: string, code: string): string {
    const known = this.names.get(key);
    if (known !== undefined) return known;
    const name = `${this.prefix}${this.names.size}`;
    this.names.set(key, name);
    this.statements.push({ name, type, line: `${type} const ${name} = ${code};${this.mark}` });
    return name;
  }
}
