/** Rows with the types of their columns, and from those to the types that the first rows of a split have. */
import { UserError } from '../../errors.js';
import { clipped, quote } from '../../system/json.js';
import { dateTimeOf } from '../../python/shown.js';
import { isoSeconds } from '../../python/isoTime.js';
import { Float, isDict, isList, numeric, type Dict, type Value } from '../../python/value.js';
import { str } from '../../python/show.js';
import { hasJson, type ColumnType, type RecordType } from './columnTypes.js';
import { mixedValue, rewrittenFloat } from './rewritten.js';
import {
  same,
  toBools,
  toDates,
  toFloats,
  toInts,
  toLabels,
  toText,
  toTimes,
  type Cast,
  type Fail,
} from './scalarCasts.js';

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
  const fail: Fail = (value) => {
    const found = value === undefined ? NAMES[from.kind] : str(value);
    throw new RangeError(`${place}: ${found}, where the type of the column is ${nameOf(to)}`);
  };
  // Where nothing is known of values, as of bytes, they stay what the file says.
  if (from.kind === 'null' || from.kind === 'any') return same;
  const cast = castOf(from, to, place, fail);
  return cast === same ? same : (value) => (value === null ? null : cast(value));
}

function failClass(value: Value, names: readonly string[], place: string): never {
  const shown = names.slice(0, MAX_SHOWN).join(', ');
  throw new RangeError(
    `${place}: no class ${typeof value === 'string' ? quote(value) : str(value)}; there are ${names.length}: ${shown}`,
  );
}

function castOf(from: ColumnType, to: ColumnType, place: string, fail: Fail): Cast {
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

function listCast(item: Cast, length: number | undefined, fail: Fail): Cast {
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
