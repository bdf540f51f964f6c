/** What loops and the helpers of loops are: loop, cycler() and joiner(). */
import { Thing, type Value } from '../value.js';
import { Failure, typeError } from './failure.js';
import { Callable, Lazy, Native, tupleOf, Undefined, type Named } from './objects.js';
import { listOf } from './items.js';
import { areSame } from './operators.js';
import type { Work } from './work.js';

/** The variable "loop". It reads one item ahead, and all of them where its length is asked for. */
export class Loop extends Callable {
  readonly type = 'LoopContext';
  readonly #source: Value;
  readonly #work: Work;
  readonly #isStrict: boolean;
  readonly #depth: number;
  readonly #recurse: ((items: Value, depth: number) => Value) | undefined;
  #items: Iterator<Value>;
  /** What is known of the items behind this one. */
  #ahead: Value[] = [];
  #isEnded = false;
  #index = -1;
  #before: Value | undefined;
  #current: Value | undefined;
  #changedFrom: readonly Value[] | undefined;

  constructor(
    source: Value,
    items: Iterator<Value>,
    work: Work,
    isStrict: boolean,
    depth: number,
    recurse: ((items: Value, depth: number) => Value) | undefined,
  ) {
    super();
    this.#source = source;
    this.#items = items;
    this.#work = work;
    this.#isStrict = isStrict;
    this.#depth = depth;
    this.#recurse = recurse;
  }

  override get code(): string {
    return `<LoopContext ${this.#index + 1}/${this.#length()}>`;
  }

  /** Goes to the next item; undefined behind the last. */
  next(): Value | undefined {
    if (!this.#has(1)) return undefined;
    this.#before = this.#current;
    this.#current = this.#ahead.shift();
    this.#index++;
    return this.#current;
  }

  #has(count: number): boolean {
    while (!this.#isEnded && this.#ahead.length < count) {
      const next = this.#items.next();
      this.#work.spend(1 / 8);
      if (next.done === true) this.#isEnded = true;
      else this.#ahead.push(next.value);
    }
    return this.#ahead.length >= count;
  }

  #length(): number {
    if (!(this.#source instanceof Lazy)) return listOf(this.#source, this.#work).length;
    this.#has(Infinity);
    return this.#index + 1 + this.#ahead.length;
  }

  #missing(reason: string): Undefined {
    return new Undefined(reason, this.#isStrict);
  }

  override attribute(name: string): Value | undefined {
    switch (name) {
      case 'index':
        return this.#index + 1;
      case 'index0':
        return this.#index;
      case 'first':
        return this.#index === 0;
      case 'last':
        return !this.#has(1);
      case 'length':
        return this.#length();
      case 'revindex':
        return this.#length() - this.#index;
      case 'revindex0':
        return this.#length() - this.#index - 1;
      case 'depth':
        return this.#depth + 1;
      case 'depth0':
        return this.#depth;
      case 'previtem':
        return this.#index === 0 ? this.#missing('there is no previous item') : this.#before;
      case 'nextitem':
        return this.#has(1) ? this.#ahead[0] : this.#missing('there is no next item');
      case 'cycle':
        return new Native((args) => {
          if (args.length === 0) throw typeError('no items for cycling given');
          return args[this.#index % args.length] ?? null;
        });
      case 'changed':
        return new Native((args) => this.#isChanged(args));
      default:
        return undefined;
    }
  }

  #isChanged(values: readonly Value[]): boolean {
    const last = this.#changedFrom;
    const isSame = last !== undefined && areSame(tupleOf(last), tupleOf(values), this.#work);
    if (!isSame) this.#changedFrom = values;
    return !isSame;
  }

  /** loop(items), in a loop that is recursive. */
  call(args: readonly Value[], named: Named): Value {
    if (this.#recurse === undefined)
      throw typeError("The loop must have the 'recursive' marker to be called recursively.");
    const [items = named.get('iterable')] = args;
    if (items === undefined || args.length > 1) throw typeError('loop() takes one argument');
    return this.#recurse(items, this.#depth + 1);
  }
}

/** cycler(…) */
export class Cycler extends Thing {
  readonly type = 'Cycler';
  readonly isTruthy = true;
  readonly #items: readonly Value[];
  #at = 0;

  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw new Failure('TemplateRuntimeError', 'at least one item has to be provided');
    this.#items = items;
  }

  get text(): string {
    return this.code;
  }

  get code(): string {
    throw typeError('a Cycler is shown by its place in memory');
  }

  attribute(name: string): Value | undefined {
    if (name === 'current') return this.#items[this.#at];
    if (name === 'pos') return this.#at;
    if (name === 'items') return tupleOf(this.#items);
    if (name === 'reset')
      return new Native(() => {
        this.#at = 0;
        return null;
      });
    if (name !== 'next') return undefined;
    return new Native(() => {
      const current = this.#items[this.#at] ?? null;
      this.#at = (this.#at + 1) % this.#items.length;
      return current;
    });
  }
}

/** joiner(…): nothing when it is called first, and the separator from then on. */
export class Joiner extends Callable {
  readonly type = 'Joiner';
  readonly #separator: Value;
  #isUsed = false;

  constructor(separator: Value) {
    super();
    this.#separator = separator;
  }

  override attribute(name: string): Value | undefined {
    return name === 'sep' ? this.#separator : name === 'used' ? this.#isUsed : undefined;
  }

  call(): Value {
    if (this.#isUsed) return this.#separator;
    this.#isUsed = true;
    return '';
  }
}
