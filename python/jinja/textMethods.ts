/** Python's methods of text. */
import {
  asInt,
  capitalize,
  codePointLength,
  codePoints,
  isList,
  isSpace,
  isTruthy,
  leftStrip,
  rightStrip,
  strip,
  stripCharacters,
  title,
  typeName,
  type PyValue,
} from '../value.js';
import { type Args, bind, clipIndex, listOf, wholeOf } from './items.js';
import { entriesOf, escapeHtml, isDictionary, isTuple, Markup, type Named, textOf, tupleOf } from './objects.js';
import { type FieldAccess, strFormat } from './percent.js';
import {
  countOf,
  join,
  replaceText,
  searchBackFor,
  searchFor,
  split,
  splitAtSpaces,
  splitAtSpacesFromRight,
  splitFromRight,
  splitLines,
  typeError,
  valueError,
  type TemplateWork,
} from './work.js';

interface Method {
  readonly parameters: readonly string[];
  /** Whether arguments may be given by name. */
  readonly isKeyword: boolean;
  /** What it makes of Markup is none. */
  readonly isPlain: boolean;
  readonly run: (text: string, args: Args, work: TemplateWork) => PyValue;
}

const entry = (names: string, parameters: string, run: Method['run'], { isKeyword = false, isPlain = false } = {}) =>
  names
    .split(' ')
    .map((name): [string, Method] => [
      name,
      { parameters: parameters === '' ? [] : parameters.split(' '), isKeyword, isPlain, run },
    ]);

function text(value: PyValue | undefined, what = 'argument'): string {
  const found = textOf(value);
  if (found === undefined) throw typeError(`${what} must be str, not ${typeName(value ?? null)}`);
  return found;
}

/** A change of letters, whose result is up to three times as long. */
const changed = (name: string, change: (text: string) => string, stepsOfLetter = 0) =>
  entry(name, '', (of, _args, work) => {
    work.text(of.length);
    work.spend(of.length * stepsOfLetter);
    const made = change(of);
    work.text(made.length);
    return made;
  });

/** Whether all letters are of a kind, and there are some. */
const all = (name: string, pattern: RegExp) =>
  entry(name, '', (of, _args, work) => {
    work.spend(of.length / 16);
    return pattern.test(of);
  });

const stripping = (name: string, spaces: (text: string) => string, sides: { left: boolean; right: boolean }) =>
  entry(name, 'chars?', (of, [chars], work) => {
    work.text(of.length);
    return chars === undefined || chars === null ? spaces(of) : stripCharacters(of, text(chars, `${name} arg`), sides);
  });

/** The part from `start` to `end`, which count code points; undefined where it starts behind the text. */
function within(of: string, start: PyValue | undefined, end: PyValue | undefined, work: TemplateWork) {
  if (start === undefined && end === undefined) return { part: of, before: 0 };
  const letters = listOf(of, work).map(String);
  const from = clipIndex(start, 0, letters.length);
  if (from > letters.length) return undefined;
  const to = clipIndex(end, letters.length, letters.length);
  return { part: letters.slice(from, Math.max(from, to)).join(''), before: from, isEmpty: to < from };
}

/** Where `of` holds `wanted` first or last; -1 where it does not. */
function placeOf(of: string, wanted: string, isLast: boolean, work: TemplateWork): number {
  if (wanted === '') return isLast ? of.length : 0;
  return isLast ? searchBackFor(wanted, work)(of) : searchFor(wanted, work)(of);
}

const finding = (name: string, isLast: boolean, isRequired: boolean) =>
  entry(
    name,
    'sub start? end?',
    (of, [sub, start, end], work) => {
      const wanted = text(sub);
      const found = within(of, start, end, work);
      const at = found === undefined || found.isEmpty === true ? -1 : placeOf(found.part, wanted, isLast, work);
      if (at >= 0 && found !== undefined) return found.before + codePointLength(found.part.slice(0, at));
      if (isRequired) throw valueError('substring not found');
      return -1;
    },
    { isPlain: true },
  );

const edge = (name: 'startswith' | 'endswith') =>
  entry(
    name,
    'prefix start? end?',
    (of, [prefix, start, end], work) => {
      const found = within(of, start, end, work);
      const options = prefix !== undefined && isTuple(prefix) ? [...prefix] : [prefix];
      work.spend(options.length / 8);
      return options.some((option) => {
        const wanted = textOf(option);
        work.spend((wanted?.length ?? 0) / 256);
        if (wanted === undefined)
          throw typeError(`${name} first arg must be str or a tuple of str, not ${typeName(option ?? null)}`);
        if (found === undefined || found.isEmpty === true) return false;
        return name === 'startswith' ? found.part.startsWith(wanted) : found.part.endsWith(wanted);
      });
    },
    { isPlain: true },
  );

