/** Arguments of filters and methods. */
import type { Value } from '../../python/value.js';
import { Failure } from './failure.js';

/** Arguments in the order of parameters; undefined for those that are not given. */
export type Args = readonly (Value | undefined)[];

/** Arguments by place, and by name for `keywords`, which start with the same parameter. Throws Failure. */
export function bound<T>(
  what: string,
  parameters: readonly string[],
  keywords: readonly string[],
  args: readonly T[],
  named: ReadonlyMap<string, T>,
): readonly (T | undefined)[] {
  if (args.length > parameters.length)
    throw new Failure(`${what} takes at most ${parameters.length} arguments here, not ${args.length}`);
  const values: (T | undefined)[] = [...args];
  for (const [name, value] of named) {
    const at = keywords.indexOf(name);
    if (at < 0 || at < args.length) throw new Failure(`${what} has no argument "${name}" here`);
    values[at] = value;
  }
  return values;
}
