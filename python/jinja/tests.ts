/** Jinja's tests: what stands behind "is". */
import { Float, isEqual, isInt, isList, numeric, Sequence, Shown, type Value } from '../value.js';
import { plainText, type Context } from './filter.js';
import { bind, lengthOf, type Args } from './items.js';
import { Callable, isDictionary, keyOf, Lazy, Markup, textOf, Undefined, type Named } from './objects.js';
import { arithmetic, compare } from './operators.js';
import type { Comparison } from './syntax.js';
import { callTextMethod } from './textMethods.js';
import type { Work } from './work.js';

interface Test {
  readonly parameters: readonly string[];
  readonly run: (value: Value, args: Args, context: Context) => boolean;
}

const test = (names: string, parameters: string, run: Test['run']): [string, Test][] =>
  names.split(' ').map((name) => [name, { parameters: parameters === '' ? [] : [parameters], run }]);

const comparison = (names: string, op: Comparison) =>
  test(names, 'other', (value, [other = null], { work }) => compare(op, value, other, work));

const remainderIs = (value: Value, by: Value, rest: number, { work }: Context): boolean =>
  isEqual(arithmetic('%', value, by, work), rest);

const hasPlaces = (value: Value): boolean =>
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
const isSame = (value: Value, other: Value): boolean => value === other || (value instanceof Float && value === other);

const TESTS: ReadonlyMap<string, Test> = new Map<string, Test>([
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

function isNamed(value: Value, isKnown: (name: string) => boolean, work: Work): boolean {
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
  value: Value,
  args: readonly Value[],
  named: Named,
  context: Context,
): boolean | undefined {
  const found = TESTS.get(name);
  if (found === undefined) return undefined;
  context.work.spend();
  return found.run(value, bind(`test_${name}()`, found.parameters, args, named), context);
}
