/** Python's datetime.strftime() in English, for the local time zone. */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAY_MS = 86_400_000;

/** The day of the year, from 0. */
const dayOfYear = (now: Date): number =>
  Math.round((Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0, 1)) / DAY_MS);

/** Year and week of ISO 8601: a week belongs to the year of its Thursday. */
function isoWeek(now: Date): readonly [year: number, week: number] {
  const thursday = new Date(Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()));
  thursday.setUTCDate(thursday.getUTCDate() + 3 - ((thursday.getUTCDay() + 6) % 7));
  const year = thursday.getUTCFullYear();
  return [year, 1 + Math.floor((thursday.getTime() - Date.UTC(year, 0, 1)) / DAY_MS / 7)];
}

/** A directive by its letter; undefined for one that there is not. */
function directive(letter: string, now: Date): string | number | readonly [number, number, string?] | undefined {
  const hour = now.getHours() % 12 === 0 ? 12 : now.getHours() % 12;
  switch (letter) {
    case 'a':
      return DAYS[now.getDay()]?.slice(0, 3);
    case 'A':
      return DAYS[now.getDay()];
    case 'b':
    case 'h':
      return MONTHS[now.getMonth()]?.slice(0, 3);
    case 'B':
      return MONTHS[now.getMonth()];
    case 'd':
      return [now.getDate(), 2];
    case 'e':
      return [now.getDate(), 2, ' '];
    case 'm':
      return [now.getMonth() + 1, 2];
    case 'y':
      return [now.getFullYear() % 100, 2];
    case 'Y':
      return [now.getFullYear(), 4];
    case 'C':
      return [Math.floor(now.getFullYear() / 100), 2];
    case 'H':
      return [now.getHours(), 2];
    case 'k':
      return [now.getHours(), 2, ' '];
    case 'I':
      return [hour, 2];
    case 'l':
      return [hour, 2, ' '];
    case 'M':
      return [now.getMinutes(), 2];
    case 'S':
      return [now.getSeconds(), 2];
    case 'f':
      return [now.getMilliseconds() * 1000, 6];
    case 'p':
      return now.getHours() < 12 ? 'AM' : 'PM';
    case 'P':
      return now.getHours() < 12 ? 'am' : 'pm';
    case 'j':
      return [dayOfYear(now) + 1, 3];
    case 'u':
      return now.getDay() === 0 ? 7 : now.getDay();
    case 'w':
      return now.getDay();
    case 'U':
      return [Math.floor((dayOfYear(now) + 7 - now.getDay()) / 7), 2];
    case 'W':
      return [Math.floor((dayOfYear(now) + 7 - ((now.getDay() + 6) % 7)) / 7), 2];
    case 'V':
      return [isoWeek(now)[1], 2];
    case 'G':
      return [isoWeek(now)[0], 4];
    case 'g':
      return [isoWeek(now)[0] % 100, 2];
    case 's':
      return Math.floor(now.getTime() / 1000);
    case 'z':
    case 'Z':
      return '';
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case '%':
      return '%';
    default:
      return undefined;
  }
}

/** Directives that stand for others. */
const SHORT: Readonly<Record<string, string>> = {
  c: '%a %b %e %H:%M:%S %Y',
  D: '%m/%d/%y',
  F: '%Y-%m-%d',
  r: '%I:%M:%S %p',
  R: '%H:%M',
  T: '%H:%M:%S',
  x: '%m/%d/%y',
  X: '%H:%M:%S',
};

/** now.strftime(format). What is no directive stays as it is. */
export function strftime(format: string, now: Date): string {
  const long = format.replace(/%([cDFrRTxX])/g, (whole, letter: string) => SHORT[letter] ?? whole);
  return long.replace(/%([-_0^#]?)([a-zA-Z%])/g, (whole, flag: string, letter: string) => {
    const value = directive(letter, now);
    if (value === undefined) return whole;
    if (typeof value === 'string') return flag === '^' ? value.toUpperCase() : value;
    const [number, width, fill = '0'] = typeof value === 'number' ? ([value, 1] as const) : value;
    const filled = flag === '_' ? ' ' : flag === '0' ? '0' : fill;
    return flag === '-' ? String(number) : String(number).padStart(width, filled);
  });
}
