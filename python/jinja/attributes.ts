/** Attributes of values, as Jinja's immutable sandbox allows them. Nothing of JavaScript is reachable from them. */
import { asInt, Float, isList, Sequence, Thing, toInt, typeName, type PyValue } from '../value.js';
import { bind, clipIndex, itemAt, listOf, rangeParts } from './items.js';
import {
  Callable,
  type Dictionary,
  dictOf,
  entriesOf,
  entryOf,
  GroupOfItems,
  isDictionary,
  isPlainList,
  isTuple,
  Markup,
  type Named,
  Namespace,
  objectName,
  textOf,
  tupleOf,
  Undefined,
} from './objects.js';
import { areSame } from './operators.js';
import type { FieldAccess } from './percent.js';
import { callTextMethod, isTextMethod } from './textMethods.js';
import { typeError, valueError } from './work.js';

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '));
const LIST_METHODS = words('copy count index');
const TUPLE_METHODS = words('count index');
const DICT_METHODS = words('copy fromkeys get items keys values');
const INT_METHODS = words('as_integer_ratio bit_count bit_length conjugate');
const FLOAT_METHODS = words('as_integer_ratio conjugate hex is_integer');
const MARKUP_METHODS = words('striptags unescape');
/** What every object of Python has, and what reads parts of one: the sandbox refuses whatever begins so. */
const HIDDEN: ReadonlySet<string> = new Set(
  (
    'class delattr dir doc eq format ge getattribute getstate gt hash init init_subclass le lt ne new reduce ' +
    'reduce_ex repr setattr sizeof str subclasshook add contains getitem iter len mul'
  )
    .split(' ')
    .map((name) => `__${name}__`),
);
/** What would change a value: the sandbox refuses it. */
const CHANGES_LIST = words('append clear extend insert pop remove reverse sort');
const CHANGES_DICT = words('clear pop popitem setdefault update');

/** A method of a value. */
class BoundMethod extends Callable {
  readonly type = 'builtin_function_or_method';
  readonly #name: string;
  readonly #run: (args: readonly PyValue[], named: Named) => PyValue;

  constructor(name: string, run: (args: readonly PyValue[], named: Named) => PyValue) {
    super();
    this.#name = name;
    this.#run = run;
  }

  override get code(): string {
    throw typeError(`.${this.#name} is a method; call it: .${this.#name}(…)`);
  }

  call(args: readonly PyValue[], named: Named): PyValue {
    return this.#run(args, named);
  }
}

/** What has attributes of its own. */
export interface HasAttributes {
  attribute(name: string): PyValue | undefined;
}
const hasAttributes = (value: Thing): value is Thing & HasAttributes =>
  'attribute' in value && typeof value.attribute === 'function';

/** getattr(of, name); undefined where Python raises AttributeError. */
function attributeThere(of: PyValue, name: string, access: FieldAccess): PyValue | undefined {
  if (HIDDEN.has(name) || (isPlainList(of) && CHANGES_LIST.has(name)) || (isDictionary(of) && CHANGES_DICT.has(name)))
    return new Undefined(
      `access to attribute '${name}' of '${objectName(of).replace(/ object$/, '')}' object is unsafe.`,
      access.isStrict,
      'SecurityError',
    );
  const method = (run: (args: readonly PyValue[], named: Named) => PyValue): PyValue => new BoundMethod(name, run);
  const text = textOf(of);
  if (text !== undefined) {
    if (of instanceof Markup && MARKUP_METHODS.has(name))
      return method(() => {
        access.work.spend(text.length / 8);
        return name === 'striptags' ? stripTags(text) : unescapeHtml(text);
      });
    const own = of instanceof Markup ? of : text;
    return isTextMethod(name) ? method((args, named) => callTextMethod(own, name, args, named, access)) : undefined;
  }
  if (isDictionary(of))
    return DICT_METHODS.has(name) ? method((args, named) => callDictMethod(of, name, args, named, access)) : undefined;
  if (isList(of)) return attributeOfList(of, name, method, access);
  if (of instanceof Namespace) return of.fields.get(name);
  if (of instanceof Thing) return hasAttributes(of) ? of.attribute(name) : undefined;
  const whole = asInt(of);
  if (whole !== undefined) {
    if (name === 'real' || name === 'numerator') return whole;
    if (name === 'imag') return 0;
    if (name === 'denominator') return 1;
    return INT_METHODS.has(name) ? method((args) => callIntMethod(whole, name, args)) : undefined;
  }
  if (of instanceof Float) {
    if (name === 'real') return of;
    if (name === 'imag') return new Float(0);
    return FLOAT_METHODS.has(name) ? method((args) => callFloatMethod(of, name, args)) : undefined;
  }
  return undefined;
}

