/**
 * Numbers and texts after `datasets` wrote them as JSON once more, which it does with rows of mixed types and with
 * arrays of rows: it keeps ten places after the point.
 */
import { parseJsonValue } from '../../python/literal.js';
import { Float, isDict, isList, toInt, type PyValue } from '../../python/value.js';

/** From 1e16 on it keeps ten digits. */
const LARGE = 1e16;
/** Digits of a whole number and its sign; more of them are text. */
const MAX_WHOLE = 20;

/** A float as it is read back with care; null for NaN and infinities. */
export function rewrittenFloat(value: number): Float | null {
  if (!Number.isFinite(value)) return null;
  // Zero has no sign.
  return new Float((Math.abs(value) > LARGE ? Number(value.toPrecision(10)) : Number(value.toFixed(10))) + 0);
}

/** A float as the reader that takes whole number and fraction for themselves makes it. */
function looseFloat(value: number): Float | null {
  const careful = rewrittenFloat(value);
  if (careful === null) return null;
  const text = Math.abs(value) > LARGE ? careful.value.toExponential() : Math.abs(careful.value).toFixed(10);
  const [, whole = '0', fraction = '', exponent = '0'] = /^-?(\d+)(?:\.(\d*?)0*)?(?:e\+?(-?\d+))?$/.exec(text) ?? [];
  const size = Number(whole) + (fraction === '' ? 0 : Number(fraction) * Number(`1e-${fraction.length}`));
  return new Float(Math.sign(careful.value) * size * Number(`1e${exponent}`));
}

function loose(value: PyValue): PyValue {
  if (value instanceof Float) return looseFloat(value.value);
  if (isList(value)) return value.map(loose);
  return isDict(value) ? new Map([...value].map(([key, item]) => [key, loose(item)])) : value;
}

/** A value in a column of several kinds. A text that is JSON stands for the value that it describes. */
export function mixedValue(value: PyValue): PyValue {
  if (typeof value !== 'string') return loose(value);
  const text = value.trim();
  if (text === '') return value;
  if (text === 'NaN') return null;
  if (/^-?\d*$/.test(text)) {
    if (text.length > MAX_WHOLE) return value;
    return toInt(BigInt(text === '-' ? 0 : text.replace(/^(-?)0+(?=\d)/, '$1')));
  }
  try {
    const read = parseJsonValue(text);
    // Nobody wrote it once more.
    return read instanceof Float && Math.abs(read.value) === Infinity ? read : loose(read);
  } catch (error) {
    if (error instanceof SyntaxError) return value;
    throw error;
  }
}
