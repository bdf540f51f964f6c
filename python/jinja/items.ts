/** Items and slices of values, and the loops over them. */
import { at as elementAt } from '../../system/at.js';
import {
  asInt,
  codePointLength,
  codePoints,
  isDict,
  isList,
  Sequence,
  Thing,
  toInt,
  typeName,
  type PyValue,
} from '../value.js';
import {
  Callable,
  entriesOf,
  entryOf,
  isDictionary,
  Lazy,
  Markup,
  type Named,
  NativeCallable,
  sizeOf,
  textOf,
  tupleOf,
  Undefined,
} from './objects.js';
import { areSame } from './operators.js';
import { Failure, typeError, valueError, type TemplateWork } from './work.js';

// Items of lists, texts and dictionaries.

/** As the sandbox of Jinja has it. */
const MAX_RANGE = 100_000;

/** What a loop over a value visits. Throws Failure. */
export function iterate(value: PyValue, work: TemplateWork): Iterator<PyValue> {
  if (value instanceof Lazy) return value.items;
  return listOf(value, work)[Symbol.iterator]();
}

/** list(value), without a copy of what is a list. Throws Failure. */
export function listOf(value: PyValue, work: TemplateWork): readonly PyValue[] {
  if (isList(value)) return value;
  const text = textOf(value);
  if (text !== undefined) {
    work.items(codePointLength(text));
    return codePoints(text);
  }
  if (isDictionary(value)) {
    work.items(sizeOf(value));
    return isDict(value) ? [...value.keys()] : Array.from(entriesOf(value), ([key]) => key);
  }
  if (value instanceof Lazy) {
    const items: PyValue[] = [];
    for (let next = value.items.next(); next.done !== true; next = value.items.next()) {
      work.spend(1 / 8);
      if (items.length % 1024 === 1023) work.items(items.length);
      items.push(next.value);
    }
    return items;
  }
  if (value instanceof Undefined) {
    value.look();
    return [];
  }
  throw typeError(`'${typeName(value)}' object is not iterable`);
}

/** len(value). Throws Failure. */
export function lengthOf(value: PyValue): number {
  const text = textOf(value);
  if (text !== undefined) return codePointLength(text);
  if (isList(value)) return value.length;
  if (isDictionary(value)) return sizeOf(value);
  if (value instanceof Undefined) {
    value.look();
    return 0;
  }
  if (value instanceof Thing && 'length' in value && typeof value.length === 'number') return value.length;
  throw typeError(`object of type '${typeName(value)}' has no len()`);
}

/** Views of dictionaries have no places. */
const hasPlaces = (value: PyValue): value is readonly PyValue[] =>
  isList(value) && (!(value instanceof Sequence) || value.type === 'tuple' || value.type === 'range');

/** value[key]; undefined where there is no such item, whatever the reason. */
export function itemAt(of: PyValue, key: PyValue): PyValue | undefined {
  if (of instanceof Undefined) return of.fail();
  if (isDictionary(of)) {
    try {
      return entryOf(of, key);
    } catch (error) {
      if (error instanceof Failure && error.kind === 'TypeError') return undefined;
      throw error;
    }
  }
  const text = textOf(of);
  const index = asInt(key);
  if (index === undefined || (text === undefined && !hasPlaces(of))) return undefined;
  const length = lengthOf(of);
  const at = Number(index) < 0 ? Number(index) + length : Number(index);
  if (at < 0 || at >= length) return undefined;
  if (text === undefined) return hasPlaces(of) ? of[at] : undefined;
  const letter = length === text.length ? text[at] : codePoints(text)[at];
  return letter === undefined || typeof of === 'string' ? letter : new Markup(letter);
}

