/** Whether two answers are the same: by their form, else by their value. */
import { at as elementAt, zip } from '../../../system/at.js';
import {
  add,
  type Complex,
  difference,
  exactly,
  type MathExpression,
  isPercent,
  isSame,
  minus,
  negative,
  type Rational,
  real,
  type RelationSign,
  size,
  symbolsIn,
  toNumber,
  valueOf,
} from './values.js';

// Whether two expressions have the same value. Rational numbers are compared exactly. Others are evaluated at random
// points, which are the same each time: expressions that differ agree there with probability 0 (Schwartz, Zippel), and
// those that are equal differ by rounding alone.

const POINTS = 12;
/** Points at which both sides need a value. */
const NEEDED = 4;
const TOLERANCE = 1e-9;
const MAX_SYMBOLS = 30;

/** A number from 0 to 1 of a place and a name, by FNV-1a and a mixing step. */
function noise(seed: number, name: string): number {
  let hash = 0x811c9dc5 ^ seed;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x45d9f3b);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** Values of both signs, neither small nor large. */
const at =
  (point: number, isReal = true) =>
  (name: string): Complex => {
    const sign = noise(point + 100, name) < 0.4 ? -1 : 1;
    const re = sign * (0.35 + 2.3 * noise(point, name));
    return isReal ? real(re) : { re, im: 2 * noise(point + 200, name) - 1 };
  };

const isValue = ({ re, im }: Complex): boolean => Number.isFinite(re) && Number.isFinite(im);

/** Values of both sides where both have some; undefined where there are too few of such points. */
export function valuesOf(
  a: MathExpression,
  b: MathExpression,
  isReal = true,
): readonly (readonly [Complex, Complex])[] | undefined {
  const symbols = symbolsIn(b, symbolsIn(a));
  if (symbols.size > MAX_SYMBOLS) return undefined;
  const points = symbols.size === 0 ? 1 : POINTS;
  const found = Array.from(
    { length: points },
    (_, i) => [valueOf(a, at(i, isReal)), valueOf(b, at(i, isReal))] as const,
  ).filter(([left, right]) => isValue(left) && isValue(right));
  return found.length < Math.min(points, NEEDED) ? undefined : found;
}

function isNear(a: Complex, b: Complex): boolean {
  // Most are far apart, which is seen at once.
  const most = 1e-3 + Math.abs(a.re) + Math.abs(a.im) + Math.abs(b.re) + Math.abs(b.im);
  if (Math.abs(a.re - b.re) > TOLERANCE * most) return false;
  return size(add(a, negative(b))) <= TOLERANCE * Math.max(1e-3, size(a), size(b));
}

/** `isReal`: symbols stand for real numbers. */
export function hasSameValue(a: MathExpression, b: MathExpression, isReal = true): boolean {
  const [left, right] = [exactly(a), exactly(b)];
  if (left !== undefined && right !== undefined) return isSame(left, right);
  return valuesOf(a, b, isReal)?.every(([x, y]) => isNear(x, y)) ?? false;
}

/** What an expression is compared by with many others: its value, or those at points where symbols are complex. */
export type Sampled = Rational | readonly Complex[];

/** Undefined where it has too few values, which are at least as many as hasSameValue needs. */
export function sampled(expression: MathExpression): Sampled | undefined {
  const exact = exactly(expression);
  if (exact !== undefined) return exact;
  const symbols = symbolsIn(expression).size;
  if (symbols > MAX_SYMBOLS) return undefined;
  const points = symbols === 0 ? 1 : POINTS;
  const values = Array.from({ length: points }, (_, i) => valueOf(expression, at(i, false)));
  return values.filter(isValue).length < Math.min(points, NEEDED) ? undefined : values;
}

/** Of one value: symbols cancelled out, if there were any. */
const valueAt = (of: readonly Complex[], i: number): Complex => elementAt(of, of.length === 1 ? 0 : i);

export function isSameSampled(a: Sampled, b: Sampled): boolean {
  if ('top' in a) return 'top' in b ? isSame(a, b) : isSameSampled([real(toNumber(a))], b);
  if ('top' in b) return isSameSampled(a, [real(toNumber(b))]);
  const points = Math.max(a.length, b.length);
  let compared = 0;
  for (let i = 0; i < points; i++) {
    const [x, y] = [valueAt(a, i), valueAt(b, i)];
    if (!isValue(x) || !isValue(y)) continue;
    if (!isNear(x, y)) return false;
    compared++;
  }
  return compared >= Math.min(points, NEEDED);
}

