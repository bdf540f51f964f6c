/** Dates, times, decimal numbers and bytes as Python's str() and repr() show them. */
import { Shown } from './value.js';

export type TimeUnit = 's' | 'ms' | 'us' | 'ns';

const PER_SECOND: Readonly<Record<TimeUnit, bigint>> = { s: 1n, ms: 1000n, us: 1_000_000n, ns: 1_000_000_000n };
const DAY = 86_400n;
/** Days from 0001-01-01 to 1970-01-01, and from there to 9999-12-31. */
const FIRST_DAY = -719_162n;
const LAST_DAY = 2_932_896n;

const padded = (value: number | bigint, width = 2): string => String(value).padStart(width, '0');

/** Rounds to minus infinity. */
function divided(value: bigint, by: bigint): { readonly whole: bigint; readonly rest: bigint } {
  const rest = ((value % by) + by) % by;
  return { whole: (value - rest) / by, rest };
}

/** Throws RangeError for a year that Python does not have. */
function calendar(days: bigint): readonly [year: number, month: number, day: number] {
  if (days < FIRST_DAY || days > LAST_DAY) throw new RangeError(`a date ${days} days from 1970 is out of range`);
  const date = new Date(Number(days) * 86_400_000);
  return [date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate()];
}

const isoDate = ([year, month, day]: readonly [number, number, number]): string =>
  `${padded(year, 4)}-${padded(month)}-${padded(day)}`;

interface Clock {
  readonly text: string;
  /** As arguments: hours and minutes, with what follows unless it is zero. */
  readonly parts: readonly string[];
  readonly nanoseconds: bigint;
}

/** `seconds` of a day and the part of one, in nanoseconds. */
function clockOf(seconds: bigint, nanoseconds: bigint): Clock {
  const [hour, minute, second] = [seconds / 3600n, (seconds / 60n) % 60n, seconds % 60n];
  const micros = nanoseconds / 1000n;
  const fraction =
    nanoseconds % 1000n !== 0n ? `.${padded(nanoseconds, 9)}` : micros === 0n ? '' : `.${padded(micros, 6)}`;
  const parts = [hour, minute, second, micros].map(String);
  while (parts.length > 2 && parts.at(-1) === '0') parts.pop();
  return { text: `${padded(hour)}:${padded(minute)}:${padded(second)}${fraction}`, parts, nanoseconds };
}

/** datetime.date; `days` from 1970-01-01. Throws RangeError outside of the years 1 to 9999. */
export function dateOf(days: bigint): Shown {
  const parts = calendar(days);
  return new Shown('date', isoDate(parts), `datetime.date(${parts.join(', ')})`);
}

/**
 * datetime.datetime, or pandas.Timestamp where the unit is nanoseconds; `units` since 1970-01-01. `isUtc`: it knows
 * that its time zone is UTC. Throws RangeError outside of the years 1 to 9999.
 */
export function dateTimeOf(units: bigint, unit: TimeUnit, isUtc = false): Shown {
  const { whole, rest } = divided(units, PER_SECOND[unit]);
  const { whole: days, rest: seconds } = divided(whole, DAY);
  const date = calendar(days);
  const clock = clockOf(seconds, rest * (PER_SECOND.ns / PER_SECOND[unit]));
  const text = `${isoDate(date)} ${clock.text}`;
  if (unit === 'ns') {
    const code = isUtc ? `Timestamp('${text}+0000', tz='UTC')` : `Timestamp('${text}')`;
    return new Shown('Timestamp', `${text}${isUtc ? '+00:00' : ''}`, code);
  }
  const zone = isUtc ? ["tzinfo=zoneinfo.ZoneInfo(key='UTC')"] : [];
  const code = `datetime.datetime(${[...date, ...clock.parts, ...zone].join(', ')})`;
  return new Shown('datetime', `${text}${isUtc ? '+00:00' : ''}`, code);
}

/** datetime.time; `units` since midnight. Throws RangeError past the day, and for parts of a microsecond. */
export function timeOf(units: bigint, unit: TimeUnit): Shown {
  const { whole, rest } = divided(units, PER_SECOND[unit]);
  const nanoseconds = rest * (PER_SECOND.ns / PER_SECOND[unit]);
  if (whole < 0n || whole >= DAY || nanoseconds % 1000n !== 0n)
    throw new RangeError(`a time of ${units} ${unit} is out of range`);
  const clock = clockOf(whole, nanoseconds);
  return new Shown('time', clock.text, `datetime.time(${clock.parts.join(', ')})`);
}

/** decimal.Decimal of value / 10^scale, with as many digits after the point as the scale says. */
export function decimalOf(value: bigint, scale: number): Shown {
  const sign = value < 0n ? '-' : '';
  const digits = String(value < 0n ? -value : value);
  const exponent = digits.length - scale - 1;
  let text: string;
  if (scale >= 0 && exponent >= -6) {
    const long = digits.padStart(scale + 1, '0');
    text = scale === 0 ? long : `${long.slice(0, -scale)}.${long.slice(-scale)}`;
  } else {
    const rest = digits.length > 1 ? `.${digits.slice(1)}` : '';
    text = `${digits.charAt(0)}${rest}E${exponent < 0 ? '' : '+'}${exponent}`;
  }
  return new Shown('Decimal', `${sign}${text}`, `Decimal('${sign}${text}')`, { isTruthy: value !== 0n });
}

const SHORT: Readonly<Record<number, string>> = { 0x5c: '\\\\', 0x0a: '\\n', 0x0d: '\\r', 0x09: '\\t' };

/** bytes */
export function bytesOf(bytes: Uint8Array): Shown {
  const write = (): string => bytesCode(bytes);
  return new Shown('bytes', write, write, { isTruthy: bytes.length > 0, letters: 4 * bytes.length + 3 });
}

function bytesCode(bytes: Uint8Array): string {
  const quote = bytes.includes(0x27) && !bytes.includes(0x22) ? '"' : "'";
  const written = Array.from(bytes, (byte) => {
    const letter = String.fromCharCode(byte);
    if (letter === quote) return `\\${quote}`;
    return SHORT[byte] ?? (byte < 0x20 || byte > 0x7e ? `\\x${byte.toString(16).padStart(2, '0')}` : letter);
  });
  return `b${quote}${written.join('')}${quote}`;
}
