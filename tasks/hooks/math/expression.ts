/** What an answer is made of, once it is read: numbers, symbols, operations, and sets of them. */
import type { Rational } from './rational.js';

/** Operations with two operands, and functions. */
export type Operation = '+' | '*' | '/' | '^' | 'root' | 'binomial' | 'factorial' | 'logarithm' | 'call';

export type Sign = '=' | '<' | '>' | '<=' | '>=' | '!=' | 'in';

export type Expression =
  | { readonly kind: 'number'; readonly value: Rational; readonly isDecimal: boolean }
  | { readonly kind: 'symbol'; readonly name: string }
  | { readonly kind: 'constant'; readonly name: 'pi' | 'e' | 'i' | 'infinity' }
  | { readonly kind: 'apply'; readonly op: Operation; readonly name?: string; readonly of: readonly Expression[] }
  /** `signs` has one entry less than `sides`. */
  | { readonly kind: 'relation'; readonly sides: readonly Expression[]; readonly signs: readonly Sign[] }
  | { readonly kind: 'set'; readonly items: readonly Expression[] }
  | { readonly kind: 'tuple'; readonly items: readonly Expression[] }
  /** Two values with brackets around them: an interval, or, where both are open, a point. */
  | {
      readonly kind: 'interval';
      readonly items: readonly [Expression, Expression];
      readonly isOpen: readonly [boolean, boolean];
    }
  | { readonly kind: 'union'; readonly items: readonly Expression[] }
  | { readonly kind: 'matrix'; readonly rows: readonly (readonly Expression[])[] }
  | { readonly kind: 'text'; readonly text: string };

export const apply = (op: Operation, ...of: readonly Expression[]): Expression => ({ kind: 'apply', op, of });
export const call = (name: string, of: Expression): Expression => ({ kind: 'apply', op: 'call', name, of: [of] });
export const whole = (value: bigint): Expression => ({
  kind: 'number',
  value: { top: value, over: 1n },
  isDecimal: false,
});
export const minus = (of: Expression): Expression =>
  of.kind === 'number' ? { ...of, value: { top: -of.value.top, over: of.value.over } } : apply('*', whole(-1n), of);
export const difference = (a: Expression, b: Expression): Expression => apply('+', a, minus(b));
