/** Jinja's filters of texts. */
import { asInt, codePointLength, codePoints, isTruthy, PYTHON_SPACE, strip, typeName, type PyValue } from '../value.js';
import { stripTags } from './attributes.js';
import { fixedDigits } from './format.js';
import { lengthOf, wholeOf } from './items.js';
import { type FilterContext, filter, freeFilter, items, type NamedFilter, plainText, softText } from './listFilters.js';
import { entriesOf, escapeHtml, isDictionary, Markup, textOf, tupleOf, Undefined } from './objects.js';
import { percentFormat } from './percent.js';
import { callTextMethod } from './textMethods.js';
import { floatNumber } from './valueFilters.js';
import { Failure, join, replaceText, splitFromRight, splitLines, typeError, valueError } from './work.js';

/** A filter that is a method of text. */
const method = (name: string, parameters = '', methodName = name) =>
  filter(name, parameters, (value, args, context) =>
    callTextMethod(
      softText(value, context),
      methodName,
      args.filter((arg) => arg !== undefined),
      new Map(),
      context,
    ),
  );

const BETWEEN = new RegExp(`([-${PYTHON_SPACE}({[<]+)`);

/** Jinja's own title case: words end at white space, hyphens and opening brackets only. */
const titled = (text: string): string =>
  text
    .split(BETWEEN)
    .map((word) => {
      const [first = ''] = word;
      return first.toUpperCase() + word.slice(first.length).toLowerCase();
    })
    .join('');

const html = (value: PyValue, context: FilterContext): Markup => {
  if (value instanceof Markup) return value;
  const text = context.work.str(value);
  context.work.text(6 * text.length);
  return new Markup(escapeHtml(text));
};

/** A value that must be text already. */
function textIn(value: PyValue): string {
  if (value instanceof Undefined) return value.fail();
  const text = textOf(value);
  if (text === undefined) throw typeError(`'${typeName(value)}' is no text`);
  return text;
}

function indented(value: PyValue, width: PyValue, isFirst: boolean, isBlank: boolean, context: FilterContext): PyValue {
  const { work } = context;
  const text = textIn(value);
  const spaces = wholeIfNumber(width);
  work.text(spaces ?? 0);
  const indent = spaces === undefined ? textIn(width) : ' '.repeat(Math.max(0, spaces));
  const lines = splitLines(`${text}\n`, false, work);
  work.text(text.length + lines.length * indent.length);
  const made = lines.map((line, i) => (i === 0 || (line === '' && !isBlank) ? line : indent + line));
  const result = (isFirst ? indent : '') + join(made, '\n', work);
  return value instanceof Markup ? new Markup(result) : result;
}

const wholeIfNumber = (value: PyValue): number | undefined => {
  const whole = asInt(value);
  return whole === undefined ? undefined : Number(whole);
};

function truncate(
  value: PyValue,
  length: number,
  kills: boolean,
  end: string,
  leeway: number,
  context: FilterContext,
): PyValue {
  if (length < codePointLength(end)) throw valueError(`expected length >= ${codePointLength(end)}, got ${length}`);
  if (leeway < 0) throw valueError(`expected leeway >= 0, got ${leeway}`);
  if (lengthOf(value) <= length + leeway) return value;
  const letters = codePoints(textIn(value));
  context.work.items(letters.length);
  const cut = letters.slice(0, length - codePointLength(end)).join('');
  return (kills ? cut : (splitFromRight(cut, ' ', 1, context.work)[0] ?? '')) + end;
}

const SPACE = '[\\t\\n\\v\\f\\r ]';
/** Chunks of a line: white space, dashes between words, and words, which end behind hyphens. */
const CHUNK = new RegExp(
  `(${SPACE}+|(?<=[\\p{L}\\p{N}_!"'&.,?])-{2,}(?=[\\p{L}\\p{N}_])|[^\\t\\n\\v\\f\\r ]+?(?:` +
    `-(?:(?<=[\\p{L}_]{2}-)|(?<=[\\p{L}_]-[\\p{L}\\p{N}_!"'&.,?]-))(?=[\\p{L}_]-?[\\p{L}_])|` +
    `(?=${SPACE}|$)|(?<=[\\p{L}\\p{N}_!"'&.,?])(?=-{2,}[\\p{L}\\p{N}_])))`,
  'u',
);

