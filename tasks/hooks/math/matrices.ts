/** Sums and products of expressions, of matrices entry by entry. They throw Unreadable where shapes do not fit. */
import { Unreadable } from './latexLexer.js';
import { apply, type MathExpression, minus } from './values.js';

type Matrix = Extract<MathExpression, { readonly kind: 'matrix' }>;
/** Of a matrix, and products of entries in a product. */
export const MAX_ENTRIES = 400;

const mapped = ({ rows }: Matrix, of: (entry: MathExpression) => MathExpression): Matrix => ({
  kind: 'matrix',
  rows: rows.map((row) => row.map(of)),
});

export const negated = (of: MathExpression): MathExpression => (of.kind === 'matrix' ? mapped(of, minus) : minus(of));

export function added(a: MathExpression, b: MathExpression): MathExpression {
  if (a.kind !== 'matrix' && b.kind !== 'matrix') return apply('+', a, b);
  if (
    a.kind !== 'matrix' ||
    b.kind !== 'matrix' ||
    a.rows.length !== b.rows.length ||
    a.rows[0]!.length !== b.rows[0]!.length
  )
    throw new Unreadable('a sum of other shapes');
  return { kind: 'matrix', rows: a.rows.map((row, i) => row.map((entry, j) => apply('+', entry, b.rows[i]![j]!))) };
}

export function multiplied(a: MathExpression, b: MathExpression): MathExpression {
  if (a.kind === 'matrix' && b.kind === 'matrix') {
    if (a.rows[0]!.length !== b.rows.length) throw new Unreadable('a product of other shapes');
    if (a.rows.length * b.rows[0]!.length * b.rows.length > MAX_ENTRIES) throw new Unreadable('too many entries');
    return {
      kind: 'matrix',
      rows: a.rows.map((row) =>
        b.rows[0]!.map((_, j) =>
          row.map((entry, k) => apply('*', entry, b.rows[k]![j]!)).reduce((sum, each) => apply('+', sum, each)),
        ),
      ),
    };
  }
  if (a.kind === 'matrix') return mapped(a, (entry) => apply('*', entry, b));
  return b.kind === 'matrix' ? mapped(b, (entry) => apply('*', a, entry)) : apply('*', a, b);
}

export function divided(a: MathExpression, b: MathExpression): MathExpression {
  if (b.kind === 'matrix') throw new Unreadable('a division by a matrix');
  return a.kind === 'matrix' ? mapped(a, (entry) => apply('/', entry, b)) : apply('/', a, b);
}
