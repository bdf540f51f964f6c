/** The filter default, which alone takes what is not defined. */
import { isTruthy, type Value } from '../../python/value.js';
import { bound } from './arguments.js';
import { Failure } from './failure.js';
import { Undefined } from './undefined.js';

export const DEFAULTS: ReadonlySet<string> = new Set(['default', 'd']);
const PARAMETERS: readonly string[] = ['default_value', 'boolean'];

/** of|default(default_value, boolean): with `boolean`, it also stands for what counts as false. Throws Failure. */
export function defaulted(
  of: Value | Undefined,
  args: readonly (Value | Undefined)[],
  named: ReadonlyMap<string, Value | Undefined>,
): Value | Undefined {
  const [otherwise = '', isForFalse = false] = bound('the filter "default"', PARAMETERS, PARAMETERS, args, named);
  if (of instanceof Undefined) return otherwise;
  if (isForFalse instanceof Undefined) throw new Failure(`${isForFalse.what} is not defined`);
  return isTruthy(isForFalse) && !isTruthy(of) ? otherwise : of;
}
