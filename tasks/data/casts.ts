/** Rows with the types of their columns, and from those to the types that the first rows of a split have. */
import { dateTimeOf } from '../../python/shown.js';
import { isoSeconds } from '../../python/isoTime.js';
import { Float, isDict, isList, numeric, toInt, type Dict, type Value } from '../../python/value.js';
import { str } from '../../python/show.js';
import { hasJson, type ColumnType, type RecordType } from './columnTypes.js';
import { mixedValue, rewrittenFloat } from './rewritten.js';

/** Throws RangeError for types that are not cast to each other. */
export type Cast = (value: Value) => Value;

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
  label: 'labels',
  list: 'lists',
  record: 'records',
};

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

const same: Cast = (value) => value;

/** Texts of numbers and times as Arrow writes them. */
function toText(from: ColumnType, fail: () => never): Cast {
  if (from.kind === 'int' || from.kind === 'time') return (value) => (value === null ? null : str(value));
  if (from.kind === 'bool') return (value) => (value === null ? null : String(value as boolean));
  return from.kind === 'text' ? same : fail();
}

function toInts(from: ColumnType, fail: (value?: Value) => never): Cast {
  if (from.kind === 'int') return same;
  if (from.kind === 'bool') return (value) => (typeof value === 'boolean' ? Number(value) : value);
  if (from.kind !== 'float') return fail();
  return (value) => {
    if (!(value instanceof Float)) return value;
    return Number.isInteger(value.value) ? toInt(BigInt(value.value)) : fail(value);
  };
}

function toFloats(from: ColumnType, isSingle: boolean, fail: () => never): Cast {
  if (from.kind !== 'int' && from.kind !== 'float') return fail();
  return (value) => {
    const number = numeric(value);
    return number === undefined ? null : new Float(isSingle ? Math.fround(number) : number);
  };
}

/** `place`: the column, for messages. Throws RangeError, at once or for a value. */
function castBetween(from: ColumnType, to: ColumnType, place: string): Cast {
  const fail = (value?: Value): never => {
    const found = value === undefined ? NAMES[from.kind] : str(value);
    throw new RangeError(`${place}: ${found}, where the type of the column is ${NAMES[to.kind]}`);
  };
  if (from.kind === 'null' || to.kind === 'any') return same;
  switch (to.kind) {
    case 'text':
      return toText(from, fail);
    case 'int':
      return toInts(from, fail);
    case 'float':
    case 'float32':
      return toFloats(from, to.kind === 'float32', fail);
    case 'label':
      return ['int', 'text', 'json'].includes(from.kind) ? same : fail();
    case 'list': {
      if (from.kind !== 'list') return fail();
      const item = castBetween(from.item, to.item, place);
      return (value) => (isList(value) ? value.map(item) : value);
    }
    case 'record': {
      if (from.kind !== 'record') return fail();
      const cast = recordCast(fieldCasts(from, to, `${place}.`));
      return (value) => (isDict(value) ? cast(value) : value);
    }
    default:
      return from.kind === to.kind ? same : fail();
  }
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
  const fields = to === undefined || to === from ? undefined : recordCast(fieldCasts(from, to, ''));
  return (row) => {
    const whole = own(row);
    return (fields === undefined ? whole : fields(whole)) as Dict;
  };
}
