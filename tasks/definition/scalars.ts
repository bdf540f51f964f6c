/**
 * Scalars without quotes as PyYAML's SafeLoader resolves them (YAML 1.1, resolver.py and constructor.py): `yes` is
 * true, 017 is 15, 1:30 is 90, 1e3 is a text and 1.0e+3 a float, 2001-12-14 is a date.
 */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { isoSeconds } from '../../python/isoTime.js';
import { dateOf, dateTimeOf } from '../../python/shown.js';
import { Float, Shown, toInt } from '../../python/value.js';

export type PlainScalar = null | boolean | number | bigint | string | Float | Shown;

const BOOLEAN = /^(?:(yes|Yes|YES|true|True|TRUE|on|On|ON)|no|No|NO|false|False|FALSE|off|Off|OFF)$/;
const NULL = /^(?:~|null|Null|NULL|)$/;
const INTEGER = /^([-+]?)(?:0b([01_]+)|0x([0-9a-fA-F_]+)|0([0-7_]+)|(0|[1-9][0-9_]*))$/;
const SIXTIES = /^([-+]?)([1-9][0-9_]*(?::[0-5]?[0-9])+)$/;
const FLOAT = /^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?)$/;
const FLOAT_SIXTIES = /^([-+]?)([0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*)$/;
const SPECIAL = /^(?:([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/;
const DATE = /^[0-9]{4}-[0-9]{2}-[0-9]{2}$/;
const TIME = new RegExp(
  '^([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:[Tt]|[ \\t]+)([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\\.([0-9]*))?' +
    '(?:[ \\t]*(?:(Z)|([-+])([0-9]{1,2})(?::([0-9]{2}))?))?$',
);
/** Python's int() reads no more. */
const MAX_DIGITS = 4300;

const bare = (text: string): string => text.replaceAll('_', '');

/** Throws UserError where PyYAML fails: its message is without a place. */
export function plainScalar(text: string): PlainScalar {
  if (NULL.test(text)) return null;
  const bool = BOOLEAN.exec(text);
  if (bool !== null) return bool[1] !== undefined;
  if (text === '=' || text === '<<') throw new UserError(`${quote(text)} is no value in YAML: write it in quotes`);
  return wholeOf(text) ?? floatOf(text) ?? timeOf(text) ?? text;
}

function wholeOf(text: string): number | bigint | undefined {
  const [, sign, binary, hex, octal, decimal] = INTEGER.exec(text) ?? [];
  const [, sixtiesSign, sixties] = SIXTIES.exec(text) ?? [];
  if (sign === undefined && sixties === undefined) return undefined;
  const unreadable = (): never => {
    throw new UserError(`${quote(text)}: not a whole number that Python reads: write it in quotes`);
  };
  if (text.length > MAX_DIGITS) return unreadable();
  const digits = (prefix: string, part: string): bigint =>
    bare(part) === '' ? unreadable() : BigInt(prefix + bare(part));
  const value =
    binary !== undefined
      ? digits('0b', binary)
      : hex !== undefined
        ? digits('0x', hex)
        : octal !== undefined
          ? // Only the zero of `0_` is left.
            digits('0o', `0${octal}`)
          : decimal !== undefined
            ? digits('', decimal)
            : bare(sixties ?? '')
                .split(':')
                .reduce((sum, part) => sum * 60n + BigInt(part), 0n);
  return toInt((sign ?? sixtiesSign) === '-' ? -value : value);
}

function floatOf(text: string): Float | undefined {
  if (FLOAT.test(text)) return new Float(Number(bare(text)));
  const special = SPECIAL.exec(text);
  if (special !== null)
    return new Float(special[1] === undefined ? Number.NaN : special[1] === '-' ? -Infinity : Infinity);
  const [, sign, sixties] = FLOAT_SIXTIES.exec(text) ?? [];
  if (sixties === undefined) return undefined;
  // From the last part on, as PyYAML adds.
  let value = 0,
    unit = 1;
  for (const part of bare(sixties).split(':').reverse()) {
    value += Number(part) * unit;
    unit *= 60;
  }
  return new Float(sign === '-' ? -value : value);
}

const MICROSECONDS = 1_000_000n;
const FRACTION_DIGITS = 6;
const DAY_SECONDS = 86_400;

/** A date or a time. */
function timeOf(text: string): Shown | undefined {
  const isDate = DATE.test(text);
  const parts = isDate ? undefined : (TIME.exec(text) ?? undefined);
  if (!isDate && parts === undefined) return undefined;
  const [, year = '', month = '', day = '', hour = '', minute = '', second = '', fraction = ''] = parts ?? [];
  const two = (part: string): string => part.padStart(2, '0');
  const seconds = isoSeconds(isDate ? text : `${year}-${two(month)}-${two(day)}T${two(hour)}:${minute}:${second}`);
  try {
    if (seconds === undefined) throw new RangeError('no such time');
    if (parts === undefined) return dateOf(BigInt(seconds / DAY_SECONDS));
    const micros = BigInt(fraction.slice(0, FRACTION_DIGITS).padEnd(FRACTION_DIGITS, '0'));
    return withZone(dateTimeOf(BigInt(seconds) * MICROSECONDS + micros, 'us'), parts);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new UserError(`${quote(text)}: there is no such date or time: write a text in quotes`, undefined, {
      cause: error,
    });
  }
}

/** datetime.datetime with the offset that TIME found. */
function withZone(local: Shown, [, , , , , , , , utc, sign, hours = '', minutes = '0']: RegExpExecArray): Shown {
  if (utc === undefined && sign === undefined) return local;
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60;
  const days = Math.floor(offset / DAY_SECONDS);
  if (Math.abs(offset) >= DAY_SECONDS) throw new RangeError('an offset of a day or more');
  const delta = [...(days === 0 ? [] : [`days=${days}`]), `seconds=${offset - days * DAY_SECONDS}`].join(', ');
  const zone = offset === 0 ? 'datetime.timezone.utc' : `datetime.timezone(datetime.timedelta(${delta}))`;
  const at = Math.abs(offset) / 60;
  const shown = [Math.floor(at / 60), at % 60].map((each) => String(each).padStart(2, '0')).join(':');
  return new Shown(
    local.type,
    `${local.text}${offset < 0 ? '-' : '+'}${shown}`,
    `${local.code.slice(0, -1)}, tzinfo=${zone})`,
  );
}
