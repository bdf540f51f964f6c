/** Jinja's filters of texts. */
import { capitalize, strip, stripCharacters } from '../../python/text.js';
import { isInt, typeName, type Value } from '../../python/value.js';
import { Failure } from './failure.js';
import { onText, onValue, type NamedFilter } from './filter.js';
import { replaceText } from './pieces.js';
import { regexReplace } from './regexReplace.js';
import type { Work } from './work.js';

/** A text in another case can be three times as long. */
function cased(text: string, change: (text: string) => string, work: Work): string {
  work.text(text.length);
  const changed = change(text);
  work.text(changed.length);
  return changed;
}

const BETWEEN = /([-\s\x1c-\x1f\x85({[<]+)/;
const upper = (text: string): string => text.toUpperCase();
const lower = (text: string): string => text.toLowerCase();

/** Jinja's own title case: words end at white space, hyphens and opening brackets only. */
function titled(text: string): string {
  return text
    .split(BETWEEN)
    .map((word) => {
      const [first = ''] = word;
      return upper(first) + lower(word.slice(first.length));
    })
    .join('');
}

function wordCount(text: string, work: Work): number {
  work.spend(text.length / 8);
  let count = 0;
  for (const _word of text.matchAll(/[\p{L}\p{N}_]+/gu)) count++;
  return count;
}

function countOf(value: Value | undefined, otherwise: number): number {
  if (value === undefined || value === null) return otherwise;
  if (!isInt(value)) throw new Failure(`a count must be a whole number, not ${typeName(value)}`);
  return Number(value);
}

function textOf(value: Value | undefined, what: string): string {
  if (typeof value === 'string') return value;
  throw new Failure(`regex_replace needs ${what} as text, not ${value === undefined ? 'nothing' : typeName(value)}`);
}

export const TEXT_FILTERS: readonly NamedFilter[] = [
  onText('string', '', (text) => text),
  onText('lower', '', (text, _args, work) => cased(text, lower, work)),
  onText('upper', '', (text, _args, work) => cased(text, upper, work)),
  onText('capitalize', '', (text, _args, work) => cased(text, capitalize, work)),
  onText('title', '', (text, _args, work) => {
    work.spend(text.length / 8);
    return cased(text, titled, work);
  }),
  onText('wordcount', '', (text, _args, work) => wordCount(text, work)),
  onText('trim', 'chars', (text, [characters], work) =>
    characters === undefined || characters === null
      ? strip(text)
      : stripCharacters(text, work.str(characters), { left: true, right: true }),
  ),
  onText('replace', 'old new count', (text, [old, by, count], work) => {
    if (old === undefined || by === undefined) throw new Failure('replace needs the old and the new text');
    return replaceText(text, work.str(old), work.str(by), countOf(count, -1), work);
  }),
  onValue('regex_replace', 'pattern repl count', (of, [pattern, by, count], work) =>
    regexReplace(
      textOf(of, 'its value'),
      textOf(pattern, 'the expression'),
      textOf(by, 'the new text'),
      countOf(count, 0),
      work,
    ),
  ),
];
