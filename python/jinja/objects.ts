/** What templates hold beside Python's plain values. */
import { repr, reprDict, reprText } from '../show.js';
import {
  isDict,
  isEqual,
  isInt,
  isList,
  numeric,
  Sequence,
  Shown,
  Thing,
  toInt,
  typeName,
  type PyValue,
} from '../value.js';
import { Failure, type FailureKind, typeError, type TemplateWork } from './work.js';

/** What stands for something without a value: most uses of it fail. */
export class Undefined extends Thing {
  readonly type = 'Undefined';
  /** Why there is no value. */
  readonly reason: string;
  readonly kind: FailureKind;
  /** Printing it, looping over it or asking whether it is true fails as well. */
  readonly isStrict: boolean;

  constructor(reason: string, isStrict: boolean, kind: FailureKind = 'UndefinedError') {
    super();
    this.reason = reason;
    this.isStrict = isStrict;
    this.kind = kind;
  }

  fail(): never {
    throw new Failure(this.kind, this.reason);
  }

  /** Throws Failure where even looking at it fails. */
  look(): void {
    if (this.isStrict) this.fail();
  }

  get isTruthy(): boolean {
    this.look();
    return false;
  }

  get text(): string {
    this.look();
    return '';
  }

  get code(): string {
    return 'Undefined';
  }

  override equals(other: PyValue): boolean {
    this.look();
    if (other instanceof Undefined) other.look();
    return other instanceof Undefined && other.isStrict === this.isStrict;
  }
}

/** How Jinja names the type of a value in messages. */
export const objectName = (value: PyValue): string => (value === null ? 'None' : `${typeName(value)} object`);

