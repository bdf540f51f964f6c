/** Names that a template sets: a loop's names end with it. */
import type { Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { Undefined } from './undefined.js';

/** The object "loop" of one iteration. */
export class Loop {
  readonly #items: readonly Value[];
  readonly #at: number;

  constructor(items: readonly Value[], at: number) {
    this.#items = items;
    this.#at = at;
  }

  field(name: string): Value | Undefined {
    const { length } = this.#items;
    switch (name) {
      case 'index':
        return this.#at + 1;
      case 'index0':
        return this.#at;
      case 'revindex':
        return length - this.#at;
      case 'revindex0':
        return length - this.#at - 1;
      case 'first':
        return this.#at === 0;
      case 'last':
        return this.#at === length - 1;
      case 'length':
        return length;
      case 'depth':
        return 1;
      case 'depth0':
        return 0;
      case 'previtem':
        return this.#at === 0 ? new Undefined('loop.previtem of the first item') : this.#items[this.#at - 1]!;
      case 'nextitem':
        return this.#at === length - 1 ? new Undefined('loop.nextitem of the last item') : this.#items[this.#at + 1]!;
      default:
        throw new Failure(`loop.${name} is not supported`);
    }
  }

  /** loop.cycle(…) */
  cycle(values: readonly Value[]): Value {
    const value = values[this.#at % values.length];
    if (value === undefined) throw new Failure('loop.cycle() needs values');
    return value;
  }
}

export type Held = Value | Undefined | Loop;

export class Scope {
  readonly #names = new Map<string, Held>();
  readonly #outer: Scope | undefined;

  constructor(outer?: Scope) {
    this.#outer = outer;
  }

  /** Undefined (of JavaScript) for a name that is not set. */
  get(name: string): Held | undefined {
    const held = this.#names.get(name);
    return held === undefined ? this.#outer?.get(name) : held;
  }

  set(name: string, value: Held): void {
    this.#names.set(name, value);
  }
}
