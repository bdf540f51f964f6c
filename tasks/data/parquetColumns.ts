/** Types of the columns of a Parquet file, for casts to those that a README declares. */
import type { SchemaElement, SchemaTree } from 'hyparquet';
import type { TimeUnit } from '../../python/shown.js';
import { INT64, intOf, type ColumnType, type RecordType } from './columnTypes.js';
import { itemOf } from './parquetValues.js';

const ANY: ColumnType = { kind: 'any' };
const UNITS: Readonly<Record<string, TimeUnit>> = { MILLIS: 'ms', MICROS: 'us', NANOS: 'ns' };

/** Of a column without parts. */
function leafType({ type, converted_type: converted, logical_type: logical }: SchemaElement): ColumnType {
  if (logical?.type === 'DATE' || converted === 'DATE') return { kind: 'date' };
  if (logical?.type === 'TIMESTAMP') {
    const unit = UNITS[logical.unit];
    return unit === undefined || logical.isAdjustedToUTC ? ANY : { kind: 'time', unit };
  }
  if (logical?.type === 'STRING' || converted === 'UTF8') return { kind: 'text' };
  if (logical?.type === 'INTEGER') return intOf(logical.bitWidth, logical.isSigned);
  const [, sign, bits] = /^(U?)INT_(8|16|32|64)$/.exec(converted ?? '') ?? [];
  if (bits !== undefined) return intOf(Number(bits), sign === '');
  if (logical !== undefined || converted !== undefined) return ANY;
  if (type === 'INT64') return INT64;
  if (type === 'INT32') return intOf(32, true);
  if (type === 'BOOLEAN') return { kind: 'bool' };
  if (type === 'DOUBLE') return { kind: 'float' };
  return type === 'FLOAT' ? { kind: 'float32' } : ANY;
}

function typeOf(node: SchemaTree): ColumnType {
  const { element, children } = node;
  const isList = element.converted_type === 'LIST' || element.logical_type?.type === 'LIST';
  if (isList) return { kind: 'list', item: typeOf(itemOf(node)) };
  if (element.repetition_type === 'REPEATED' || element.converted_type === 'MAP') return ANY;
  return children.length > 0 ? columnsOf(node) : leafType(element);
}

/** The columns below a node. */
export const columnsOf = ({ children }: SchemaTree): RecordType => ({
  kind: 'record',
  fields: new Map(children.map((child) => [child.element.name, typeOf(child)])),
});