/** Lines of at most `width` letters, as Python's textwrap.wrap() breaks them. */
function wrapped(
  line: string,
  width: number,
  breaksLong: boolean,
  breaksHyphens: boolean,
  context: FilterContext,
): string[] {
  const { work } = context;
  const parts = line.split(breaksHyphens ? CHUNK : new RegExp(`(${SPACE}+)`)).filter((part) => part !== '');
  const chunks = parts.map((part) => codePoints(part)).toReversed();
  const isSpaces = (chunk: readonly string[]): boolean => strip(chunk.join('')) === '';
  const lines: string[] = [];
  while (chunks.length > 0) {
    const current: string[][] = [];
    let length = 0;
    work.spend(1);
    if (lines.length > 0 && isSpaces(chunks.at(-1)!)) chunks.pop();
    while (chunks.length > 0 && length + chunks.at(-1)!.length <= width) {
      const chunk = chunks.pop()!;
      current.push(chunk);
      length += chunk.length;
    }
    const next = chunks.at(-1);
    if (next !== undefined && next.length > width) {
      if (breaksLong) {
        let end = width < 1 ? 1 : width - length;
        const hyphen = breaksHyphens && next.length > end ? next.lastIndexOf('-', end - 1) : -1;
        if (hyphen > 0 && end > 0 && next.slice(0, hyphen).some((letter) => letter !== '-')) end = hyphen + 1;
        work.spend(next.length / 16);
        current.push(next.slice(0, end));
        chunks[chunks.length - 1] = next.slice(end);
      } else if (current.length === 0) current.push(chunks.pop()!);
    }
    const last = current.at(-1);
    if (last !== undefined && isSpaces(last)) current.pop();
    if (current.length > 0) lines.push(current.flat().join(''));
  }
  return lines;
}

function wordCount(text: string, { work }: FilterContext): number {
  work.spend(text.length / 8);
  let count = 0;
  for (const _word of text.matchAll(/[\p{L}\p{N}_]+/gu)) count++;
  return count;
}

