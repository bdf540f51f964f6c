/** The keys of one filter of a task file, checked as they are read. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { FileRegex } from '../../python/fileRegex.js';
import { strip } from '../../python/text.js';
import { isInt, isList, isTruthy, type Dict, type Value } from '../../python/value.js';

export const INVALID = '[invalid]';
/** The pattern of a filter that has none of its own. */
export const PATTERN = '#### (\\-?[0-9\\.\\,]+)';

/** A filter's own keys. Throws UserError for one that is not there. */
export class Arguments {
  readonly #given: Dict;
  readonly #where: string;
  constructor(given: Dict, where: string) {
    this.#given = given;
    this.#where = where;
  }
  only(...names: string[]): void {
    for (const name of this.#given.keys())
      if (name !== 'function' && !names.includes(name)) throw this.fail(`has no setting ${quote(name)}`);
  }
  fail(problem: string): UserError {
    return new UserError(`${this.#where}: the filter ${quote(this.#given.get('function') ?? null)} ${problem}`);
  }
  get(name: string): Value {
    return this.#given.get(name) ?? null;
  }
  text(name: string, otherwise: string): string {
    const value = this.#given.get(name) ?? otherwise;
    if (typeof value !== 'string') throw this.fail(`needs text for ${name}`);
    return value;
  }
  isOn(name: string): boolean {
    return isTruthy(this.#given.get(name) ?? null);
  }
  texts(name: string): readonly string[] {
    const given = this.#given.get(name) ?? [];
    // Python's list of a text is its characters.
    const value = typeof given === 'string' ? [...given] : given;
    if (!isList(value) || !value.every((each) => typeof each === 'string')) throw this.fail(`needs texts for ${name}`);
    return value;
  }
  whole(name: string, otherwise: number): number {
    const value = this.#given.get(name) ?? otherwise;
    if (!isInt(value)) throw this.fail(`needs a whole number for ${name}`);
    return Number(value);
  }
}

export const compiled = (given: Arguments, pattern: string): FileRegex =>
  new FileRegex(pattern, (problem) => given.fail(problem));

/** One of the matches of a pattern, without space around it; undefined where there is none. */
export function selected(
  given: Arguments,
  found: readonly (string | readonly string[])[],
  select: number,
): string | undefined {
  if (found.length === 0) return undefined;
  const match = found.at(select);
  if (match === undefined) throw given.fail(`selects match ${select} of ${found.length}`);
  return strip(typeof match === 'string' ? match : (match.find((group) => group !== '') ?? ''));
}