function attributeOfList(
  of: readonly PyValue[],
  name: string,
  method: (run: (args: readonly PyValue[], named: Named) => PyValue) => PyValue,
  access: FieldAccess,
): PyValue | undefined {
  if (of instanceof GroupOfItems) {
    if (name === 'grouper') return of[0];
    if (name === 'list') return of[1];
  }
  if (of instanceof Sequence && of.type === 'range') {
    const { first, last, stride } = rangeParts(of);
    if (name === 'start') return first;
    if (name === 'stop') return last;
    if (name === 'step') return stride;
    return TUPLE_METHODS.has(name) ? method((args, named) => callListMethod(of, name, args, named, access)) : undefined;
  }
  if (!isPlainList(of) && !isTuple(of)) return undefined;
  const names = isTuple(of) ? TUPLE_METHODS : LIST_METHODS;
  return names.has(name) ? method((args, named) => callListMethod(of, name, args, named, access)) : undefined;
}

const refuseNamed = (what: string, named: Named): void => {
  if (named.size > 0) throw typeError(`${what} takes no keyword arguments`);
};

function callListMethod(
  of: readonly PyValue[],
  name: string,
  args: readonly PyValue[],
  named: Named,
  { work }: FieldAccess,
): PyValue {
  refuseNamed(`${name}()`, named);
  if (name === 'copy') {
    bind('copy()', [], args, named);
    return of;
  }
  if (name === 'count') {
    const [value = null] = bind('count()', ['value'], args, named);
    work.spend(of.length / 8);
    return of.filter((item) => areSame(item, value, work)).length;
  }
  const [value = null, start, stop] = bind('index()', ['value', 'start?', 'stop?'], args, named);
  const from = clipIndex(start, 0, of.length),
    to = clipIndex(stop, of.length, of.length);
  work.spend(of.length / 8);
  const at = of.findIndex((item, i) => i >= from && i < to && areSame(item, value, work));
  if (at < 0) throw valueError('the value is not in the list');
  return at;
}

function callDictMethod(
  of: Dictionary,
  name: string,
  args: readonly PyValue[],
  named: Named,
  { work }: FieldAccess,
): PyValue {
  refuseNamed(`${name}()`, named);
  if (name === 'get') {
    const [key = null, otherwise = null] = bind('get()', ['key', 'default?'], args, named);
    work.walk(key);
    const found = entryOf(of, key);
    return found === undefined ? otherwise : found;
  }
  if (name === 'fromkeys') {
    const [keys = null, value = null] = bind('fromkeys()', ['iterable', 'value?'], args, named);
    return dictOf(
      listOf(keys, work).map((key) => [key, value]),
      work,
    );
  }
  bind(`${name}()`, [], args, named);
  work.items(of.size);
  if (name === 'copy') return of;
  const entries = [...entriesOf(of)];
  if (name === 'keys')
    return new Sequence(
      'dict_keys',
      entries.map(([key]) => key),
    );
  if (name === 'values')
    return new Sequence(
      'dict_values',
      entries.map(([, value]) => value),
    );
  return new Sequence('dict_items', entries.map(tupleOf));
}

function callIntMethod(of: number | bigint, name: string, args: readonly PyValue[]): PyValue {
  if (args.length > 0) throw typeError(`${name}() takes no arguments`);
  const size = BigInt(of) < 0n ? -BigInt(of) : BigInt(of);
  if (name === 'as_integer_ratio') return tupleOf([of, 1]);
  if (name === 'bit_length') return size === 0n ? 0 : size.toString(2).length;
  if (name === 'bit_count') return size.toString(2).replaceAll('0', '').length;
  return of;
}

