/** The value of an expression: exactly where it is rational, else as a complex number for values of its symbols. */
import { add, divide, FUNCTIONS, logarithm, multiply, raise, real, type Complex } from './complex.js';
import type { Expression } from './expression.js';
import { divided, factorial, plus, power, times, toNumber, type Rational } from './rational.js';

/** A value that is exact; undefined where the expression has symbols or is not rational. */
export function exactly(expression: Expression): Rational | undefined {
  if (expression.kind === 'number') return expression.value;
  if (expression.kind !== 'apply') return undefined;
  const [a, b] = expression.of.map(exactly);
  if (a === undefined || (expression.of.length > 1 && b === undefined)) return undefined;
  switch (expression.op) {
    case '+':
      return plus(a, b!);
    case '*':
      return times(a, b!);
    case '/':
      return divided(a, b!);
    case '^':
      return power(a, b!);
    case 'factorial':
      return factorial(a);
    case 'binomial':
      return choose(a, b!);
    case 'root':
    case 'logarithm':
    case 'call':
      return undefined;
    default:
      return expression.op satisfies never;
  }
}

function choose(of: Rational, taken: Rational): Rational | undefined {
  if (of.over !== 1n || taken.over !== 1n || taken.top < 0n || taken.top > 300n || of.top < 0n) return undefined;
  let result = 1n;
  for (let i = 0n; i < taken.top; i++) result = (result * (of.top - i)) / (i + 1n);
  return { top: result, over: 1n };
}

export type Values = (symbol: string) => Complex;

const NOTHING = real(NaN);

/** NaN where there is no value: division by zero, sets, texts. */
export function valueOf(expression: Expression, values: Values): Complex {
  switch (expression.kind) {
    case 'number':
      return real(toNumber(expression.value));
    case 'symbol':
      return values(expression.name);
    case 'constant':
      return {
        pi: real(Math.PI),
        e: real(Math.E),
        i: { re: 0, im: 1 },
        infinity: real(Infinity),
      }[expression.name];
    case 'apply':
      return applied(expression, values);
    default:
      return NOTHING;
  }
}

function applied(expression: Extract<Expression, { readonly kind: 'apply' }>, values: Values): Complex {
  const exact = exactly(expression);
  if (exact !== undefined) return real(toNumber(exact));
  const [a = NOTHING, b] = expression.of.map((each) => valueOf(each, values));
  switch (expression.op) {
    case '+':
      return add(a, b!);
    case '*':
      return multiply(a, b!);
    case '/':
      return divide(a, b!);
    case '^':
      return raise(a, b!);
    case 'root':
      return root(a, b ?? real(2));
    case 'logarithm':
      return divide(logarithm(a), logarithm(b!));
    case 'factorial':
    case 'binomial':
      // A function of symbols that is not known: any fixed one will do, as both sides get the same.
      return real(Math.sin(a.re * 12.9898 + (b?.re ?? 0) * 78.233) * 4.37);
    case 'call':
      return (FUNCTIONS[expression.name ?? ''] ?? (() => NOTHING))(a);
    default:
      return expression.op satisfies never;
  }
}

/** The real root of a negative number where the degree is odd. */
function root(of: Complex, degree: Complex): Complex {
  if (of.im === 0 && of.re < 0 && degree.im === 0 && Math.abs(degree.re) % 2 === 1)
    return real(-((-of.re) ** (1 / degree.re)));
  if (of.im === 0 && of.re >= 0 && degree.re === 2) return real(Math.sqrt(of.re));
  return raise(of, divide(real(1), degree));
}

/** Names of symbols in an expression. */
export function symbolsIn(expression: Expression, found = new Set<string>()): Set<string> {
  if (expression.kind === 'symbol') found.add(expression.name);
  if (expression.kind === 'apply') for (const each of expression.of) symbolsIn(each, found);
  return found;
}
