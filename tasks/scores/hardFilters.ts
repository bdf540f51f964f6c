/** Filters of BIG-Bench-Hard without examples, which are Python classes in the public harness. */
import { FileRegex } from '../../python/fileRegex.js';
import { splitAtSpace, strip } from '../../python/text.js';
import { isDict, type Dict } from '../../python/value.js';
import { withoutIgnored } from './choiceRegex.js';
import { compiled, INVALID, PATTERN, selected, type Arguments } from './filterArguments.js';

type Step = (texts: readonly string[], document: Dict) => readonly string[];

/** Patterns and the values that they stand for: the first that matches what all of them together select. */
export function mapStep(given: Arguments): Step {
  given.only(
    ...'regex_pattern_to_value group_select fallback ignore_case ignore_punctuation regexes_to_ignore'.split(' '),
  );
  const table = given.get('regex_pattern_to_value');
  if (!isDict(table) || table.size === 0) throw given.fail('needs patterns and values for regex_pattern_to_value');
  const options = {
    ignoresCase: given.isOn('ignore_case'),
    ignoresPunctuation: given.isOn('ignore_punctuation'),
    ignored: given.texts('regexes_to_ignore').map((pattern) => compiled(given, pattern)),
  };
  const select = given.whole('group_select', 0);
  const fallback = given.text('fallback', INVALID);
  const any = compiled(given, [...table.keys()].join('|'));
  const values = [...table].map(([pattern, value]) => {
    if (typeof value !== 'string') throw given.fail('needs texts as values of regex_pattern_to_value');
    return [compiled(given, pattern), value] as const;
  });
  return (texts) =>
    texts.map((text) => {
      const found = selected(given, any.findAll(withoutIgnored(options, text)), select) ?? '';
      if (found === '') return fallback;
      const again = withoutIgnored(options, found);
      const which = values.find(([regex]) => (selected(given, regex.findAll(again), select) ?? '') !== '');
      return which?.[1] ?? fallback;
    });
}

const SMALL = 'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen'.split(
  ' ',
);
const NUMBERS = new Map<string, number>([
  ...[...SMALL, 'sixteen', 'seventeen', 'eighteen', 'nineteen'].map((word, i) => [word, i] as const),
  ...'twenty thirty forty fifty sixty seventy eighty ninety'.split(' ').map((word, i) => [word, 20 + 10 * i] as const),
]);
const FACTORS = new Map([
  ['thousand', 1e3],
  ['million', 1e6],
  ['billion', 1e9],
]);
/** Words that the harness takes for a number: by itself, neither six nor seven nor nine is one. */
const WORD =
  '(?:zero|one|two|three|four|five|(?:twen|thir|for|fif|six|seven|nine)(?:teen|ty)|eight(?:een|y)|ten|eleven|twelve|' +
  'fourteen|hundred|thousand|(?:m|b|tr)illion)';
const FIRST = WORD.replace('eight(?:een|y)', 'eight(?:een|y)?');
const MIDDLE = `(?:${WORD.replace('(?:teen|ty)', '(?:teen|ty)?')}|[^\\S\\r\\n]|,|and|&)`;
const IN_WORDS = new RegExp(`(?:${FIRST}${MIDDLE}{1,60})?${WORD}`, 'g');

/** The value of a number in words; undefined for words that make none. */
export function numberInWords(text: string): number | undefined {
  let [total, current] = [0, 0];
  let isNumber = false;
  for (const word of text.split(/[\s,&-]+/)) {
    const value = NUMBERS.get(word);
    const factor = FACTORS.get(word);
    if (value === undefined && factor === undefined && word !== 'hundred') continue;
    isNumber = true;
    if (value !== undefined) current += value;
    else if (factor === undefined) current = (current || 1) * 100;
    else [total, current] = [total + (current || 1) * factor, 0];
  }
  return isNumber ? total + current : undefined;
}

/** A pattern, or else a number in English words. */
export function numberStep(given: Arguments): Step {
  given.only('regex_pattern', 'group_select', 'fallback');
  const regex = compiled(given, given.text('regex_pattern', PATTERN));
  const select = given.whole('group_select', 0);
  const fallback = given.text('fallback', INVALID);
  const numeral = (text: string): string | undefined => {
    const words = selected(given, text.toLowerCase().match(IN_WORDS) ?? [], select);
    return words === undefined ? undefined : numberInWords(words)?.toString();
  };
  return (texts) => texts.map((text) => (selected(given, regex.findAll(text), select) || numeral(text)) ?? fallback);
}

/** The words of the question's list, in the order in which the text has them last. */
export function sortStep(given: Arguments): Step {
  given.only();
  return (texts, document) => {
    const input = document.get('input');
    const list = typeof input === 'string' ? input.split('List:')[1] : undefined;
    if (list === undefined) throw given.fail('needs documents with a "List:" in a column "input"');
    const words = splitAtSpace(strip(list));
    const regex = new FileRegex(words.map((word) => `\\b${word}\\b`).join('|'), (problem) => given.fail(problem));
    return texts.map((text) => {
      const found = regex.findAll(text).map(String);
      return found.filter((word, i) => found.lastIndexOf(word) === i).join(' ');
    });
  };
}
