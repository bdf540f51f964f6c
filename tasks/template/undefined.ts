/** What stands for something without a value. */
import { isDict, isList, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import type { Comparison } from './syntax.js';

/** Using it is an error, asking whether it is defined is none. */
export class Undefined {
  readonly what: string;
  /** Of an "if" without "else": printed, joined and looped over as nothing, also where names must be defined. */
  readonly isLenient: boolean;

  constructor(what: string, isLenient = false) {
    this.what = what;
    this.isLenient = isLenient;
  }
}

/** An "if" without "else" equals another and is in no list. */
export function compareUndefined(op: Comparison, left: Value | Undefined, right: Value | Undefined): boolean {
  for (const side of [left, right])
    if (side instanceof Undefined && !side.isLenient) throw new Failure(`${side.what} is not defined`);
  if (op === '==' || op === '!=') return (left instanceof Undefined && right instanceof Undefined) === (op === '==');
  const isIn = op === 'in' || op === 'not in';
  if (isIn && (right instanceof Undefined || isList(right) || isDict(right))) return op === 'not in';
  throw new Failure(`the value of "if" without "else" cannot be compared by "${op}"`);
}