/** Whether one is a multiple of the other by a constant, as both sides of equivalent equations are. */
export function isMultiple(a: MathExpression, b: MathExpression, needsPositive: boolean): boolean {
  const values = valuesOf(a, b);
  if (values === undefined) return false;
  const ratios = values
    .filter(([, y]) => size(y) > 1e-6)
    .map(([x, y]) => ({ re: x.re / y.re, isReal: x.im === 0 && y.im === 0 }));
  const [first] = ratios;
  if (first === undefined || ratios.length < Math.min(values.length, NEEDED)) return false;
  if (Math.abs(first.re) < 1e-6 || (needsPositive && first.re < 0)) return false;
  return ratios.every(({ re, isReal }) => isReal && Math.abs(re - first.re) <= TOLERANCE * Math.abs(first.re));
}

/** A real number with a point in it, or a percentage: it is compared after rounding to six decimals. */
function decimalOf(expression: MathExpression): boolean {
  if (expression.kind === 'number') return expression.isDecimal;
  return expression.kind === 'apply' && expression.op === '/' && decimalOf(elementAt(expression.of, 0));
}

const DECIMALS = 1e6;

/** The same value, where a decimal number may stand for one with more digits. */
export function isNumberLike(a: MathExpression, b: MathExpression): boolean {
  if (!(decimalOf(a) || decimalOf(b)) || symbolsIn(b, symbolsIn(a)).size > 0) return hasSameValue(a, b);
  const rounded = (each: MathExpression): number => {
    const exact = exactly(each);
    const value = exact === undefined ? valueOf(each, at(0)) : real(toNumber(exact));
    return value.im === 0 ? Math.round(value.re * DECIMALS) : NaN;
  };
  return rounded(a) === rounded(b);
}

// Whether an answer is the right one, as Math-Verify decides it: what is compared with what follows from the kinds of
// both. The right answer decides how much must be said: to x = 5 the answer 5 is enough.

type Relation = Extract<MathExpression, { readonly kind: 'relation' }>;
type RealInterval = Extract<MathExpression, { readonly kind: 'interval' }>;

const FLIPPED: Readonly<Record<RelationSign, RelationSign>> = {
  '=': '=',
  '!=': '!=',
  in: 'in',
  '<': '>',
  '>': '<',
  '<=': '>=',
  '>=': '<=',
};

const isRelation = (of: MathExpression): of is Relation => of.kind === 'relation';
const isEquation = (of: MathExpression): of is Relation =>
  isRelation(of) && of.signs.every((sign) => sign === '=' || sign === 'in');
const last = (of: Relation): MathExpression => of.sides.at(-1)!;

/** Symbols alone, their products, ratios and lengths, and points of them. */
function isSymbols(of: MathExpression): boolean {
  if (of.kind === 'apply') return (of.op === '*' || of.op === '/' || of.name === 'abs') && of.of.every(isSymbols);
  if (of.kind === 'tuple' || of.kind === 'interval') return of.items.every(isSymbols);
  return of.kind === 'symbol' || of.kind === 'text';
}
/** A name and its value. */
const isAssignment = (of: MathExpression): of is Relation => isEquation(of) && isSymbols(elementAt(of.sides, 0));

/** A word, or letters one after another; undefined for anything else. */
function wordOf(of: MathExpression): string | undefined {
  if (of.kind === 'text') return of.text.replace(/[()\s.]/g, '').toLowerCase();
  if (of.kind === 'symbol' || (of.kind === 'constant' && of.name.length === 1)) return of.name;
  if (of.kind !== 'apply' || of.op !== '*') return undefined;
  const parts = of.of.map(wordOf);
  return parts.includes(undefined) ? undefined : parts.join('').toLowerCase();
}

function isSameWord(a: MathExpression, b: MathExpression): boolean {
  const [left, right] = [wordOf(a), wordOf(b)];
  if (left === undefined || right === undefined) return false;
  const isOne = left.length === 1 && right.length === 1 && a.kind !== 'text' && b.kind !== 'text';
  return isOne ? left === right : left.toLowerCase() === right.toLowerCase();
}

