/** Complex numbers and the functions that answers use, at principal values. */

export interface Complex {
  readonly re: number;
  readonly im: number;
}

export const real = (re: number): Complex => ({ re, im: 0 });
export const add = (a: Complex, b: Complex): Complex => ({ re: a.re + b.re, im: a.im + b.im });
export const multiply = (a: Complex, b: Complex): Complex =>
  a.im === 0 && b.im === 0 ? real(a.re * b.re) : { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re };
export const negative = ({ re, im }: Complex): Complex => ({ re: -re, im: im === 0 ? 0 : -im });
export const size = ({ re, im }: Complex): number => Math.hypot(re, im);

export function divide(a: Complex, b: Complex): Complex {
  if (a.im === 0 && b.im === 0) return real(a.re / b.re);
  const norm = b.re * b.re + b.im * b.im;
  const { re, im } = multiply(a, { re: b.re, im: -b.im });
  return { re: re / norm, im: im / norm };
}

export const exponential = ({ re, im }: Complex): Complex =>
  im === 0 ? real(Math.exp(re)) : { re: Math.exp(re) * Math.cos(im), im: Math.exp(re) * Math.sin(im) };
export const logarithm = (z: Complex): Complex =>
  z.im === 0 && z.re > 0 ? real(Math.log(z.re)) : { re: Math.log(size(z)), im: Math.atan2(z.im, z.re) };

export function raise(base: Complex, exponent: Complex): Complex {
  if (exponent.im === 0 && base.im === 0 && (base.re >= 0 || Number.isInteger(exponent.re)))
    return real(base.re ** exponent.re);
  if (exponent.im === 0 && Number.isInteger(exponent.re) && Math.abs(exponent.re) <= 64) {
    let product = real(1);
    for (let i = 0; i < Math.abs(exponent.re); i++) product = multiply(product, base);
    return exponent.re < 0 ? divide(real(1), product) : product;
  }
  if (size(base) === 0) return real(exponent.re > 0 ? 0 : NaN);
  return exponential(multiply(exponent, logarithm(base)));
}

const ofReal =
  (run: (value: number) => number) =>
  (z: Complex): Complex =>
    z.im === 0 ? real(run(z.re)) : real(NaN);

function sine({ re, im }: Complex): Complex {
  return im === 0 ? real(Math.sin(re)) : { re: Math.sin(re) * Math.cosh(im), im: Math.cos(re) * Math.sinh(im) };
}
function cosine({ re, im }: Complex): Complex {
  return im === 0 ? real(Math.cos(re)) : { re: Math.cos(re) * Math.cosh(im), im: -Math.sin(re) * Math.sinh(im) };
}

/** By their commands in LaTeX. */
export const FUNCTIONS: Readonly<Record<string, (z: Complex) => Complex>> = {
  sin: sine,
  cos: cosine,
  tan: (z) => divide(sine(z), cosine(z)),
  cot: (z) => divide(cosine(z), sine(z)),
  sec: (z) => divide(real(1), cosine(z)),
  csc: (z) => divide(real(1), sine(z)),
  arcsin: ofReal(Math.asin),
  arccos: ofReal(Math.acos),
  arctan: ofReal(Math.atan),
  sinh: ofReal(Math.sinh),
  cosh: ofReal(Math.cosh),
  tanh: ofReal(Math.tanh),
  exp: exponential,
  ln: logarithm,
  log: logarithm,
  abs: (z) => real(size(z)),
  floor: ofReal(Math.floor),
  ceil: ofReal(Math.ceil),
};
