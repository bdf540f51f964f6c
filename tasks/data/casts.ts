/** Rows cast to the types that a README declares, as Arrow casts them for `datasets`. */
import { UserError } from '../../errors.js';
import { dateOf, dateTimeOf, str, type TimeUnit } from '../../python/show.js';
import {
  type Dict,
  Float,
  isDict,
  isInt,
  isList,
  isoSeconds,
  numeric,
  Shown,
  toInt,
  type PyValue,
} from '../../python/value.js';
import { clipped, quote } from '../../system/json.js';
import { type ColumnType, hasJson, type IntType, type RecordType } from './columnTypes.js';
import { mixedValue, rewrittenFloat } from './rewritten.js';

// Numbers, texts and times as the types of columns that a README declares, as Arrow casts them for `datasets`: what
// would be cut off or leave its range is refused. Values are never null here.

/** Throws RangeError for a value that the type does not hold. */
export type Cast = (value: PyValue) => PyValue;
/** Throws RangeError: a type, or a value of it, is not cast. */
export type CastRefusal = (value?: PyValue) => never;

export const same: Cast = (value) => value;

const INTEGER = /^-?\d{1,20}$/;
const DECIMAL = /^-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$/;
const PLAIN_TIME = /^\d{4}-\d\d-\d\d(?:[ T]\d\d(?::\d\d(?::\d\d)?)?)?$/;
/** Of singles, enough for any of them. */
const SINGLE_DIGITS = 9;
/** Decimal exponents from which on Arrow writes one, below and above. */
const MIN_PLAIN = -5;
const MAX_PLAIN = 15;

/** A float as Arrow writes it: `5`, `0.1`, `1e+20`, `1e-7`, `-0`. */
function floatText(value: number, isSingle: boolean): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  if (value === 0) return Object.is(value, -0) ? '-0' : '0';
  let shown = value;
  for (let digits = 1; isSingle && digits <= SINGLE_DIGITS; digits++) {
    shown = Number(value.toPrecision(digits));
    if (Math.fround(shown) === value) break;
  }
  const scientific = shown.toExponential();
  const exponent = Number(scientific.slice(scientific.indexOf('e') + 1));
  return exponent >= MIN_PLAIN && exponent < MAX_PLAIN ? String(shown) : scientific;
}

export function toText(from: ColumnType, fail: CastRefusal): Cast {
  switch (from.kind) {
    case 'text':
      return same;
    case 'int':
    case 'date':
      return str;
    case 'bool':
      return (value) => String(value as boolean);
    case 'float':
    case 'float32':
      return (value) => floatText(numeric(value) ?? fail(value), from.kind === 'float32');
    case 'time':
      // It writes the fractions of finer units, also where they are zeros.
      return from.unit === 's' ? str : fail();
    default:
      return fail();
  }
}

/** A whole number within the type. */
function within({ least, most }: IntType, fail: CastRefusal): Cast {
  return (value) => (isInt(value) && value >= least && value <= most ? value : fail(value));
}

export function toInts(from: ColumnType, to: IntType, fail: CastRefusal): Cast {
  const check = within(to, fail);
  switch (from.kind) {
    case 'int':
      return from.least >= to.least && from.most <= to.most ? same : check;
    case 'bool':
      return (value) => Number(value);
    case 'float':
    case 'float32':
      return (value) => {
        const number = numeric(value);
        return number !== undefined && Number.isInteger(number) ? check(toInt(BigInt(number))) : fail(value);
      };
    case 'text':
      return (value) => {
        const text = String(value as string);
        return INTEGER.test(text) ? check(toInt(BigInt(text))) : fail(value);
      };
    default:
      return fail();
  }
}

const EXACT = 2n ** 53n;
const EXACT_SINGLE = 2n ** 24n;

export function toFloats(from: ColumnType, isSingle: boolean, fail: CastRefusal): Cast {
  const exact = isSingle ? EXACT_SINGLE : EXACT;
  const floatOf = (number: number): Float => new Float(isSingle ? Math.fround(number) : number);
  switch (from.kind) {
    case 'int':
      return (value) => (isInt(value) && value >= -exact && value <= exact ? floatOf(Number(value)) : fail(value));
    case 'bool':
    case 'float':
    case 'float32':
      return (value) => floatOf(numeric(value) ?? fail(value));
    case 'text':
      return (value) => {
        const text = String(value as string);
        return DECIMAL.test(text) ? floatOf(Number(text)) : fail(value);
      };
    default:
      return fail();
  }
}

const WORDS: ReadonlyMap<string, boolean> = new Map([
  ['true', true],
  ['1', true],
  ['false', false],
  ['0', false],
]);

