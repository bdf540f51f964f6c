/** Jinja's filters and tests by name. */
import { repr } from '../show.js';
import { Float, isDict, isEqual, isInt, isList, isTruthy, numeric, Sequence, Shown, type PyValue } from '../value.js';
import { attributeOnly } from './attributes.js';
import { type Args, bind, lengthOf, wholeOf } from './items.js';
import {
  type FilterContext,
  filter,
  type JinjaFilter,
  LIST_FILTERS,
  type NamedFilter,
  plainText,
} from './listFilters.js';
import { Callable, isDictionary, isPlainList, keyOf, Lazy, Markup, type Named, textOf, Undefined } from './objects.js';
import { arithmetic, compare, compareText } from './operators.js';
import type { Comparison } from './syntax.js';
import { TEXT_FILTERS } from './textFilters.js';
import { callTextMethod } from './textMethods.js';
import { absolute, floatNumber, htmlJson, plainJson, regexReplace, round, wholeNumber } from './valueFilters.js';
import { Failure, type TemplateWork } from './work.js';

// Jinja's filters by name.

/** pprint writes longer values on several lines. */
const LINE = 80;

function printed(value: PyValue, { work }: FilterContext): string {
  const sorted = (part: PyValue): PyValue => {
    if (isPlainList(part)) return part.map(sorted);
    if (!isDict(part)) return part;
    return new Map([...part].toSorted(([a], [b]) => compareText(a, b)).map(([key, item]) => [key, sorted(item)]));
  };
  work.walk(value);
  const text = repr(sorted(value));
  if (text.length > LINE)
    throw new Failure('TemplateRuntimeError', `pprint of more than ${LINE} letters is not supported`);
  return text;
}

const OWN: readonly NamedFilter[] = [
  ...TEXT_FILTERS,
  ...LIST_FILTERS,
  ...filter('default d', 'default_value? boolean?', (value, [otherwise = '', isForFalse = false]) =>
    value instanceof Undefined || (isTruthy(isForFalse) && !isTruthy(value)) ? otherwise : value,
  ),
  ...filter('attr', 'name', (value, [name = null], context) => attributeOnly(value, plainText(name, context), context)),
  ...filter('int', 'default? base?', (value, [otherwise = 0, base], { work }) => {
    // Each digit multiplies all before it.
    work.spend(Math.min(textOf(value)?.length ?? 0, 1 << 13) ** 2 / 2048);
    return wholeNumber(value, wholeOf(base, 10)) ?? otherwise;
  }),
  ...filter('float', 'default?', (value, [otherwise = new Float(0)]) => floatNumber(value) ?? otherwise),
  ...filter('abs', '', absolute),
  ...filter('round', 'precision? method?', (value, [precision = 0, method = 'common'], { work }) =>
    round(value, precision, method, work),
  ),
  ...filter('pprint', '', (value, _args, context) => printed(value, context)),
];

/** Of transformers' environment. */
export const CHAT_FILTERS: ReadonlyMap<string, JinjaFilter> = new Map([
  ...OWN,
  ...filter('tojson', 'ensure_ascii? indent? separators? sort_keys?', (value, args, { work }) =>
    plainJson(value, args, work),
  ),
]);

/** Of the public harness' environment. */
export const TASK_FILTERS: ReadonlyMap<string, JinjaFilter> = new Map([
  ...OWN,
  ...filter('tojson', 'indent?', (value, [indent], { work }) => htmlJson(value, indent, work)),
  ...filter('regex_replace', 'pattern repl count?', (value, [pattern = null, by = null, count], { work }) =>
    regexReplace(value, pattern, by, wholeOf(count, 0), work),
  ),
]);

/** value|name(args); undefined if there is no such filter. Throws Failure. */
export function runFilter(
  filters: ReadonlyMap<string, JinjaFilter>,
  name: string,
  value: PyValue,
  args: readonly PyValue[],
  named: Named,
  context: FilterContext,
): PyValue | undefined {
  const found = filters.get(name);
  if (found === undefined) return undefined;
  context.work.spend();
  const bound = found.parameters === undefined ? args : bind(`${name}()`, found.parameters, args, named);
  return found.run(value, bound, context, named);
}

// Jinja's tests: what stands behind "is".