const HTML: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', "'": '&#39;', '"': '&#34;' };
export const escapeHtml = (text: string): string => text.replace(/[&<>'"]/g, (letter) => HTML[letter] ?? letter);

/** Text that is taken for HTML: what is joined with it is escaped. */
export class Markup extends Thing {
  readonly type = 'Markup';
  readonly text: string;

  constructor(text: string) {
    super();
    this.text = text;
  }

  get isTruthy(): boolean {
    return this.text !== '';
  }

  get code(): string {
    return `Markup(${reprText(this.text)})`;
  }

  override get letters(): number {
    return this.text.length + 8;
  }

  override equals(other: PyValue): boolean {
    return textOf(other) === this.text;
  }
}

/** isinstance(value, str): its letters. */
export const textOf = (value: PyValue | undefined): string | undefined =>
  typeof value === 'string' ? value : value instanceof Markup ? value.text : undefined;

/** What filters make piece by piece: it can be visited once. */
export class Lazy extends Thing {
  readonly type: string;
  readonly isTruthy = true;
  readonly items: Iterator<PyValue>;

  constructor(items: Iterator<PyValue>, type = 'generator') {
    super();
    this.items = items;
    this.type = type;
  }

  get text(): string {
    return this.code;
  }

  get code(): string {
    throw typeError(`a ${this.type} is shown by its place in memory; add |list`);
  }
}

/** A value that keys of dictionaries are told apart by: equal keys have the same. Throws Failure for no key. */
export function keyOf(value: PyValue): string | number | bigint | null | object {
  if (typeof value === 'string') return `s${value}`;
  if (value === null) return null;
  if (value instanceof Markup) return `s${value.text}`;
  const number = numeric(value);
  if (number !== undefined) {
    if (isInt(value)) return toInt(BigInt(value));
    return Number.isInteger(number) ? toInt(BigInt(number)) : number;
  }
  if (value instanceof Sequence && (value.type === 'tuple' || value.type === 'range')) {
    const parts = value.map((item) => {
      const key = keyOf(item);
      if (typeof key === 'object' && key !== null) throw typeError(`a tuple of ${typeName(item)} as a key`);
      return `${typeof key}${String(key).length}:${String(key)}`;
    });
    return `t${parts.join(',')}`;
  }
  if (value instanceof Undefined) {
    value.look();
    return Undefined;
  }
  if (value instanceof Shown) return `o${value.type}:${value.text}`;
  if (value instanceof Thing && !(value instanceof KeyedDict)) return value;
  throw typeError(`unhashable type: '${typeName(value)}'`);
}

type Key = ReturnType<typeof keyOf>;

/** A dictionary whose keys are not all text. */
class KeyedDict extends Thing {
  readonly type = 'dict';
  readonly #entries = new Map<Key, readonly [PyValue, PyValue]>();

  /** The first of equal keys and the last of their values stay, as in Python. */
  constructor(entries: Iterable<readonly [PyValue, PyValue]>) {
    super();
    for (const [key, value] of entries) {
      const found = keyOf(key);
      this.#entries.set(found, [this.#entries.get(found)?.[0] ?? key, value]);
    }
  }

  get size(): number {
    return this.#entries.size;
  }

  get(key: PyValue): PyValue | undefined {
    return this.#entries.get(keyOf(key))?.[1];
  }

  entries(): Iterable<readonly [PyValue, PyValue]> {
    return this.#entries.values();
  }

  get isTruthy(): boolean {
    return this.size > 0;
  }

  get text(): string {
    return this.code;
  }

  get code(): string {
    return reprDict(this.entries());
  }

  override get parts(): readonly PyValue[] {
    return [...this.entries()].flat();
  }

  override equals(other: PyValue): boolean {
    if (this === other) return true;
    if (!isDictionary(other) || sizeOf(other) !== this.size) return false;
    for (const [key, value] of this.entries()) {
      const found = entryOf(other, key);
      if (found === undefined || !isEqual(found, value)) return false;
    }
    return true;
  }
}

/** Either kind of dictionary. */
export type Dictionary = ReadonlyMap<string, PyValue> | KeyedDict;
export const isDictionary = (value: PyValue): value is Dictionary => isDict(value) || value instanceof KeyedDict;
export const sizeOf = (dict: Dictionary): number => dict.size;
export const entriesOf = (dict: Dictionary): Iterable<readonly [PyValue, PyValue]> => dict.entries();

/** The value of a key; undefined where there is none. Throws Failure for what cannot be a key. */
export function entryOf(dict: Dictionary, key: PyValue): PyValue | undefined {
  if (dict instanceof KeyedDict) return dict.get(key);
  const text = textOf(key);
  if (text !== undefined) return dict.get(text);
  keyOf(key);
  return undefined;
}

/** A dictionary of these entries. */
export function dictOf(entries: readonly (readonly [PyValue, PyValue])[], work: TemplateWork): Dictionary {
  const texts = new Map<string, PyValue>();
  for (const [key] of entries) work.walk(key);
  for (const [key, value] of entries) {
    if (typeof key !== 'string') return new KeyedDict(entries);
    texts.set(key, value);
  }
  return texts;
}

/** Arguments by name. */
export type Named = ReadonlyMap<string, PyValue>;

/** Something that can be called. */
export abstract class Callable extends Thing {
  readonly isTruthy = true;

  abstract call(args: readonly PyValue[], named: Named): PyValue;

  get text(): string {
    return this.code;
  }

  get code(): string {
    throw typeError(`a ${this.type} is shown by its place in memory`);
  }

  /** The value of one of its attributes; undefined where it has none. */
  attribute(_name: string): PyValue | undefined {
    return undefined;
  }
}

/** A function or a type of the environment. */
export class NativeCallable extends Callable {
  readonly type: string;
  readonly #shown: string | undefined;
  readonly #run: (args: readonly PyValue[], named: Named) => PyValue;

  /** `shown`: its repr(), where that holds no address. */
  constructor(run: (args: readonly PyValue[], named: Named) => PyValue, shown?: string) {
    super();
    this.#run = run;
    this.#shown = shown;
    this.type = shown === undefined ? 'function' : 'type';
  }

  override get code(): string {
    return this.#shown ?? super.code;
  }

  call(args: readonly PyValue[], named: Named): PyValue {
    return this.#run(args, named);
  }
}

/** namespace(): the one object whose fields a template can set. */
export class Namespace extends Thing {
  readonly type = 'Namespace';
  readonly isTruthy = true;
  readonly fields: Map<string, PyValue>;

  constructor(fields: Iterable<readonly [string, PyValue]>) {
    super();
    this.fields = new Map(fields);
  }

  get text(): string {
    return this.code;
  }

  get code(): string {
    return `<Namespace ${repr(this.fields)}>`;
  }

  override get parts(): readonly PyValue[] {
    return [...this.fields.values()];
  }

  override get letters(): number {
    let letters = 16;
    for (const name of this.fields.keys()) letters += name.length + 6;
    return letters;
  }
}

/** A group of groupby: a tuple whose parts have names as well. */
export class GroupOfItems extends Sequence {
  constructor(grouper: PyValue, list: readonly PyValue[]) {
    super('tuple', [grouper, list]);
  }
}

export const isTuple = (value: PyValue): value is Sequence => value instanceof Sequence && value.type === 'tuple';
export const isPlainList = (value: PyValue): value is readonly PyValue[] =>
  isList(value) && !(value instanceof Sequence);

/** A tuple of these items. */
export const tupleOf = (items: readonly PyValue[]): Sequence => new Sequence('tuple', items);