/** Each of the one is among the other. */
function isSameSet(a: readonly MathExpression[], b: readonly MathExpression[]): boolean {
  return (
    a.every((item) => b.some((other) => isSameAnswer(item, other))) &&
    b.every((other) => a.some((item) => isSameAnswer(item, other)))
  );
}

const isSameList = (a: readonly MathExpression[], b: readonly MathExpression[]): boolean =>
  a.length === b.length && zip(a, b).every(([left, right]) => isSameAnswer(left, right));

const isOpen = ({ isOpen: [left, right] }: RealInterval): boolean => left && right;

const LISTS: ReadonlySet<MathExpression['kind']> = new Set(['set', 'tuple', 'interval', 'union']);

function isSameCollection(right: MathExpression, answer: MathExpression): boolean {
  if (right.kind === 'interval' && answer.kind === 'interval')
    return right.isOpen.every((open, i) => open === answer.isOpen[i]) && isSameList(right.items, answer.items);
  if (right.kind === 'union' && answer.kind === 'union') return isSameSet(right.items, answer.items);
  if (right.kind === 'union' || answer.kind === 'union') return false;
  // A point is written as an open interval is.
  if (right.kind === 'interval' && (answer.kind === 'set' || answer.kind === 'tuple'))
    return isOpen(right) && isSameList(right.items, answer.items);
  if (answer.kind === 'interval' && (right.kind === 'set' || right.kind === 'tuple'))
    return isOpen(answer) && isSameList(right.items, answer.items);
  if (right.kind === 'tuple' && (answer.kind === 'tuple' || answer.kind === 'set'))
    return isSameList(right.items, answer.items);
  const items = (of: MathExpression): readonly MathExpression[] =>
    of.kind === 'set' || of.kind === 'tuple' ? of.items : [of];
  if (right.kind === 'interval' || answer.kind === 'interval') return false;
  const [a, b] = [items(right), items(answer)];
  return isSameSet(a, b) || ([...a, ...b].some(isNamedPoint) && isSameSet(coordinates(a), coordinates(b)));
}

/** Several names with their values. */
const isNamedPoint = (of: MathExpression): boolean => of.kind === 'tuple' && of.items.every(isAssignment);
const coordinates = (of: readonly MathExpression[]): readonly MathExpression[] =>
  of.flatMap((each) => (each.kind === 'tuple' && isNamedPoint(each) ? each.items : [each]));

/** The values between the sides of x < b, a <= x < b and the like; of a length, values of both signs. */
function intervalOf({ sides, signs }: Relation): MathExpression | undefined {
  const infinity: MathExpression = { kind: 'constant', name: 'infinity' };
  const isLess = (sign: RelationSign | undefined): boolean => sign === '<' || sign === '<=';
  const isMore = (sign: RelationSign | undefined): boolean => sign === '>' || sign === '>=';
  const open = (sign: RelationSign | undefined): boolean => sign === '<' || sign === '>';
  const made = (a: MathExpression, b: MathExpression, left: boolean, right: boolean): RealInterval => ({
    kind: 'interval',
    items: [a, b],
    isOpen: [left, right],
  });
  const [a, b, c] = sides;
  const [first, second] = signs;
  if (sides.length === 3 && b !== undefined && isSymbols(b)) {
    const between =
      isLess(first) && isLess(second)
        ? made(a!, c!, open(first), open(second))
        : isMore(first) && isMore(second)
          ? made(c!, a!, open(second), open(first))
          : undefined;
    if (between === undefined || !isLength(b)) return between;
    const [low, high] = between.items;
    return { kind: 'union', items: [made(minus(high), minus(low), ...reversed(between.isOpen)), between] };
  }
  if (sides.length !== 2 || a === undefined || b === undefined) return undefined;
  if (!isSymbols(a) && !isSymbols(b)) return undefined;
  const [name, value, sign] = isSymbols(a) ? [a, b, first!] : [b, a, FLIPPED[first!]];
  if (isLess(sign))
    return isLength(name)
      ? made(minus(value), value, open(sign), open(sign))
      : made(minus(infinity), value, true, open(sign));
  return isMore(sign) && !isLength(name) ? made(value, infinity, open(sign), true) : undefined;
}

