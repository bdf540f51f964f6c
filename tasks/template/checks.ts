/** Jinja's tests: what stands behind "is". */
import { Float, isDict, isInt, isList, numeric, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { arithmetic, compare } from './operators.js';
import { hasPlaces } from './sequences.js';
import type { Comparison } from './syntax.js';
import { Undefined } from './undefined.js';
import type { Work } from './work.js';

interface Check {
  readonly arguments: 0 | 1;
  /** What it says of an undefined name; an error where this is missing. */
  readonly ofUndefined?: boolean;
  readonly run: (value: Value, argument: Value, work: Work) => boolean;
}

const kind = (run: (value: Value) => boolean): Check => ({ arguments: 0, ofUndefined: false, run });
const number = (run: (value: Value, argument: Value, work: Work) => boolean, count: 0 | 1): Check => ({
  arguments: count,
  run,
});
const comparison = (op: Comparison): Check => ({
  arguments: 1,
  run: (value, argument, work) => compare(op, value, argument, work),
});

function remainder(value: Value, by: Value, work: Work): number {
  if (numeric(value) === undefined) throw new Failure(`${typeName(value)} is no number`);
  return numeric(arithmetic('%', value, by, work)) ?? 0;
}

const CHECKS: ReadonlyMap<string, Check> = new Map<string, Check>([
  ['defined', kind(() => true)],
  ['undefined', { arguments: 0, ofUndefined: true, run: () => false }],
  ['none', kind((value) => value === null)],
  ['string', kind((value) => typeof value === 'string')],
  ['number', kind((value) => numeric(value) !== undefined)],
  ['integer', kind(isInt)],
  ['float', kind((value) => value instanceof Float)],
  ['boolean', kind((value) => typeof value === 'boolean')],
  ['true', kind((value) => value === true)],
  ['false', kind((value) => value === false)],
  ['mapping', kind(isDict)],
  ['sequence', kind((value) => isDict(value) || hasPlaces(value))],
  ['iterable', number((value) => typeof value === 'string' || isDict(value) || isList(value), 0)],
  ['odd', number((value, _argument, work) => remainder(value, 2, work) === 1, 0)],
  ['even', number((value, _argument, work) => remainder(value, 2, work) === 0, 0)],
  ['divisibleby', number((value, by, work) => remainder(value, by, work) === 0, 1)],
  ['in', comparison('in')],
  ...(['eq', 'equalto'] as const).map((name) => [name, comparison('==')] as const),
  ['ne', comparison('!=')],
  ...(['lt', 'lessthan'] as const).map((name) => [name, comparison('<')] as const),
  ['le', comparison('<=')],
  ...(['gt', 'greaterthan'] as const).map((name) => [name, comparison('>')] as const),
  ['ge', comparison('>=')],
]);

/** The reason why `name` with so many arguments is no test here; undefined if it is one. */
export function checkProblem(name: string, count: number): string | undefined {
  const check = CHECKS.get(name);
  if (check === undefined) return `the test "is ${name}" is not supported; there are ${[...CHECKS.keys()].join(', ')}`;
  return check.arguments === count ? undefined : `the test "is ${name}" takes ${check.arguments} arguments`;
}

/** Whether the test `name`, which is known, holds. Throws Failure. */
export function runCheck(name: string, value: Value | Undefined, args: readonly Value[], work: Work): boolean {
  const problem = checkProblem(name, args.length);
  const check = CHECKS.get(name);
  if (problem !== undefined || check === undefined) throw new Failure(problem ?? name);
  if (!(value instanceof Undefined)) return check.run(value, args[0] ?? null, work);
  if (check.ofUndefined === undefined) throw new Failure(`${value.what} is not defined`);
  return check.ofUndefined;
}