/** urllib.parse.quote() */
const quoted = (text: string, isQuery: boolean): string => {
  const safe = isQuery ? /[^A-Za-z0-9_.~-]/gu : /[^A-Za-z0-9_.~/-]/gu;
  const made = text.replace(safe, (letter) =>
    Array.from(Buffer.from(letter), (byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
  return isQuery ? made.replaceAll('%20', '+') : made;
};

function urlEncoded(value: PyValue, context: FilterContext): PyValue {
  const isPairs = isDictionary(value) || (textOf(value) === undefined && isIterable(value));
  const encoded = (part: PyValue, isQuery: boolean): string => {
    const text = plainText(part, context);
    context.work.text(12 * text.length);
    context.work.spend(text.length);
    return quoted(text, isQuery);
  };
  if (!isPairs) return encoded(value, false);
  const entries = isDictionary(value) ? Array.from(entriesOf(value), tupleOf) : items(value, context);
  return entries
    .map((entry) => {
      const [key, item, ...rest] = items(entry, context);
      if (key === undefined || item === undefined || rest.length > 0) throw valueError('urlencode needs pairs');
      return `${encoded(key, true)}=${encoded(item, true)}`;
    })
    .join('&');
}

const isIterable = (value: PyValue): boolean => typeof value === 'object' && value !== null && !('value' in value);

function fileSize(value: PyValue, isBinary: boolean): string {
  const bytes = floatNumber(value)?.value;
  if (bytes === undefined) throw valueError('could not convert to float');
  const base = isBinary ? 1024 : 1000;
  if (bytes === 1) return '1 Byte';
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  const letters = [...'kMGTPEZY'];
  let power = 2;
  while (power < letters.length + 1 && bytes >= base ** power) power++;
  const letter = letters[power - 2] ?? 'Y';
  const unit = isBinary ? `${letter.toUpperCase()}iB` : `${letter}B`;
  return `${fixedDigits((base * bytes) / base ** power, 1)} ${unit}`;
}

function xmlAttributes(value: PyValue, hasSpace: boolean, context: FilterContext): string {
  if (!isDictionary(value)) throw typeError(`'${typeName(value)}' object has no attribute 'items'`);
  const made = [...entriesOf(value)].flatMap(([key, item]) => {
    if (item === null || item instanceof Undefined) return [];
    const name = textOf(key);
    if (name === undefined) throw typeError('expected string or bytes-like object');
    if (/[\t-\r />=]/.test(name)) throw valueError(`Invalid character in attribute name: ${JSON.stringify(name)}`);
    return [`${html(name, context).text}="${html(item, context).text}"`];
  });
  return (hasSpace && made.length > 0 ? ' ' : '') + join(made, ' ', context.work);
}

const unsupported = (name: string): NamedFilter[] =>
  freeFilter(name, () => {
    throw new Failure('TemplateRuntimeError', `the filter "${name}" is not supported`);
  });

export const TEXT_FILTERS: readonly NamedFilter[] = [
  ...method('lower'),
  ...method('upper'),
  ...method('capitalize'),
  ...method('trim', 'chars?', 'strip'),
  ...filter('string', '', (value, _args, context) => softText(value, context)),
  ...filter('safe', '', (value, _args, context) =>
    value instanceof Markup ? value : new Markup(context.work.str(value)),
  ),
  ...filter('escape e', '', (value, _args, context) => html(value, context)),
  ...filter('forceescape', '', (value, _args, context) => html(plainText(value, context), context)),
  ...filter('striptags', '', (value, _args, context) => {
    const text = plainText(value, context);
    context.work.spend(text.length / 8);
    return stripTags(text);
  }),
  ...filter('title', '', (value, _args, context) => {
    const text = plainText(value, context);
    context.work.text(text.length);
    context.work.spend(text.length / 8);
    return titled(text);
  }),
  ...filter('wordcount', '', (value, _args, context) => wordCount(plainText(value, context), context)),
  ...filter('center', 'width?', (value, [width = 80], context) =>
    callTextMethod(softText(value, context), 'center', [width], new Map(), context),
  ),
  ...filter('replace', 'old new count?', (value, [old = null, by = null, count], context) =>
    replaceText(
      plainText(value, context),
      plainText(old, context),
      plainText(by, context),
      count === null ? -1 : wholeOf(count, -1),
      context.work,
    ),
  ),
  ...filter('indent', 'width? first? blank?', (value, [width = 4, first = false, blank = false], context) =>
    indented(value, width, isTruthy(first), isTruthy(blank), context),
  ),
  ...filter('truncate', 'length? killwords? end? leeway?', (value, [length, kills = false, end, leeway], context) =>
    truncate(
      value,
      wholeOf(length, 255),
      isTruthy(kills),
      end === undefined ? '...' : textIn(end),
      leeway === null ? 5 : wholeOf(leeway, 5),
      context,
    ),
  ),
  ...filter(
    'wordwrap',
    'width? break_long_words? wrapstring? break_on_hyphens?',
    (value, [width, breaksLong = true, between, breaksHyphens = true], context) => {
      const most = wholeOf(width, 79);
      const text = textIn(value);
      if (most <= 0 && text !== '') throw valueError(`invalid width ${most} (must be > 0)`);
      context.work.spend(text.length / 4);
      const lines = splitLines(text, false, context.work).map((line) =>
        join(
          wrapped(line, most, isTruthy(breaksLong), isTruthy(breaksHyphens), context),
          between === undefined || between === null ? '\n' : textIn(between),
          context.work,
        ),
      );
      return join(lines, between === undefined || between === null ? '\n' : textIn(between), context.work);
    },
  ),
  ...freeFilter('format', (value, args, context, named) => {
    if (args.length > 0 && named.size > 0)
      throw new Failure('FilterArgumentError', "can't handle positional and keyword arguments at the same time");
    const given = named.size > 0 ? new Map(named) : tupleOf(args.map((arg) => arg ?? null));
    return percentFormat(softText(value, context), given, context.work);
  }),
  ...filter('urlencode', '', (value, _args, context) => urlEncoded(value, context)),
  ...filter('filesizeformat', 'binary?', (value, [isBinary = false]) => fileSize(value, isTruthy(isBinary))),
  ...filter('xmlattr', 'autospace?', (value, [hasSpace = true], context) =>
    xmlAttributes(value, isTruthy(hasSpace), context),
  ),
  ...unsupported('urlize'),
  ...unsupported('random'),
];
