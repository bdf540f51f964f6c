/** The bounds within which one template is evaluated. Each value's size is checked before the value is made. */
import { str } from '../../python/show.js';
import { isDict, isList, Sequence, Shown, type Value } from '../../python/value.js';
import { Failure } from './failure.js';

const MAX_STEPS = 1_000_000;
/** Deepest nesting of values, so that walks through them fit on the stack. */
const MAX_NESTING = 250;
/** Milliseconds that all regular expressions of one evaluation may take. */
const MAX_MATCHING = 2000;
/** Longest text that a template may make, in UTF-16 units. */
export const MAX_TEXT = 1 << 24;
/** Longest list that a template may make. */
export const MAX_ITEMS = 1 << 20;

export class Work {
  #steps = 0;
  #matching = 0;

  /** A step is about the time that 64 letters take. */
  spend(steps = 1): void {
    this.#steps += steps;
    if (this.#steps > MAX_STEPS) throw new Failure(`more than ${MAX_STEPS} steps`);
  }

  /** Before a text of `length` is made. */
  text(length: number): void {
    if (length > MAX_TEXT) throw new Failure(`a result is longer than ${MAX_TEXT} characters`);
    this.spend(length / 128);
  }

  /** Before a list of `count` items is made. */
  items(count: number): void {
    if (count > MAX_ITEMS) throw new Failure(`a result has more than ${MAX_ITEMS} items`);
    this.spend(count / 8);
  }

  /** Runs something that matches regular expressions. */
  matching<T>(match: () => T): T {
    this.spend(64);
    const start = performance.now();
    const found = match();
    this.#matching += performance.now() - start;
    if (this.#matching > MAX_MATCHING) throw new Failure(`regular expressions take more than ${MAX_MATCHING / 1000} s`);
    return found;
  }

  /**
   * Before something visits all parts of a value, each as often as it occurs: values can share parts, so that small
   * ones are seen as huge. Returns about the number of letters that str() makes of it, escapes left out.
   */
  walk(value: Value, depth = 0): number {
    this.spend(0.25);
    if (typeof value === 'string') {
      // Within other values, letters are looked at one by one.
      this.spend(value.length / (depth > 0 ? 16 : 64));
      return value.length + (depth > 0 ? 2 : 0);
    }
    if (typeof value === 'bigint') {
      const digits = value.toString(16).length;
      this.spend(digits / 8);
      return digits;
    }
    if (value instanceof Shown) {
      this.spend(value.letters / 16);
      return value.letters;
    }
    if (!isList(value) && !isDict(value)) return 1;
    if (depth >= MAX_NESTING) throw new Failure(`a value nests more than ${MAX_NESTING} deep`);
    if (value instanceof Sequence && value.type === 'generator')
      throw new Failure('what a filter yields cannot be shown or compared; add |list');
    let letters = 2;
    if (isList(value)) for (const item of value) letters += this.walk(item, depth + 1) + 2;
    else for (const [key, item] of value) letters += key.length + this.walk(item, depth + 1) + 6;
    return letters;
  }

  /** str(value) */
  str(value: Value): string {
    if (typeof value === 'string') return value;
    this.text(this.walk(value));
    const text = str(value);
    this.text(text.length);
    return text;
  }
}