export function toBools(from: ColumnType, fail: CastRefusal): Cast {
  switch (from.kind) {
    case 'bool':
      return same;
    case 'int':
    case 'float':
    case 'float32':
      return (value) => numeric(value) !== 0;
    case 'text':
      return (value) => WORDS.get(String(value as string).toLowerCase()) ?? fail(value);
    default:
      return fail();
  }
}

const UNITS: readonly TimeUnit[] = ['s', 'ms', 'us', 'ns'];

export function toTimes(from: ColumnType, unit: TimeUnit, fail: CastRefusal): Cast {
  const ofText: Cast = (value) => {
    const text = String(value as string);
    const seconds = PLAIN_TIME.test(text) ? isoSeconds(text) : undefined;
    return seconds === undefined ? fail(value) : dateTimeOf(BigInt(seconds), 's');
  };
  // Python shows times of nanoseconds in another way.
  if (unit === 'ns') return from.kind === 'time' && from.unit === 'ns' ? same : fail();
  switch (from.kind) {
    case 'time':
      if (from.unit === 'ns') return fail();
      if (UNITS.indexOf(from.unit) <= UNITS.indexOf(unit)) return same;
      return (value) => (value instanceof Shown && !value.text.includes('.') ? value : fail(value));
    case 'date':
      return (value) => ofText(str(value));
    case 'int':
      return (value) => (isInt(value) ? dateTimeOf(BigInt(value), unit) : fail(value));
    case 'text':
      return ofText;
    default:
      return fail();
  }
}

const SECONDS = 86_400;
const DATE_LETTERS = 10;

export function toDates(from: ColumnType, fail: CastRefusal): Cast {
  const ofText: Cast = (value) => {
    const text = String(value as string);
    const seconds = text.length === DATE_LETTERS ? isoSeconds(text) : undefined;
    return seconds === undefined ? fail(value) : dateOf(BigInt(seconds / SECONDS));
  };
  switch (from.kind) {
    case 'date':
      return same;
    case 'time':
      return (value) => ofText(str(value).slice(0, DATE_LETTERS));
    case 'text':
      return ofText;
    default:
      return fail();
  }
}

const MAX_LABEL = 2 ** 31;

/** A class by its number, or by its name in a text. */
export function toLabels(from: ColumnType, names: readonly string[], fail: CastRefusal): Cast {
  const check: Cast = (value) =>
    isInt(value) && value >= -MAX_LABEL && (names.length === 0 || value < names.length) ? value : fail(value);
  if (from.kind === 'json') return same;
  // Where a name is there twice, the first counts.
  const places = new Map([...names.entries()].reverse().map(([place, name]) => [name, place]));
  if (from.kind !== 'text') {
    const whole = toInts(from, { kind: 'int', least: BigInt(-MAX_LABEL), most: BigInt(MAX_LABEL) }, fail);
    return (value) => check(whole(value));
  }
  return (value) => {
    const text = String(value as string);
    const place = places.get(text);
    if (place !== undefined) return place;
    return /^\s*[-+]?[0-9]{1,9}\s*$/.test(text) ? check(Number(text)) : fail(value);
  };
}

// Rows with the types of their columns, and from those to the types that the first rows of a split have.

const NAMES: Readonly<Record<ColumnType['kind'], string>> = {
  null: 'nothing but null',
  bool: 'truth values',
  int: 'whole numbers',
  float: 'floats',
  float32: 'floats',
  time: 'times',
  text: 'text',
  json: 'values of several kinds',
  any: 'values',
  date: 'dates',
  label: 'labels',
  unread: 'of a kind that is not read from texts and numbers',
  list: 'lists',
  record: 'records',
};

const MAX_SHOWN = 8;
const HINT = 'Write the values of a column with one type, in all rows; types in README.md count';

/** Adds the place of what is not cast. Throws UserError in the place of RangeError. */
export function named<T>(action: () => T, where: string): T {
  try {
    return action();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UserError(`${where}: ${clipped(error.message)}`, HINT, { cause: error });
  }
}

function nameOf(type: ColumnType): string {
  if (type.kind === 'int') return `${NAMES.int} from ${type.least} to ${type.most}`;
  if (type.kind === 'list' && type.length !== undefined) return `${NAMES.list} of ${type.length}`;
  return NAMES[type.kind];
}