function callFloatMethod(of: Float, name: string, args: readonly PyValue[]): PyValue {
  if (args.length > 0) throw typeError(`${name}() takes no arguments`);
  const { value } = of;
  if (name === 'is_integer') return Number.isInteger(value);
  if (name === 'conjugate') return of;
  if (name === 'hex' || !Number.isFinite(value)) throw typeError(`float.${name}() is not supported`);
  let scaled = value,
    shift = 0n;
  for (; !Number.isInteger(scaled); shift++) scaled *= 2;
  return tupleOf([toInt(BigInt(scaled)), toInt(1n << shift)]);
}

/** of.name: an attribute, else an item, else what says that there is none. Throws Failure. */
export function attributeOf(of: PyValue, name: string, access: FieldAccess): PyValue {
  if (of instanceof Undefined) return of.fail();
  const attribute = attributeThere(of, name, access);
  if (attribute !== undefined) return attribute;
  const item = itemAt(of, name);
  return item === undefined ? missing(of, name, access) : item;
}

/** of[key]: an item, else an attribute. Throws Failure. */
export function itemOf(of: PyValue, key: PyValue, access: FieldAccess): PyValue {
  const length = textOf(of)?.length;
  if (length === undefined) access.work.walk(key);
  else access.work.spend(length / 128);
  const found = itemAt(of, key);
  if (found !== undefined) return found;
  const name = textOf(key);
  const attribute = name === undefined ? undefined : attributeThere(of, name, access);
  return attribute === undefined ? missing(of, key, access) : attribute;
}

/** The filter attr: an attribute only. */
export function attributeOnly(of: PyValue, name: string, access: FieldAccess): PyValue {
  if (of instanceof Undefined) return of.fail();
  const attribute = attributeThere(of, name, access);
  return attribute === undefined ? missing(of, name, access) : attribute;
}

function missing(of: PyValue, key: PyValue, { isStrict, work }: FieldAccess): Undefined {
  const name = textOf(key);
  const isPlain = asInt(key) !== undefined || key instanceof Float;
  const reason =
    name === undefined
      ? `${objectName(of)} has no element ${isPlain ? work.repr(key) : typeName(key)}`
      : `'${objectName(of)}' has no attribute '${name.slice(0, 100)}'`;
  return new Undefined(reason, isStrict);
}

/** dict(…) */
export function makeDict(args: readonly PyValue[], named: Named, access: FieldAccess): PyValue {
  const { work } = access;
  if (args.length > 1) throw typeError(`dict expected at most 1 argument, got ${args.length}`);
  const [source] = args;
  const entries: (readonly [PyValue, PyValue])[] = [];
  if (source !== undefined && isDictionary(source)) entries.push(...entriesOf(source));
  else if (source instanceof Namespace) throw typeError("'Namespace' object is not iterable");
  else if (source !== undefined)
    for (const item of listOf(source, work)) {
      const [key, value, ...rest] = listOf(item, work);
      if (key === undefined || value === undefined || rest.length > 0)
        throw valueError('dictionary update sequence element has another length than 2');
      entries.push([key, value]);
    }
  work.items(entries.length);
  return dictOf([...entries, ...named], work);
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0' };

/** Markup.unescape() of numbers and the entities that everybody uses. */
const unescapeHtml = (text: string): string =>
  text.replace(
    /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(\w+));/g,
    (whole, decimal?: string, hex?: string, name?: string) => {
      if (name !== undefined) return (Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : undefined) ?? whole;
      const code = decimal === undefined ? Number.parseInt(hex ?? '', 16) : Number(decimal);
      return code > 0x10ffff ? whole : String.fromCodePoint(code);
    },
  );

/** Markup.striptags() */
export const stripTags = (text: string): string =>
  unescapeHtml(
    without(without(text, '<!--', '-->'), '<', '>')
      .trim()
      .split(/\s+/)
      .join(' '),
  );

/** The text without what is between the two marks, marks included, up to one that is not closed. */
function without(text: string, open: string, close: string): string {
  const pieces: string[] = [];
  let from = 0;
  for (let at = text.indexOf(open); at >= 0; at = text.indexOf(open, from)) {
    const end = text.indexOf(close, at);
    if (end < 0) break;
    pieces.push(text.slice(from, at));
    from = end + close.length;
  }
  return pieces.join('') + text.slice(from);
}