const isLength = (of: MathExpression): boolean => of.kind === 'apply' && of.name === 'abs';
const reversed = ([left, right]: readonly [boolean, boolean]): readonly [boolean, boolean] => [right, left];

/** Both are equivalent: their sides differ by a factor alone. */
function isSameStep(a: Relation, b: Relation, at: number): boolean {
  const of = ({ sides }: Relation): MathExpression => difference(elementAt(sides, at), elementAt(sides, at + 1));
  const [left, right] = [elementAt(a.signs, at), elementAt(b.signs, at)];
  if (left === '=' || left === '!=') return left === right && isMultiple(of(a), of(b), false);
  if (left === right) return isMultiple(of(a), of(b), true);
  return FLIPPED[left] === right && isMultiple(of(a), minus(of(b)), true);
}

function isSameRelation(a: Relation, b: Relation): boolean {
  const turned: Relation = {
    ...b,
    sides: [...b.sides].reverse(),
    signs: [...b.signs].reverse().map((s) => FLIPPED[s]),
  };
  return [b, turned].some(
    (other) => a.signs.length === other.signs.length && a.signs.every((_, at) => isSameStep(a, other, at)),
  );
}

function isSameMatrix(a: readonly (readonly MathExpression[])[], b: readonly (readonly MathExpression[])[]): boolean {
  return a.length === b.length && zip(a, b).every(([left, right]) => isSameList(left, right));
}

/** Infinities have no difference. */
const infinite = (of: MathExpression): number => {
  if (of.kind === 'constant' && of.name === 'infinity') return 1;
  const [factor, infinity] = of.kind === 'apply' && of.op === '*' ? of.of : [];
  return factor?.kind === 'number' && infinity?.kind === 'constant' && infinity.name === 'infinity'
    ? Math.sign(Number(factor.value.top))
    : 0;
};

/** `right`: the reference. */
export function isSameAnswer(right: MathExpression, answer: MathExpression): boolean {
  if (isRelation(right) && isRelation(answer)) {
    const ends = (of: Relation): Relation =>
      isAssignment(of)
        ? { kind: 'relation', sides: [elementAt(of.sides, 0), last(of)], signs: [of.signs.at(-1)!] }
        : of;
    const [a, b] = [ends(right), ends(answer)];
    if (isEquation(a) && isEquation(b) && a.signs.length === 1 && b.signs.length === 1) {
      const isNamed = isAssignment(a) && isAssignment(b) && isSameAnswer(elementAt(a.sides, 0), elementAt(b.sides, 0));
      if (isNamed && isSameAnswer(last(a), last(b))) return true;
    }
    if (isEquation(b) && !isEquation(a)) return isSameAnswer(a, last(b));
    return isSameRelation(a, b);
  }
  if (isEquation(answer) && !isRelation(right)) return isSameAnswer(right, last(answer));
  if (isAssignment(right) && !isRelation(answer)) return isSameAnswer(last(right), answer);
  if (isRelation(right)) {
    const values = LISTS.has(answer.kind) ? intervalOf(right) : undefined;
    return values !== undefined && isSameAnswer(values, answer);
  }
  if (isRelation(answer)) return false;
  if (LISTS.has(right.kind) || LISTS.has(answer.kind)) return isSameCollection(right, answer);
  if (right.kind === 'matrix' && answer.kind === 'matrix') return isSameMatrix(right.rows, answer.rows);
  if (right.kind === 'matrix' || answer.kind === 'matrix') return false;
  if (infinite(right) !== 0 || infinite(answer) !== 0) return infinite(right) === infinite(answer);
  return isSameWord(right, answer) || isNumberLike(right, answer);
}

/** Whether sympy's simplify() would find no difference between two expressions. */
export const isSameExpression = (a: MathExpression, b: MathExpression): boolean =>
  [a, b].every((each) => each.kind === 'number' || each.kind === 'symbol' || each.kind === 'apply') &&
  hasSameValue(a, b, false);

/** One is a percentage, and the other is the same without its sign. */
export function isSamePercentage(right: MathExpression, answer: MathExpression): boolean {
  if (isPercent(right) === isPercent(answer)) return false;
  const [percent, other] = isPercent(right) ? [right, answer] : [answer, right];
  return percent.kind === 'apply' && isSameAnswer(elementAt(percent.of, 0), other);
}
