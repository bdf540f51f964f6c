/** Texts of multiples. */
import { type Expression, GrammarError, type Regular } from '../grammar.js';
import { Automaton } from '../regular/automaton.js';
import { NOTHING as NO_TEXT } from '../regular/nodes.js';
import { Work } from '../work.js';
import { decimalSteps, fractionTexts, integerTexts } from './numbers.js';
import { choice, literal } from './regular.js';
import { either, EMPTY_EXPRESSION, inOrder, lexeme, type Rules } from './rules.js';
import { byteSet } from './regular.js';
import type { NumberShape } from './shapes.js';

const MAX_LISTED = 2_000;
const MAX_STATES = 20_000;
const STEPS = 2_000_000;
const MAX_PLACES = 12;

/** Throws GrammarError where the numbers are too large or too odd. */
export function multiplesExpression(shape: NumberShape, rules: Rules): Expression {
  const { kind, min, max, multipleOf, notMultipleOf } = shape;
  const [step] = multipleOf;
  if (step !== undefined && step.denominator !== 1) {
    if (notMultipleOf.length > 0) throw new GrammarError('Such a combination of multiples is not supported.');
    // 0.25 is 25 · 10^-2.
    const places = Array.from({ length: MAX_PLACES + 1 }, (_, i) => i).find((i) => 10 ** i % step.denominator === 0);
    const scaled = (step.numerator * 10 ** (places ?? 0)) / step.denominator;
    if (places === undefined || 10 ** places % scaled !== 0 || (scaled !== 1 && 10 ** places / scaled > MAX_LISTED))
      throw new GrammarError(`"multipleOf" of ${step.numerator / step.denominator} is not supported.`);
    const texts = decimalSteps(min, max, scaled, places);
    return lexeme(kind === 'fraction' ? { kind: 'and', of: [texts, fractionTexts(min, max)] } : texts);
  }
  const divisor = step?.numerator ?? 1;
  const isIn = (value: number): boolean => value % divisor === 0 && notMultipleOf.every((other) => value % other !== 0);
  if ((max - min) / divisor <= MAX_LISTED) {
    const listed: Regular[] = [];
    for (let value = Math.ceil(min / divisor) * divisor; value <= max; value += divisor)
      if (isIn(value)) listed.push(literal(String(value === 0 ? 0 : value)));
    return listed.length === 0 ? either() : lexeme(choice(...listed));
  }
  // Beyond, doubles are no longer every integer, and who reads them would see others.
  const bounds = integerTexts(Math.max(min, Number.MIN_SAFE_INTEGER), Math.min(max, Number.MAX_SAFE_INTEGER));
  return counted(bounds, [divisor, ...notMultipleOf], isIn, rules);
}

const lcm = (a: number, b: number): number => {
  const gcd = (x: number, y: number): number => (y === 0 ? x : gcd(y, x % y));
  return (a / gcd(a, b)) * b;
};

/** A rule for each state of the bounds' automaton and each remainder: digits are read from the first to the last. */
function counted(
  bounds: Regular,
  divisors: readonly number[],
  isIn: (remainder: number) => boolean,
  rules: Rules,
): Expression {
  const modulus = divisors.reduce(lcm);
  const work = new Work();
  work.begin(STEPS);
  const automaton = new Automaton(work);
  const known = new Map<string, number>();
  const queue: { readonly rule: number; readonly state: number; readonly remainder: number }[] = [];
  const ruleOf = (state: number, remainder: number): number => {
    const key = `${state} ${remainder}`;
    let rule = known.get(key);
    if (rule === undefined) {
      if (known.size >= MAX_STATES) throw new GrammarError('The number of "multipleOf" is too large.');
      known.set(key, (rule = rules.reserve()));
      queue.push({ rule, state, remainder });
    }
    return rule;
  };
  const start = ruleOf(automaton.of(bounds), 0);
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
    const { state, remainder } = next;
    const targets = new Map<number, number[]>();
    const options: Expression[] = automaton.isNullable[state] === true && isIn(remainder) ? [EMPTY_EXPRESSION] : [];
    for (const byte of [0x2d, ...Array.from({ length: 10 }, (_, i) => 0x30 + i)]) {
      const target = automaton.next(state, byte);
      if (target === NO_TEXT) continue;
      const digit = byte === 0x2d ? undefined : byte - 0x30;
      const rule = ruleOf(target, digit === undefined ? 0 : (remainder * 10 + digit) % modulus);
      const bytes = targets.get(rule);
      if (bytes === undefined) targets.set(rule, [byte]);
      else bytes.push(byte);
    }
    for (const [rule, bytes] of targets) {
      const letters = byteSet(...bytes.map((byte): [number, number] => [byte, byte]));
      options.push(inOrder(lexeme(letters), { kind: 'rule', rule }));
    }
    rules.set(next.rule, either(...options));
  }
  return { kind: 'rule', rule: start };
}
