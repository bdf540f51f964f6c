/** The filter multi_choice_regex: a letter in brackets, or the text of a choice, or a letter after a colon. */
import type { FileRegex } from '../../python/fileRegex.js';
import { findAll, pythonRegex } from '../../python/regex.js';
import { strip } from '../../python/text.js';
import { isDict, isList, type Dict, type Value } from '../../python/value.js';

export interface ChoiceRegex {
  readonly pattern: FileRegex;
  readonly select: number;
  readonly fallback: string;
  readonly ignoresCase: boolean;
  readonly ignoresPunctuation: boolean;
  readonly ignored: readonly FileRegex[];
  /** Texts of the choices, or the problem with them. Default: the column `choices`. */
  readonly choices?: (document: Dict) => readonly string[] | string;
}

/** No choice can be shown by a letter beyond these. */
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');

/** Texts of the choices, or the problem with them. */
function choicesOf(document: Dict): readonly string[] | string {
  const given = document.get('choices') ?? null;
  const items: readonly Value[] = isDict(given) ? [...given.keys()] : isList(given) ? given : [];
  if (items.length === 0 || !items.every((item) => typeof item === 'string'))
    return 'needs documents with a list of texts in a column "choices"';
  return items.length > LETTERS.length ? `has letters for ${LETTERS.length} choices, not ${items.length}` : items;
}

/** The choices that a question of BIG-Bench-Hard lists: (A) one (B) another. */
export function choicesInInput(document: Dict): readonly string[] | string {
  const input = document.get('input');
  const found =
    typeof input === 'string' ? [...input.matchAll(/\([A-Z]\)([^\n^(]*)/g)].map(([, text = '']) => text) : [];
  if (found.length === 0) return 'needs documents with choices in a column "input"';
  return found.length > LETTERS.length ? `has letters for ${LETTERS.length} choices, not ${found.length}` : found;
}

/** A text as it is looked at where a choice is looked for. */
export function withoutIgnored(
  options: Pick<ChoiceRegex, 'ignored' | 'ignoresCase' | 'ignoresPunctuation'>,
  text: string,
): string {
  const left = options.ignored.reduce((rest, regex) => regex.without(rest), text);
  const lower = options.ignoresCase ? left.toLowerCase() : left;
  return options.ignoresPunctuation ? lower.replace(/\p{P}/gu, '') : lower;
}

/** What a text says of a document's choices. `fail` makes the error for a document without choices. */
export function choiceIn(options: ChoiceRegex, document: Dict, fail: (problem: string) => Error) {
  const choices = (options.choices ?? choicesOf)(document);
  if (typeof choices === 'string') throw fail(choices);
  const cleaned = (text: string): string => withoutIgnored(options, text);
  const texts = choices.map((choice) => cleaned(strip(choice)));
  const letters = [...LETTERS.slice(0, texts.length)];
  const inBrackets = (names: readonly string[]): Map<string, string> =>
    new Map(names.map((name, i) => [name, `(${letters[i]!})`]));
  const ofTexts = inBrackets(texts);
  const ofLetters = inBrackets(letters);
  const anyText = new RegExp(texts.map(escaped).join('|'), 'gu');
  const anyLetter = pythonRegex(`:[\\s]*(${letters.join('|')})`);
  const named = (all: readonly (string | string[])[], names: ReadonlyMap<string, string>): string => {
    if (all.length === 0) return '';
    const match = all.at(options.select);
    if (match === undefined) throw fail(`selects match ${options.select} of ${all.length}`);
    const one = strip(typeof match === 'string' ? match : (match.find((group) => group !== '') ?? ''));
    // A choice without text names nothing.
    return one === '' ? '' : (names.get(one) ?? one);
  };
  return (text: string): string =>
    named(options.pattern.findAll(text), new Map()) ||
    named(findAll(anyText, cleaned(text)), ofTexts) ||
    named(findAll(anyLetter, text), ofLetters) ||
    options.fallback;
}