const splitting = (
  name: string,
  at: (of: string, separator: string, count: number, work: TemplateWork) => string[],
  atSpaces: (of: string, count: number, work: TemplateWork) => string[],
) =>
  entry(
    name,
    'sep? maxsplit?',
    (of, [separator, most], work) => {
      const count = wholeOf(most, -1);
      if (separator === undefined || separator === null) return atSpaces(of, count, work);
      const wanted = text(separator, 'sep');
      if (wanted === '') throw valueError('empty separator');
      return at(of, wanted, count, work);
    },
    { isKeyword: true },
  );

const partition = (name: string, isLast: boolean) =>
  entry(name, 'sep', (of, [separator], work) => {
    const wanted = text(separator);
    if (wanted === '') throw valueError('empty separator');
    work.text(of.length);
    const at = placeOf(of, wanted, isLast, work);
    if (at < 0) return tupleOf(isLast ? ['', '', of] : [of, '', '']);
    return tupleOf([of.slice(0, at), wanted, of.slice(at + wanted.length)]);
  });

const padding = (name: string, left: (missing: number, width: number) => number) =>
  entry(name, 'width fillchar?', (of, [width, fill], work) => {
    const wanted = wholeOf(width, 0);
    const letter = fill === undefined ? ' ' : text(fill, 'The fill character');
    if (codePointLength(letter) !== 1) throw typeError('The fill character must be exactly one character long');
    const missing = wanted - codePointLength(of);
    if (missing <= 0) return of;
    work.text(of.length + missing * letter.length);
    const before = left(missing, wanted);
    return letter.repeat(before) + of + letter.repeat(missing - before);
  });

function zeroFilled(of: string, [width]: Args, work: TemplateWork): string {
  const missing = wholeOf(width, 0) - codePointLength(of);
  if (missing <= 0) return of;
  work.text(of.length + missing);
  const sign = /^[-+]/.exec(of)?.[0] ?? '';
  return sign + '0'.repeat(missing) + of.slice(sign.length);
}

function expandTabs(of: string, [size]: Args, work: TemplateWork): string {
  const width = wholeOf(size, 8);
  let column = 0;
  const pieces: string[] = [];
  work.items(of.length);
  for (const letter of of) {
    if (letter === '\t') {
      const count = width > 0 ? width - (column % width) : 0;
      work.text(count);
      pieces.push(' '.repeat(count));
      column += count;
    } else {
      pieces.push(letter);
      column = letter === '\n' || letter === '\r' ? 0 : column + 1;
    }
  }
  return join(pieces, '', work);
}

const swapped = (of: string): string =>
  Array.from(of, (letter) => {
    const lower = letter.toLowerCase();
    return lower === letter ? letter.toUpperCase() : lower;
  }).join('');

/** Upper-case letters begin words, others follow. */
function isTitle(of: string): boolean {
  let isInWord = false,
    hasCased = false;
  for (const letter of of) {
    const isUpper = /[\p{Lu}\p{Lt}]/u.test(letter),
      isLower = /\p{Lowercase}/u.test(letter);
    if ((isUpper && isInWord) || (isLower && !isInWord)) return false;
    isInWord = isUpper || isLower;
    hasCased ||= isInWord;
  }
  return hasCased;
}

