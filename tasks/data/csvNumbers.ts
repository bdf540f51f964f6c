/** Numbers in texts as pandas reads them: whole ones of 64 bits, and floats of 17 digits. */
import { Float, toInt, type Value } from '../../python/value.js';
import { INT64, intOf, type ColumnType } from './columnTypes.js';

const WHOLE = /^\s*([-+]?)([0-9]+)\s*$/;
const NUMBER = /^\s*([-+]?)(?:inf(?:inity)?|([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]+))?)\s*$/i;
const MAX_DIGITS = 17;
const UINT64 = intOf(64, false);

/** Undefined: no whole number, or one of more digits than 64 bits have. */
function wholeOf(text: string): bigint | undefined {
  const [, sign, written = ''] = WHOLE.exec(text) ?? [];
  const digits = written.replace(/^0+/, '');
  if (sign === undefined || digits.length > 20) return undefined;
  return sign === '-' ? -BigInt(digits) : BigInt(digits);
}

const MAX_POWER = 308;
const power = (exponent: number): number => Number(`1e${exponent}`);

/** One product or division: of more than 15 digits the last is not always the nearest. */
function scaled(number: number, exponent: number): number {
  if (exponent > MAX_POWER) return Infinity;
  if (exponent > 0) return number * power(exponent);
  if (exponent >= -MAX_POWER) return number / power(-exponent);
  return exponent < -2 * MAX_POWER ? 0 : number / power(-MAX_POWER - exponent) / power(MAX_POWER);
}

/** The text is a number. Zeros in front count as digits; those past the 17th are cut off. */
function pandasFloat(text: string): Float {
  const [, sign, whole, fraction = '', exponent = '0'] = NUMBER.exec(text) ?? [];
  const negative = sign === '-' ? -1 : 1;
  if (whole === undefined) return new Float(negative * Infinity);
  const kept = whole.slice(0, MAX_DIGITS);
  const places = fraction.slice(0, MAX_DIGITS - kept.length);
  let number = 0;
  for (const digit of kept + places) number = number * 10 + Number(digit);
  return new Float(negative * scaled(number, Number(exponent) + whole.length - kept.length - places.length));
}

/** How texts of a column are read, and what comes of it. */
export interface Column {
  readonly type: ColumnType;
  readonly read: (text: string) => Value;
}

const FLOATS: Column = { type: { kind: 'float' }, read: pandasFloat };

/**
 * How a column whose texts are all numbers is read; undefined: as texts. `hasGaps`: some are missing. Throws RangeError
 * for whole numbers that `datasets` has no type for.
 */
export function numberColumn(texts: readonly string[], hasGaps: boolean): Column | undefined {
  const areWhole = texts.map((text) => WHOLE.test(text));
  const wholes = texts.filter((_, i) => areWhole[i]).map(wholeOf);
  const isBeyond = (value: bigint | undefined): boolean =>
    value === undefined || value < INT64.least || value > UINT64.most;
  if (wholes.some(isBeyond)) throw new RangeError('a whole number of more than 64 bits');
  const isUnsigned = wholes.some((value) => value! > INT64.most);
  if (wholes.length < texts.length) return FLOATS;
  if (isUnsigned && hasGaps) throw new RangeError('a whole number of 64 bits in a column with missing values');
  if (isUnsigned && wholes.some((value) => value! < 0n)) return undefined;
  if (hasGaps) return FLOATS;
  return { type: isUnsigned ? UINT64 : INT64, read: (text) => toInt(wholeOf(text)!) };
}
