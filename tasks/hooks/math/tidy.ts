/** A formula before it is read: boxes opened, units and words removed. */
import { groupEnd } from './boxed.js';

const UNITS =
  'points? feet foot digits? pounds? meals? edges? students? multiples? degrees? mph kmph ft miles? gm lbs? tiles? ' +
  'dm ways? inch inches cents? gal acres? coins? gallons? hr sq square cubic cc numbers? days? hours? minutes? min ' +
  'seconds? sec cubes? hectares? units? kg g months? km m cm mm apples? liters? litres? yards? years? meters? ' +
  'metres? dollars?';
/** A unit behind a digit, a brace or a space. */
const UNIT = new RegExp(`([\\d}\\s])\\s*(?:${UNITS.split(' ').join('|')})\\s*$`);
const TEXT_AT_END = /(?:\\(?:text|mbox)\s*\{[^{}]*\})(?:\^\d|\^?\{\^?\d\})?$/;

const REPLACED: readonly (readonly [pattern: RegExp, by: string])[] = [
  [/\\math(?:rm|it|bf)\b|\\text(?:normal|bf|it|rm)\b/g, '\\text'],
  [/\\!\s*/g, ''],
  [/\\\$|\$/g, ''],
  [/\s*\{\s*,\s*\}/g, ','],
  [/,?\s*\\text\s*\{\s*(?:and|or)\s*\}/g, ','],
  [/(?<![a-zA-Z\\])(?:,?\s*(?:and|or))(?![a-zA-Z])/g, ','],
  [/,?\\ldots|,?\\dots/g, ' '],
  [/\\text\s*\{\s*(?:percent|percentage|pct)\s*\}|\s*\b(?:percentage|percent|pct)\b/g, '\\%'],
  [/(?<!\\)infinity/g, '\\infty'],
  [/\\text\s*\{\s*\}/g, ''],
  [/(?<!\\)\\\s/g, ' '],
  [/\s+/g, ' '],
];
const MAX_LETTERS = 4000;

/** How far boxes may be from each other that are one answer; further with a separator between. */
const NEAR = 10;
const FAR = 70;
const SEPARATOR = /\b(?:and|or)\b|,|;/;

/** Contents of all boxes, or of the last ones that belong together; the text itself where there is none. */
function boxesOf(text: string, isLast: boolean): string {
  const found: { content: string; start: number }[] = [];
  for (let from = text.length; ;) {
    const start = Math.max(text.lastIndexOf('\\boxed', from), text.lastIndexOf('\\fbox', from));
    if (start < 0) break;
    const open = text.indexOf('{', start);
    const end = open < 0 ? undefined : groupEnd(text, open);
    if (end === undefined) {
      if (found.length === 0) found.push({ content: text.slice(text.indexOf('x', start) + 1), start });
    } else {
      const content = text.slice(open + 1, end - 1).trim();
      const next = found.at(-1);
      const between = next === undefined ? '' : text.slice(end, next.start);
      const belongs =
        between.length < NEAR || (next?.content !== content && between.length < FAR && SEPARATOR.test(between));
      if (isLast && !belongs) break;
      if (next?.content !== content) found.push({ content, start });
      else next.start = start;
    }
    if (start === 0 || found.length > 50) break;
    from = start - 1;
  }
  return found.length === 0
    ? text
    : found
        .reverse()
        .map(({ content }) => content)
        .join(',');
}

/** Undefined for a formula that is too long to be an answer. */
export function tidyFormula(text: string, isLastBox: boolean): string | undefined {
  let left = boxesOf(text, isLastBox);
  if (left.length > MAX_LETTERS) return undefined;
  for (const [pattern, by] of REPLACED) left = left.replace(pattern, by);
  const bare = left.trim().replace(TEXT_AT_END, '').trim();
  if (bare !== '') left = bare;
  for (let i = 0; i < 2; i++) {
    const without = left.replace(UNIT, '$1');
    if (without.trim() !== '') left = without;
  }
  return left.trim().replace(/^\./, '0.');
}
