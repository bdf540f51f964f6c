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
