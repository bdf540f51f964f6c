/** Python's "%" of texts, and str.format(). */
import { repr } from '../show.js';
import { asInt, codePointLength, codePoints, isList, numeric, typeName, type PyValue } from '../value.js';
import { floatDigits, formatValue, letterOf, pad, type Spec, wholeFor } from './format.js';
import { entryOf, escapeHtml, isDictionary, isTuple, Markup, type Named, textOf, Undefined } from './objects.js';
import { Failure, join, typeError, valueError, type TemplateWork } from './work.js';

/** A percent sign, key, flags, width, precision and type; what does not match is found by its missing type. */
const DIRECTIVE = /%(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\))?([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+)?)?[hlL]?([^])?/gu;
const HAS_POINT = /^%(?:\([^]*\))?[-+ #0]*(?:\*|\d+)?\./u;
const MAX_PRECISION = 5000;

/** left % right, where `left` is text. Throws Failure. */
export function percentFormat(left: PyValue, right: PyValue, work: TemplateWork): PyValue {
  const text = textOf(left) ?? '';
  const isMarkup = left instanceof Markup;
  const values = isTuple(right) ? right : [right];
  let next = 0;
  const take = (): PyValue => {
    if (next >= values.length) throw typeError('not enough arguments for format string');
    return values[next++] ?? null;
  };
  const shown = (made: string): string => (isMarkup ? escapeHtml(made) : made);
  const whole = (written: string | undefined): number | undefined => {
    if (written === undefined) return undefined;
    if (written !== '*') return Number(written);
    const value = asInt(take());
    if (value === undefined) throw typeError('* wants int');
    return Number(value);
  };
  const pieces: string[] = [];
  let from = 0,
    hasNamed = false;
  for (const match of text.matchAll(DIRECTIVE)) {
    work.spend();
    const [all, key, flags = '', widthText, precisionText, type] = match;
    pieces.push(text.slice(from, match.index));
    from = match.index + all.length;
    if (all === '%%') {
      pieces.push('%');
      continue;
    }
    if (type === undefined) throw valueError('incomplete format');
    const width = whole(widthText) ?? 0;
    const precision = whole(precisionText) ?? (HAS_POINT.test(all) ? 0 : undefined);
    if ((precision ?? 0) > MAX_PRECISION && type !== 's')
      throw new Failure('limit', `a format of more than ${MAX_PRECISION} digits`);
    if (type === '%') {
      pieces.push('%');
      continue;
    }
    if (!'diouxXeEfFgGcrsa'.includes(type)) throw valueError(`unsupported format character '${type}'`);
    let value: PyValue;
    if (key === undefined) value = take();
    else {
      if (!isDictionary(right)) throw typeError('format requires a mapping');
      const found = entryOf(right, key);
      if (found === undefined) throw new Failure('KeyError', repr(key));
      value = found;
      hasNamed = true;
    }
    const isLeft = flags.includes('-') || width < 0;
    const isNumber = !'crsa'.includes(type);
    const spec: Spec = {
      fill: flags.includes('0') && isNumber && !isLeft ? '0' : ' ',
      align: isLeft ? '<' : flags.includes('0') && isNumber ? '=' : '>',
      sign: flags.includes('+') ? '+' : flags.includes(' ') ? ' ' : '',
      isAlternate: flags.includes('#'),
      width: Math.abs(width),
      grouping: '',
      precision: precision === undefined ? undefined : Math.max(0, precision),
      type,
    };
    pieces.push(isNumber ? percentNumber(value, spec, work) : percentText(value, spec, shown, work));
  }
  pieces.push(text.slice(from));
  const takesAny = hasNamed || isDictionary(right) || (isList(right) && !isTuple(right)) || right instanceof Undefined;
  if (next < values.length && !takesAny) throw typeError('not all arguments converted during string formatting');
  const made = join(pieces, '', work);
  return isMarkup ? new Markup(made) : made;
}

function percentText(value: PyValue, spec: Spec, shown: (text: string) => string, work: TemplateWork): string {
  let text: string;
  if (spec.type === 's') text = value instanceof Markup ? value.text : shown(work.str(value));
  else if (spec.type === 'c') {
    const whole = asInt(value);
    const letter = textOf(value);
    if (whole !== undefined) text = letterOf(BigInt(whole));
    else if (letter !== undefined && codePointLength(letter) === 1) text = letter;
    else throw typeError('%c requires int or char');
  } else {
    work.text(work.walk(value));
    text = shown(spec.type === 'a' ? ascii(repr(value)) : repr(value));
  }
  const cut =
    spec.precision === undefined || spec.type === 'c' ? text : codePoints(text).slice(0, spec.precision).join('');
  return pad('', cut, spec, '>', work);
}

function percentNumber(value: PyValue, spec: Spec, work: TemplateWork): string {
  const { type, precision, isAlternate } = spec;
  if ('diouxX'.includes(type)) {
    const whole = wholeFor(type, value);
    const radix = type === 'o' ? 8 : type === 'x' || type === 'X' ? 16 : 10;
    const size = (whole < 0n ? -whole : whole).toString(radix).padStart(precision ?? 0, '0');
    const sign = whole < 0n ? '-' : spec.sign;
    const prefix = isAlternate && radix !== 10 ? (radix === 8 ? '0o' : `0${type}`) : '';
    return pad(sign + prefix, type === 'X' ? size.toUpperCase() : size, spec, '>', work);
  }
  if (value instanceof Undefined) value.fail();
  const number = numeric(value);
  if (number === undefined) throw typeError(`must be real number, not ${typeName(value)}`);
  if (typeof value === 'bigint' && !Number.isFinite(number))
    throw new Failure('OverflowError', 'int too large to convert to float');
  const isNegative = number < 0 || Object.is(number, -0);
  const digits = floatDigits(Math.abs(number), type, precision ?? 6, isAlternate);
  // Python fills before what is no number with spaces.
  const filled = Number.isFinite(number) || spec.fill === ' ' ? spec : { ...spec, fill: '0' };
  return pad(isNegative ? '-' : spec.sign, digits, filled, '>', work);
}

/** ascii(): what is beyond ASCII is escaped in a text that repr() made. */
const ascii = (text: string): string =>
  text.replace(/[^\0-\x7f]/gu, (letter) => {
    const code = letter.codePointAt(0) ?? 0;
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
    return code < 0x10000 ? `\\u${code.toString(16).padStart(4, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`;
  });

/** How values are read by a template that is being rendered. */
export interface FieldAccess {
  /** Whether what is not defined fails wherever it is used. */
  readonly isStrict: boolean;
  readonly attribute: (of: PyValue, name: string) => PyValue;
  readonly item: (of: PyValue, key: PyValue) => PyValue;
  readonly work: TemplateWork;
}

/** text.format(*args, **named). Throws Failure. */
export function strFormat(
  text: string,
  args: readonly PyValue[],
  named: Named,
  access: FieldAccess,
  isMarkup = false,
): string {
  let next = 0,
    isNumbered: boolean | undefined;
  const { work } = access;
  const use = (isDigits: boolean): void => {
    if (isNumbered !== undefined && isNumbered !== isDigits)
      throw valueError(
        isDigits
          ? 'cannot switch from automatic field numbering to manual field specification'
          : 'cannot switch from manual field specification to automatic field numbering',
      );
    isNumbered = isDigits;
  };
  const field = (name: string): PyValue => {
    const [first = ''] = /^[^.[]*/.exec(name) ?? [];
    let value: PyValue | undefined;
    if (first === '' || /^\d+$/.test(first)) {
      use(first !== '');
      const at = first === '' ? next++ : Number(first);
      value = args[at];
      if (value === undefined)
        throw new Failure('IndexError', `Replacement index ${at} out of range for positional args tuple`);
    } else {
      value = named.get(first);
      if (value === undefined) throw new Failure('KeyError', repr(first));
    }
    const parts = /\.([^.[]+)|\[([^\]]+)\]/y;
    parts.lastIndex = first.length;
    while (parts.lastIndex < name.length) {
      const match = parts.exec(name);
      if (match === null) throw valueError('Empty attribute in format string');
      work.spend();
      const [, attribute, key = ''] = match;
      value =
        attribute === undefined
          ? access.item(value, /^\d+$/.test(key) ? Number(key) : key)
          : access.attribute(value, attribute);
    }
    return value;
  };
  const render = (source: string, depth: number): string => {
    if (depth < 0) throw valueError('Max string recursion exceeded');
    const pieces: string[] = [];
    let at = 0;
    while (at < source.length) {
      work.spend(1 / 4);
      const mark = /[{}]/g;
      mark.lastIndex = at;
      const found = mark.exec(source);
      if (found === null) break;
      pieces.push(source.slice(at, found.index));
      if (source[found.index + 1] === found[0]) {
        pieces.push(found[0]);
        at = found.index + 2;
        continue;
      }
      if (found[0] === '}') throw valueError("Single '}' encountered in format string");
      const end = closing(source, found.index);
      pieces.push(replaced(source.slice(found.index + 1, end), depth));
      at = end + 1;
    }
    pieces.push(source.slice(at));
    return join(pieces, '', work);
  };
  const replaced = (inside: string, depth: number): string => {
    const [, name = '', conversion, spec = ''] =
      /^((?:[^[:!]|\[[^\]]*\]?)*)(?:!([^:]*))?(?::([^]*))?$/u.exec(inside) ?? [];
    const value = field(name);
    const written = render(spec, depth - 1);
    const converted = conversion === undefined ? value : convert(value, conversion, work);
    if (!isMarkup) return formatValue(converted, written, work);
    if (converted instanceof Markup) {
      if (written !== '') throw valueError(`Unsupported format specification '${written}' for Markup`);
      return converted.text;
    }
    return escapeHtml(formatValue(converted, written, work));
  };
  return render(text, 2);
}

function convert(value: PyValue, conversion: string, work: TemplateWork): PyValue {
  if (conversion === 's') return work.str(value);
  if (conversion !== 'r' && conversion !== 'a') throw valueError(`Unknown conversion specifier ${repr(conversion)}`);
  work.text(work.walk(value));
  return conversion === 'r' ? repr(value) : ascii(repr(value));
}

/** The place of the brace that closes the one at `from`. */
function closing(source: string, from: number): number {
  let depth = 0;
  for (let at = from; at < source.length; at++) {
    if (source[at] === '{') depth++;
    else if (source[at] === '}' && --depth === 0) return at;
  }
  throw valueError(
    from + 1 === source.length ? "Single '{' encountered in format string" : "expected '}' before end of string",
  );
}