/** value[from:to:step]. Throws Failure. */
export function slice(of: PyValue, from: PyValue, to: PyValue, step: PyValue, work: TemplateWork): PyValue {
  if (of instanceof Undefined) return of.fail();
  const text = textOf(of);
  if (text === undefined && !hasPlaces(of))
    throw typeError(isDictionary(of) ? "unhashable type: 'slice'" : `'${typeName(of)}' object is not subscriptable`);
  const whole = (value: PyValue): number | undefined => {
    if (value === null) return undefined;
    const number = asInt(value);
    if (number === undefined) throw typeError('slice indices must be integers or None or have an __index__ method');
    return Number(number);
  };
  const by = whole(step) ?? 1;
  if (by === 0) throw valueError('slice step cannot be zero');
  work.spend((text?.length ?? 0) / 128);
  const items: string | readonly PyValue[] =
    text === undefined ? (of as readonly PyValue[]) : /[\ud800-\udfff]/.test(text) ? listOf(text, work) : text;
  const clip = (place: number | undefined, otherwise: number): number => {
    if (place === undefined) return otherwise;
    const counted = place < 0 ? place + items.length : place;
    return by > 0 ? Math.min(Math.max(counted, 0), items.length) : Math.min(Math.max(counted, -1), items.length - 1);
  };
  const start = clip(whole(from), by > 0 ? 0 : items.length - 1);
  const end = clip(whole(to), by > 0 ? items.length : -1);
  const made = (part: string): PyValue => (of instanceof Markup ? new Markup(part) : part);
  if (by === 1 && typeof items === 'string') return made(items.slice(start, Math.max(start, end)));
  work.items(Math.max(0, Math.ceil((end - start) / by)));
  const taken: PyValue[] = [];
  for (let i = start; by > 0 ? i < end : i > end; i += by) taken.push(elementAt(items, i));
  if (text !== undefined) return made(taken.join(''));
  if (!(of instanceof Sequence)) return taken;
  if (of.type === 'tuple') return new Sequence('tuple', taken);
  const { first, stride } = rangeParts(of);
  return rangeOf(first + start * stride, first + end * stride, stride * by);
}

/** Start and step of a range, from how it is shown. */
export function rangeParts(range: Sequence): { first: number; last: number; stride: number } {
  const [first = 0, last = 0, stride = 1] = (range.shown.match(/-?\d+/g) ?? []).map(Number);
  return { first, last, stride };
}

function rangeOf(from: number, to: number, step: number): Sequence {
  const count = Math.max(0, Math.ceil((to - from) / step));
  const items = Array.from({ length: count }, (_, i) => from + i * step);
  return new Sequence('range', items, `range(${from}, ${to}${step === 1 ? '' : `, ${step}`})`);
}

/** range(…). Throws Failure. */
export function range(args: readonly PyValue[]): PyValue {
  if (args.length < 1 || args.length > 3)
    throw typeError(
      `range expected ${args.length < 1 ? 'at least 1 argument' : 'at most 3 arguments'}, got ${args.length}`,
    );
  const [from = 0, to = 0, step = 1] = (args.length === 1 ? [0, ...args] : args).map((arg) => {
    const whole = asInt(arg);
    if (whole === undefined) throw typeError(`'${typeName(arg)}' object cannot be interpreted as an integer`);
    return Number(whole);
  });
  if (step === 0) throw valueError('range() arg 3 must not be zero');
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (count > MAX_RANGE)
    throw new Failure(
      'OverflowError',
      `Range too big. The sandbox blocks ranges larger than MAX_RANGE (${MAX_RANGE}).`,
    );
  return rangeOf(from, to, step);
}

/** The place of an index among `length` items, as slices and the methods of texts and lists clip it. */
export function clipIndex(value: PyValue | undefined, otherwise: number, length: number): number {
  if (value === undefined || value === null) return otherwise;
  const whole = asInt(value);
  if (whole === undefined) throw typeError('slice indices must be integers or None or have an __index__ method');
  const at = Number(whole);
  return Math.max(0, at < 0 ? at + length : at);
}

/** Arguments in the order of their parameters; undefined for those that are not given. */
export type Args = readonly (PyValue | undefined)[];

