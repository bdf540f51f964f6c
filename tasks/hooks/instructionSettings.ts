/** The settings of an instruction: its entry of a document's `kwargs`. */
import { isList, numeric, typeName, type Dict, type Value } from '../../python/value.js';
import { HookProblem } from './hook.js';

export class Settings {
  readonly #given: Dict;
  readonly #instruction: string;

  constructor(given: Dict, instruction: string) {
    this.#given = given;
    this.#instruction = instruction;
  }

  fail(problem: string): HookProblem {
    return new HookProblem(`${this.#instruction}: ${problem}`);
  }

  #get(name: string): Value {
    const value = this.#given.get(name) ?? null;
    if (value === null) throw this.fail(`${name} is missing`);
    return value;
  }

  text(name: string): string {
    const value = this.#get(name);
    if (typeof value !== 'string') throw this.fail(`${name}: expected text, found ${typeName(value)}`);
    return value;
  }

  number(name: string): number {
    const value = this.#get(name);
    const number = typeof value === 'boolean' ? undefined : numeric(value);
    if (number === undefined) throw this.fail(`${name}: expected a number, found ${typeName(value)}`);
    return number;
  }

  texts(name: string): readonly string[] {
    const value = this.#get(name);
    if (isList(value) && value.every((each) => typeof each === 'string')) return value;
    throw this.fail(`${name}: expected a list of texts`);
  }

  /** Compares a count with what the instruction says: `less than` or `at least` a number. */
  compare(relation: string, number: string): (count: number) => boolean {
    const asked = this.text(relation);
    const limit = this.number(number);
    if (asked === 'less than') return (count) => count < limit;
    if (asked === 'at least') return (count) => count >= limit;
    throw this.fail(`${relation}: expected "less than" or "at least"`);
  }
}