interface JinjaTest {
  readonly parameters: readonly string[];
  readonly run: (value: PyValue, args: Args, context: FilterContext) => boolean;
}

const test = (names: string, parameters: string, run: JinjaTest['run']): [string, JinjaTest][] =>
  names.split(' ').map((name) => [name, { parameters: parameters === '' ? [] : [parameters], run }]);

const comparison = (names: string, op: Comparison) =>
  test(names, 'other', (value, [other = null], { work }) => compare(op, value, other, work));

const remainderIs = (value: PyValue, by: PyValue, rest: number, { work }: FilterContext): boolean =>
  isEqual(arithmetic('%', value, by, work), rest);

const hasPlaces = (value: PyValue): boolean =>
  textOf(value) !== undefined ||
  isDictionary(value) ||
  (isList(value) && (!(value instanceof Sequence) || value.type === 'tuple' || value.type === 'range'));

const isCase = (name: 'islower' | 'isupper') =>
  test(
    name.slice(2),
    '',
    (value, _args, context) => callTextMethod(plainText(value, context), name, [], new Map(), context) === true,
  );

/** Whether Python's "is" holds: one object, or equal ones of which there is one each. */
const isSame = (value: PyValue, other: PyValue): boolean =>
  value === other || (value instanceof Float && value === other);

const TESTS: ReadonlyMap<string, JinjaTest> = new Map<string, JinjaTest>([
  ...test('defined', '', (value) => !(value instanceof Undefined)),
  ...test('undefined', '', (value) => value instanceof Undefined),
  ...test('none', '', (value) => value === null),
  ...test('string', '', (value) => textOf(value) !== undefined),
  ...test(
    'number',
    '',
    (value) => numeric(value) !== undefined || (value instanceof Shown && value.type === 'Decimal'),
  ),
  ...test('integer', '', isInt),
  ...test('float', '', (value) => value instanceof Float),
  ...test('boolean', '', (value) => typeof value === 'boolean'),
  ...test('true', '', (value) => value === true),
  ...test('false', '', (value) => value === false),
  ...test('mapping', '', isDictionary),
  ...test('sequence', '', (value) => (value instanceof Undefined ? !value.isStrict : hasPlaces(value))),
  ...test('iterable', '', (value) => {
    if (value instanceof Undefined) return lengthOf(value) === 0;
    return textOf(value) !== undefined || isList(value) || isDictionary(value) || value instanceof Lazy;
  }),
  ...test('callable', '', (value) => value instanceof Callable || value instanceof Undefined),
  ...test('escaped', '', (value) => value instanceof Markup),
  ...test('sameas', 'other', (value, [other = null]) => isSame(value, other)),
  ...test('odd', '', (value, _args, context) => remainderIs(value, 2, 1, context)),
  ...test('even', '', (value, _args, context) => remainderIs(value, 2, 0, context)),
  ...test('divisibleby', 'num', (value, [by = null], context) => remainderIs(value, by, 0, context)),
  ...isCase('islower'),
  ...isCase('isupper'),
  ...test('filter', '', (value, _args, { isKnown, work }) => isNamed(value, (name) => isKnown('filter', name), work)),
  ...test('test', '', (value, _args, { isKnown, work }) => isNamed(value, (name) => isKnown('test', name), work)),
  ...comparison('in', 'in'),
  ...comparison('== eq equalto', '=='),
  ...comparison('!= ne', '!='),
  ...comparison('< lt lessthan', '<'),
  ...comparison('<= le', '<='),
  ...comparison('> gt greaterthan', '>'),
  ...comparison('>= ge', '>='),
]);

function isNamed(value: PyValue, isKnown: (name: string) => boolean, work: TemplateWork): boolean {
  const name = textOf(value);
  if (name === undefined) {
    work.walk(value);
    keyOf(value);
  }
  return name !== undefined && isKnown(name);
}

export const isTest = (name: string): boolean => TESTS.has(name);

/** Whether the test `name` holds; undefined if there is none. Throws Failure. */
export function runTest(
  name: string,
  value: PyValue,
  args: readonly PyValue[],
  named: Named,
  context: FilterContext,
): boolean | undefined {
  const found = TESTS.get(name);
  if (found === undefined) return undefined;
  context.work.spend();
  return found.run(value, bind(`test_${name}()`, found.parameters, args, named), context);
}
