/** Numbers as CUDA text. */

/** A float literal, exact for every float. */
export function floatLiteral(value: number): string {
  if (Number.isNaN(value)) return 'tw_nan()';
  const single = Math.fround(value);
  if (!Number.isFinite(single)) return single > 0 ? 'tw_inf()' : '-tw_inf()';
  const text = String(single);
  return `${text.includes('.') || text.includes('e') ? text : `${text}.0`}f`;
}

/** A double literal, exact for every double. */
export const doubleLiteral = (value: number): string =>
  Number.isFinite(value) ? value.toExponential() : `(double)(${floatLiteral(value)})`;
