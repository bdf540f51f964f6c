/** Parses the time that tuning may take. */
import { UserError } from '../errors.js';

const UNITS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600 };

/** Seconds in `30s`, `5m` or `1.5h`; a bare number is seconds. Throws UserError for other text and above one day. */
export function parseBudget(text: string): number {
  const match = /^(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?$/.exec(text.trim());
  const seconds = match === null ? NaN : Number(match[1]) * UNITS[match[2] ?? 's']!;
  if (!(seconds >= 0 && seconds <= 86_400)) {
    throw new UserError(
      `--budget ${JSON.stringify(text)}: expected a time such as 30s, 5m or 1h, at most a day`,
      'for example: --budget 5m',
    );
  }
  return seconds;
}