/** Values as their type says. `isRewritten`: floats lose what comes after ten places. */
function unified(type: ColumnType, isRewritten: boolean): Cast {
  switch (type.kind) {
    case 'json':
      return (value) => (value === null ? null : mixedValue(value));
    case 'float':
      return (value) => {
        if (value instanceof Float) return isRewritten ? rewrittenFloat(value.value) : value;
        const number = numeric(value);
        return number === undefined ? null : new Float(number);
      };
    case 'time':
      return (value) => (typeof value === 'string' ? dateTimeOf(BigInt(isoSeconds(value) ?? 0), 's') : null);
    case 'list': {
      const item = unified(type.item, isRewritten);
      return (value) => (isList(value) ? value.map(item) : null);
    }
    case 'record':
      return recordCast(new Map([...type.fields].map(([name, field]) => [name, unified(field, isRewritten)])));
    default:
      return (value) => (value instanceof Float ? null : value);
  }
}

const recordCast =
  (fields: ReadonlyMap<string, Cast>): Cast =>
  (value) =>
    isDict(value) ? new Map([...fields].map(([name, cast]) => [name, cast(value.get(name) ?? null)])) : null;

/** `place`: the column, for messages. Throws RangeError, at once or for a value. */
function castBetween(from: ColumnType, to: ColumnType, place: string): Cast {
  const fail: CastRefusal = (value) => {
    const found = value === undefined ? NAMES[from.kind] : str(value);
    throw new RangeError(`${place}: ${found}, where the type of the column is ${nameOf(to)}`);
  };
  // Where nothing is known of values, as of bytes, they stay what the file says.
  if (from.kind === 'null' || from.kind === 'any') return same;
  const cast = castOf(from, to, place, fail);
  return cast === same ? same : (value) => (value === null ? null : cast(value));
}

function failClass(value: PyValue, names: readonly string[], place: string): never {
  const shown = names.slice(0, MAX_SHOWN).join(', ');
  throw new RangeError(
    `${place}: no class ${typeof value === 'string' ? quote(value) : str(value)}; there are ${names.length}: ${shown}`,
  );
}

function castOf(from: ColumnType, to: ColumnType, place: string, fail: CastRefusal): Cast {
  switch (to.kind) {
    case 'any':
      return same;
    case 'unread':
    case 'null':
      return fail();
    case 'text':
      return toText(from, fail);
    case 'int':
      return toInts(from, to, fail);
    case 'float':
    case 'float32':
      return from.kind === to.kind ? same : toFloats(from, to.kind === 'float32', fail);
    case 'bool':
      return toBools(from, fail);
    case 'time':
      return toTimes(from, to.unit, fail);
    case 'date':
      return toDates(from, fail);
    case 'label':
      return toLabels(from, to.names, (value) => (value === undefined ? fail() : failClass(value, to.names, place)));
    case 'json':
      return from.kind === 'json' ? same : fail();
    case 'list':
      return from.kind === 'list' ? listCast(castBetween(from.item, to.item, place), to.length, fail) : fail();
    case 'record':
      return from.kind === 'record' ? (castOfRecords(from, to, `${place}.`) ?? same) : fail();
    default:
      return to satisfies never;
  }
}

function listCast(item: Cast, length: number | undefined, fail: CastRefusal): Cast {
  if (item === same && length === undefined) return same;
  return (value) => {
    if (!isList(value) || (length !== undefined && value.length !== length)) return fail(value);
    return item === same ? value : value.map(item);
  };
}

/** Undefined: nothing is to be done. Throws RangeError for a column that is not cast to `to`. */
export function castOfRecords(from: RecordType, to: RecordType, prefix = ''): Cast | undefined {
  const casts = fieldCasts(from, to, prefix);
  const isInOrder = [...from.fields.keys()].join('\0') === [...to.fields.keys()].join('\0');
  return isInOrder && [...casts.values()].every((cast) => cast === same) ? undefined : recordCast(casts);
}

function fieldCasts(from: RecordType, to: RecordType, prefix: string): Map<string, Cast> {
  const more = [...from.fields.keys()].find((name) => !to.fields.has(name));
  if (more !== undefined)
    throw new RangeError(`${prefix}${more}: neither the first rows nor README.md have such a column`);
  return new Map(
    [...to.fields].map(([name, type]) => {
      const own = from.fields.get(name);
      return [name, own === undefined ? same : castBetween(own, type, `${prefix}${name}`)];
    }),
  );
}

/** One function for rows of the type `from`. Throws RangeError for a column that is not cast to `to`. */
export function rowCast(from: RecordType, to: RecordType | undefined, isRewritten: boolean): (row: Dict) => Dict {
  const own = unified(from, isRewritten || hasJson(from));
  const fields = to === undefined || to === from ? undefined : castOfRecords(from, to);
  return (row) => {
    const whole = own(row);
    return (fields === undefined ? whole : fields(whole)) as Dict;
  };
}
