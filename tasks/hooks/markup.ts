/** The markup of WikiHow pages, which HellaSwag's preparation removes. */
import { strip } from '../../python/value.js';

/**
 * Removes each `[`, what follows, and the next `]`, within a line: Python's re.sub(r'\[.*?\]', '', text), whose `.`
 * stops at \n only. A scan, because the regular expression takes quadratic time on a text of only opening brackets.
 */
export function withoutNotes(text: string): string {
  let kept = '',
    from = 0,
    close = -1,
    lineEnd = -1;
  for (let open = text.indexOf('['); open >= 0;) {
    if (close < open) close = text.indexOf(']', open);
    if (close < 0) break;
    if (lineEnd < open) lineEnd = text.indexOf('\n', open);
    if (lineEnd < 0) lineEnd = text.length;
    if (lineEnd < close) {
      open = text.indexOf('[', lineEnd);
      continue;
    }
    kept += text.slice(from, open);
    from = close + 1;
    open = text.indexOf('[', from);
  }
  return kept + text.slice(from);
}

/** Removes WikiHow markup. The order of the steps and the single pass over double spaces are part of the metric. */
export const withoutMarkup = (text: string): string =>
  withoutNotes(strip(text).replaceAll(' [title]', '. ')).replaceAll('  ', ' ');
