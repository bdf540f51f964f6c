/** Numbers as C text. */
import { literalsOf } from '../literals.js';

export const { float: floatLiteral, double: doubleLiteral } = literalsOf({
  nan: '__builtin_nanf("")',
  infinity: '__builtin_inff()',
});

/** Literals of a cap and of its inverse, for templates. */
export const capOf = (cap: number): { readonly value: string; readonly inverse: string } => ({
  value: floatLiteral(cap),
  inverse: floatLiteral(1 / cap),
});