/** Binds arguments to parameters; those whose name ends in "?" may be left out. Throws Failure. */
export function bind(
  what: string,
  parameters: readonly string[],
  args: readonly PyValue[],
  named: ReadonlyMap<string, PyValue>,
): Args {
  if (args.length > parameters.length)
    throw typeError(`${what} takes at most ${parameters.length} arguments (${args.length} given)`);
  const values: (PyValue | undefined)[] = [...args];
  for (const [name, value] of named) {
    const at = parameters.findIndex((parameter) => parameter.replace('?', '') === name);
    if (at < 0) throw typeError(`${what} got an unexpected keyword argument '${name}'`);
    if (at < args.length) throw typeError(`${what} got multiple values for argument '${name}'`);
    values[at] = value;
  }
  for (const [i, parameter] of parameters.entries())
    if (values[i] === undefined && !parameter.endsWith('?'))
      throw typeError(`${what} missing 1 required positional argument: '${parameter}'`);
  return values;
}

/** An argument as a whole number. Throws Failure. */
export function wholeOf(value: PyValue | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (value instanceof Undefined) return value.fail();
  const whole = asInt(value);
  if (whole === undefined) throw typeError(`'${typeName(value)}' object cannot be interpreted as an integer`);
  return Number(toInt(BigInt(whole)));
}

// What loops and the helpers of loops are: loop, cycler() and joiner().

/** The variable "loop". It reads one item ahead, and all of them where its length is asked for. */
export class Loop extends Callable {
  readonly type = 'LoopContext';
  readonly #source: PyValue;
  readonly #work: TemplateWork;
  readonly #isStrict: boolean;
  readonly #depth: number;
  readonly #recurse: ((items: PyValue, depth: number) => PyValue) | undefined;
  #items: Iterator<PyValue>;
  /** What is known of the items behind this one. */
  #ahead: PyValue[] = [];
  #isEnded = false;
  #index = -1;
  #before: PyValue | undefined;
  #current: PyValue | undefined;
  #changedFrom: readonly PyValue[] | undefined;

  constructor(
    source: PyValue,
    items: Iterator<PyValue>,
    work: TemplateWork,
    isStrict: boolean,
    depth: number,
    recurse: ((items: PyValue, depth: number) => PyValue) | undefined,
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
  next(): PyValue | undefined {
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

  override attribute(name: string): PyValue | undefined {
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
        return new NativeCallable((args) => {
          if (args.length === 0) throw typeError('no items for cycling given');
          return args[this.#index % args.length] ?? null;
        });
      case 'changed':
        return new NativeCallable((args) => this.#isChanged(args));
      default:
        return undefined;
    }
  }

  #isChanged(values: readonly PyValue[]): boolean {
    const last = this.#changedFrom;
    const isSame = last !== undefined && areSame(tupleOf(last), tupleOf(values), this.#work);
    if (!isSame) this.#changedFrom = values;
    return !isSame;
  }

  /** loop(items), in a loop that is recursive. */
  call(args: readonly PyValue[], named: Named): PyValue {
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
  readonly #items: readonly PyValue[];
  #at = 0;

  constructor(items: readonly PyValue[]) {
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

  attribute(name: string): PyValue | undefined {
    if (name === 'current') return this.#items[this.#at];
    if (name === 'pos') return this.#at;
    if (name === 'items') return tupleOf(this.#items);
    if (name === 'reset')
      return new NativeCallable(() => {
        this.#at = 0;
        return null;
      });
    if (name !== 'next') return undefined;
    return new NativeCallable(() => {
      const current = this.#items[this.#at] ?? null;
      this.#at = (this.#at + 1) % this.#items.length;
      return current;
    });
  }
}

/** joiner(…): nothing when it is called first, and the separator from then on. */
export class Joiner extends Callable {
  readonly type = 'Joiner';
  readonly #separator: PyValue;
  #isUsed = false;

  constructor(separator: PyValue) {
    super();
    this.#separator = separator;
  }

  override attribute(name: string): PyValue | undefined {
    return name === 'sep' ? this.#separator : name === 'used' ? this.#isUsed : undefined;
  }

  call(): PyValue {
    if (this.#isUsed) return this.#separator;
    this.#isUsed = true;
    return '';
  }
}