const METHODS: ReadonlyMap<string, Method> = new Map<string, Method>(
  [
    stripping('strip', strip, { left: true, right: true }),
    stripping('lstrip', leftStrip, { left: true, right: false }),
    stripping('rstrip', rightStrip, { left: false, right: true }),
    changed('capitalize', capitalize),
    changed('title', title, 1 / 8),
    changed('lower', (of) => of.toLowerCase()),
    changed('upper', (of) => of.toUpperCase()),
    changed('casefold', (of) => of.toUpperCase().toLowerCase()),
    changed('swapcase', swapped, 1 / 8),
    all('isalpha', /^\p{L}+$/u),
    all(
      'isdigit',
      /^[\p{Nd}\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490]+$/u,
    ),
    all('isdecimal', /^\p{Nd}+$/u),
    all('isnumeric', /^\p{N}+$/u),
    all('isalnum', /^[\p{L}\p{N}]+$/u),
    all('isascii', /^[\0-\x7f]*$/),
    all('isprintable', /^(?:[^\p{C}\p{Zl}\p{Zp}\p{Zs}]| )*$/u),
    all('isidentifier', /^[\p{XID_Start}_][\p{XID_Continue}]*$/u),
    all('islower', /^(?=[^]*\p{Lowercase})[^\p{Lu}\p{Lt}\p{Uppercase}]*$/u),
    all('isupper', /^(?=[^]*\p{Uppercase})[^\p{Ll}\p{Lt}\p{Lowercase}]*$/u),
    entry('isspace', '', isSpace),
    entry('istitle', '', (of, _args, work) => {
      work.spend(of.length / 8);
      return isTitle(of);
    }),
    finding('find', false, false),
    finding('rfind', true, false),
    finding('index', false, true),
    finding('rindex', true, true),
    entry(
      'count',
      'sub start? end?',
      (of, [sub, start, end], work) => {
        const wanted = text(sub);
        const found = within(of, start, end, work);
        if (found === undefined || found.isEmpty === true) return 0;
        return wanted === '' ? codePointLength(found.part) + 1 : countOf(found.part, wanted, Infinity, work);
      },
      { isPlain: true },
    ),
    edge('startswith'),
    edge('endswith'),
    entry('removeprefix', 'prefix', (of, [prefix]) => {
      const start = text(prefix);
      return of.startsWith(start) ? of.slice(start.length) : of;
    }),
    entry('removesuffix', 'suffix', (of, [suffix]) => {
      const end = text(suffix);
      return end !== '' && of.endsWith(end) ? of.slice(0, -end.length) : of;
    }),
    entry('replace', 'old new count?', (of, [old, by, count], work) =>
      replaceText(of, text(old), text(by), wholeOf(count, -1), work),
    ),
    splitting('split', split, splitAtSpaces),
    splitting('rsplit', splitFromRight, splitAtSpacesFromRight),
    entry(
      'splitlines',
      'keepends?',
      (of, [keeps], work) => splitLines(of, keeps !== undefined && isTruthy(keeps), work),
      { isKeyword: true },
    ),
    partition('partition', false),
    partition('rpartition', true),
    entry('join', 'iterable', (of, [items], work) => {
      if (items === undefined) return of;
      const texts = listOf(items, work).map((item, i) => {
        const part = textOf(item);
        if (part === undefined) throw typeError(`sequence item ${i}: expected str instance, ${typeName(item)} found`);
        return part;
      });
      return join(texts, of, work);
    }),
    padding('ljust', () => 0),
    padding('rjust', (missing) => missing),
    // As CPython rounds: the odd space goes to the left where the width is odd.
    padding('center', (missing, width) => Math.floor(missing / 2) + (missing & width & 1)),
    entry('zfill', 'width', zeroFilled),
    entry('expandtabs', 'tabsize?', expandTabs, { isKeyword: true }),
    entry('translate', 'table', (of, [table], work) => {
      if (table === undefined || !isDictionary(table)) throw typeError('translate takes a dictionary here');
      const by = new Map<string, string>();
      for (const [key, value] of entriesOf(table)) {
        const code = asInt(key);
        if (code === undefined) continue;
        const replacement = asInt(value);
        by.set(
          String.fromCodePoint(Number(code)),
          value === null ? '' : replacement === undefined ? text(value) : String.fromCodePoint(Number(replacement)),
        );
      }
      return join(
        codePoints(of).map((letter) => by.get(letter) ?? letter),
        '',
        work,
      );
    }),
  ].flat(),
);

export const isTextMethod = (name: string): boolean =>
  METHODS.has(name) || name === 'format' || name === 'format_map' || name === 'encode' || name === 'maketrans';

/** of.name(args), where `of` is text. What methods of Markup make is Markup, and what they are given is escaped. */
export function callTextMethod(
  of: string | Markup,
  name: string,
  args: readonly PyValue[],
  named: Named,
  access: FieldAccess,
): PyValue {
  const own = typeof of === 'string' ? of : of.text;
  const isMarkup = of instanceof Markup;
  if (name === 'format' || name === 'format_map') {
    const [mapping] = args;
    if (name === 'format_map' && (mapping === undefined || !isDictionary(mapping)))
      throw typeError('format_map() takes a dictionary');
    const given =
      name === 'format' || mapping === undefined || !isDictionary(mapping)
        ? named
        : new Map(Array.from(entriesOf(mapping), ([key, value]) => [textOf(key) ?? '', value] as const));
    const made = strFormat(own, name === 'format' ? args : [], given, access, isMarkup);
    return isMarkup ? new Markup(made) : made;
  }
  const method = METHODS.get(name);
  if (method === undefined) throw typeError(`str.${name}() is not supported`);
  // Most methods look at each letter once.
  access.work.spend(own.length / 128);
  const { parameters, isKeyword, isPlain, run } = method;
  const { work } = access;
  if (!isKeyword && named.size > 0) throw typeError(`str.${name}() takes no keyword arguments`);
  const bound = bind(`str.${name}()`, parameters, args, named);
  if (!isMarkup || isPlain) return run(own, bound, work);
  const escaped = bound.map((arg) =>
    typeof arg === 'string'
      ? escapeHtml(arg)
      : name === 'join' && arg !== undefined
        ? listOf(arg, work).map((item) => (item instanceof Markup ? item.text : escapeHtml(work.str(item))))
        : arg,
  );
  return marked(run(own, escaped, work));
}

/** Texts of a result as Markup. */
function marked(made: PyValue): PyValue {
  if (typeof made === 'string') return new Markup(made);
  if (isTuple(made)) return tupleOf(made.map(marked));
  return isList(made) ? made.map(marked) : made;
}
