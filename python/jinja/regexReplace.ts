/** The filter regex_replace, which the harness adds to Jinja's: Python's re.sub(). */
import { FileRegex } from '../../python/fileRegex.js';
import { SHARED_ESCAPES } from '../../python/literal.js';
import { typeName, type Value } from '../value.js';
import { typeError, valueError } from './failure.js';
import { textOf, Undefined } from './objects.js';
import { MAX_TEXT, type Work } from './work.js';

/** Groups and texts between them of a new text; groups that all matches take. */
const MAX_PARTS = 256;
const MAX_TAKEN = 1 << 22;
const PIECE = /\\(?:g<(\w+)>|(0[0-7]{0,2}|[1-3][0-7]{2})|([1-9]\d?)|([^]?))|[^\\]+/gu;

/** What stands for a match: texts, and groups by number or name. */
type Part = string | { readonly group: number | string };

/** Parts of the text that replaces matches, with Python's escapes. */
function partsOf(by: string, regex: FileRegex): Part[] {
  const { count, names } = regex.groups();
  const group = (reference: string): Part => {
    const isNumber = /^\d+$/.test(reference);
    if (isNumber ? Number(reference) > count : !names.has(reference))
      throw valueError(`regex_replace has no group ${reference}`);
    return { group: isNumber ? Number(reference) : reference };
  };
  return Array.from(by.matchAll(PIECE), ([piece, named, octal, numbered, letter]) => {
    if (named !== undefined) return group(named);
    if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8));
    if (numbered !== undefined) return group(numbered);
    if (letter === undefined) return piece;
    const control = SHARED_ESCAPES.get(letter);
    if (control === undefined && (letter === '' || /[a-zA-Z]/.test(letter)))
      throw valueError(`regex_replace cannot read "${piece}" in the new text`);
    return control ?? piece;
  });
}

/** The parts, with texts next to each other in one. */
function joined(parts: readonly Part[]): Part[] {
  const all: Part[] = [];
  for (const part of parts) {
    const last = all.at(-1);
    if (typeof part === 'string' && typeof last === 'string') all[all.length - 1] = last + part;
    else all.push(part);
  }
  return all;
}

/** re.sub(pattern, by, text, count) */
export function regexReplace(value: Value, patternGiven: Value, byGiven: Value, count: number, work: Work): string {
  const [text, pattern, by] = [value, patternGiven, byGiven].map((given) => {
    if (given instanceof Undefined) given.fail();
    const found = textOf(given);
    if (found === undefined) throw typeError(`regex_replace takes texts, not ${typeName(given)}`);
    return found;
  }) as [string, string, string];
  return work.matching(() => {
    const regex = new FileRegex(pattern, (problem) => valueError(`regex_replace ${problem}`));
    const parts = joined(partsOf(by, regex));
    if (parts.length > MAX_PARTS) throw valueError(`regex_replace takes a new text of at most ${MAX_PARTS} parts`);
    let taken = 0;
    // Errors are those of the expression, so too much work ends as a text that is too long.
    const written = (match: RegExpMatchArray): string => {
      taken += parts.length;
      if (taken > MAX_TAKEN) return ' '.repeat(MAX_TEXT + 1);
      return parts
        .map((part) => {
          if (typeof part === 'string') return part;
          const found = typeof part.group === 'number' ? match[part.group] : match.groups?.[part.group];
          return found ?? '';
        })
        .join('');
    };
    const result = count < 0 ? text : regex.replaced(text, written, count, MAX_TEXT);
    work.text(result?.length ?? MAX_TEXT + 1);
    return result ?? '';
  });
}
