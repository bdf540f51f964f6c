/** The bounds within which one template is evaluated. Each value's size is checked before the value is made. */
import { repr, str } from '../show.js';
import { isDict, isList, Thing, type Value } from '../value.js';
import { Failure } from './failure.js';

/** Deepest nesting of values, so that walks through them fit on the stack. */
const MAX_NESTING = 250;
/** Milliseconds that all regular expressions of one evaluation may take. */
const MAX_MATCHING = 2000;
/** Longest text that a template may make, in UTF-16 units. */
export const MAX_TEXT = 1 << 24;
/** Longest list that a template may make. */
const MAX_ITEMS = 1 << 20;
/** Deepest nesting of expressions, calls and blocks that are being evaluated. */
const MAX_DEPTH = 400;

export class Work {
  readonly #maxSteps: number;
  #steps = 0;
  #matching = 0;
  #depth = 0;

  constructor(maxSteps: number) {
    this.#maxSteps = maxSteps;
  }

  /** A step is about the time that 64 letters take. */
  spend(steps = 1): void {
    this.#steps += steps;
    if (this.#steps > this.#maxSteps) throw new Failure('limit', `more than ${this.#maxSteps} steps`);
  }

  /** Around everything that a template can nest. */
  nested<T>(action: () => T): T {
    if (++this.#depth > MAX_DEPTH) throw new Failure('limit', `the template nests more than ${MAX_DEPTH} deep`);
    const value = action();
    this.#depth--;
    return value;
  }

  /** Before a text of `length` is made. */
  text(length: number): void {
    if (length > MAX_TEXT) throw new Failure('limit', `a result is longer than ${MAX_TEXT} characters`);
    this.spend(length / 128);
  }

  /** Before a list of `count` items is made. */
  items(count: number): void {
    if (count > MAX_ITEMS) throw new Failure('limit', `a result has more than ${MAX_ITEMS} items`);
    this.spend(count / 8);
  }

  /** Runs something that matches regular expressions. */
  matching<T>(match: () => T): T {
    this.spend(64);
    const start = performance.now();
    const found = match();
    this.#matching += performance.now() - start;
    if (this.#matching > MAX_MATCHING)
      throw new Failure('limit', `regular expressions take more than ${MAX_MATCHING / 1000} s`);
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
    if (depth >= MAX_NESTING) throw new Failure('limit', `a value nests more than ${MAX_NESTING} deep`);
    let letters = 2;
    if (value instanceof Thing) {
      this.spend(value.letters / 16);
      letters = value.letters;
      for (const part of value.parts) letters += this.walk(part, depth + 1) + 3;
    } else if (isList(value)) for (const item of value) letters += this.walk(item, depth + 1) + 2;
    else if (isDict(value)) for (const [key, item] of value) letters += key.length + this.walk(item, depth + 1) + 6;
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

  /** repr(value) */
  repr(value: Value): string {
    this.text(this.walk(value));
    const text = repr(value);
    this.text(text.length);
    return text;
  }
}
