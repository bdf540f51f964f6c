/** The filters of a task: what is taken from generated texts before they are compared. */
import { at } from '../../system/at.js';
import { UserError } from '../../errors.js';
import { FileRegex, findAll, pythonRegex } from '../../python/regex.js';
import { type Dict, isDict, isInt, isList, isTruthy, splitAtSpace, strip, type PyValue } from '../../python/value.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';

// The filter multi_choice_regex: a letter in brackets, or the text of a choice, or a letter after a colon.

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
  const items: readonly PyValue[] = isDict(given) ? [...given.keys()] : isList(given) ? given : [];
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
    new Map(names.map((name, i) => [name, `(${at(letters, i)})`]));
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

// The keys of one filter of a task file, checked as they are read.

export const INVALID = '[invalid]';
/** The pattern of a filter that has none of its own. */
export const PATTERN = '#### (\\-?[0-9\\.\\,]+)';

/** A filter's own keys. Throws UserError for one that is not there. */
export class FilterArguments {
  readonly #given: Dict;
  readonly #where: string;
  constructor(given: Dict, where: string) {
    this.#given = given;
    this.#where = where;
  }
  only(...names: string[]): void {
    for (const name of this.#given.keys())
      if (name !== 'function' && !names.includes(name)) throw this.fail(`has no setting ${quote(name)}`);
  }
  fail(problem: string): UserError {
    return new UserError(`${this.#where}: the filter ${quote(this.#given.get('function') ?? null)} ${problem}`);
  }
  get(name: string): PyValue {
    return this.#given.get(name) ?? null;
  }
  text(name: string, otherwise: string): string {
    const value = this.#given.get(name) ?? otherwise;
    if (typeof value !== 'string') throw this.fail(`needs text for ${name}`);
    return value;
  }
  isOn(name: string): boolean {
    return isTruthy(this.#given.get(name) ?? null);
  }
  texts(name: string): readonly string[] {
    const given = this.#given.get(name) ?? [];
    // Python's list of a text is its characters.
    const value = typeof given === 'string' ? [...given] : given;
    if (!isList(value) || !value.every((each) => typeof each === 'string')) throw this.fail(`needs texts for ${name}`);
    return value;
  }
  whole(name: string, otherwise: number): number {
    const value = this.#given.get(name) ?? otherwise;
    if (!isInt(value)) throw this.fail(`needs a whole number for ${name}`);
    return Number(value);
  }
}

export const compiled = (given: FilterArguments, pattern: string): FileRegex =>
  new FileRegex(pattern, (problem) => given.fail(problem));

/** One of the matches of a pattern, without space around it; undefined where there is none. */
export function selected(
  given: FilterArguments,
  found: readonly (string | readonly string[])[],
  select: number,
): string | undefined {
  if (found.length === 0) return undefined;
  const match = found.at(select);
  if (match === undefined) throw given.fail(`selects match ${select} of ${found.length}`);
  return strip(typeof match === 'string' ? match : (match.find((group) => group !== '') ?? ''));
}

// Filters of BIG-Bench-Hard without examples, which are Python classes in the public harness.

/** Texts of one request, in the order in which they were generated. */
type Texts = readonly string[];
type FilterStep = (texts: Texts, document: Dict) => Texts;

/** Patterns and the values that they stand for: the first that matches what all of them together select. */
export function mapStep(given: FilterArguments): FilterStep {
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
export function numberStep(given: FilterArguments): FilterStep {
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
export function sortStep(given: FilterArguments): FilterStep {
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

export interface TextFilter {
  readonly name: string;
  /** Whether it leaves a list, if of one text: nothing takes the first of it. Files of samples show that. */
  readonly leavesList: boolean;
  /** The text that is compared. `texts` is not empty. */
  apply(texts: Texts, document: Dict): string;
}

function choiceStep(given: FilterArguments, choices?: ChoiceRegex['choices']): FilterStep {
  const settings = 'regex_pattern group_select fallback ignore_case ignore_punctuation regexes_to_ignore';
  given.only(...settings.split(' '));
  const options = {
    pattern: compiled(given, given.text('regex_pattern', PATTERN)),
    select: given.whole('group_select', 0),
    fallback: given.text('fallback', INVALID),
    ignoresCase: given.isOn('ignore_case'),
    ignoresPunctuation: given.isOn('ignore_punctuation'),
    ignored: given.texts('regexes_to_ignore').map((pattern) => compiled(given, pattern)),
    ...defined({ choices }),
  };
  return (texts, document) => texts.map(choiceIn(options, document, (problem) => given.fail(problem)));
}

function regexStep(given: FilterArguments): FilterStep {
  given.only('regex_pattern', 'group_select', 'fallback');
  const select = given.whole('group_select', 0);
  const fallback = given.text('fallback', INVALID);
  const regex = compiled(given, given.text('regex_pattern', PATTERN));
  return (texts) =>
    texts.map((text) => {
      const found = regex.findAll(text);
      if (found.length === 0) return fallback;
      const match = found.at(select);
      if (match === undefined) throw given.fail(`selects match ${select} of ${found.length}`);
      return strip(typeof match === 'string' ? match : (match.find((group) => group !== '') ?? fallback));
    });
}

/** Texts that a table has, in the place of others. */
function tableStep(given: FilterArguments): FilterStep {
  given.only('mapping_dict', 'default_value');
  const table = given.get('mapping_dict') ?? new Map<string, PyValue>();
  const otherwise = given.get('default_value');
  if (!isDict(table) || ![...table.values(), otherwise ?? ''].every((value) => typeof value === 'string'))
    throw given.fail('needs texts by texts for mapping_dict, and a text for default_value');
  return (texts) =>
    texts.map((text) => {
      const value = table.get(text) ?? otherwise;
      if (typeof value !== 'string') throw given.fail(`has no ${quote(text)} and no default_value`);
      return value;
    });
}

/** The most frequent text; of several, the first. */
function majority(texts: Texts): Texts {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  const most = Math.max(...counts.values());
  return [[...counts].find(([, count]) => count === most)![0]];
}

/** Steps by their names in task files; those that take the places of Python classes have names with a mark. */
const STEPS: Readonly<Record<string, (given: FilterArguments) => FilterStep>> = {
  regex: regexStep,
  map: tableStep,
  multi_choice_regex: (given) => choiceStep(given),
  '!choices_in_input': (given) => choiceStep(given, choicesInInput),
  '!map_regex': mapStep,
  '!number_regex': numberStep,
  '!word_sort': sortStep,
  take_first: (given) => {
    given.only();
    return (texts) => texts.slice(0, 1);
  },
  take_first_k: (given) => {
    given.only('k');
    if (given.get('k') === null) throw given.fail('needs a number k');
    const count = given.whole('k', 1);
    return (texts) => {
      if (count < 1 || texts.length < count) throw given.fail(`takes ${count} of ${texts.length} texts`);
      return texts.slice(0, count);
    };
  },
  majority_vote: (given) => {
    given.only();
    return majority;
  },
  remove_whitespace: (given) => {
    given.only();
    return (texts) => texts.map(strip);
  },
  lowercase: (given) => {
    given.only();
    return (texts) => texts.map((text) => text.toLowerCase());
  },
  uppercase: (given) => {
    given.only();
    return (texts) => texts.map((text) => text.toUpperCase());
  },
};

function stepOf(value: PyValue, where: string): FilterStep {
  const name = isDict(value) ? value.get('function') : undefined;
  if (!isDict(value) || typeof name !== 'string') throw new UserError(`${where}: a filter without a function`);
  const step = Object.hasOwn(STEPS, name) ? STEPS[name] : undefined;
  if (step === undefined)
    throw new UserError(
      `${where}: no filter ${quote(name)}`,
      `There are ${Object.keys(STEPS)
        .filter((each) => !each.startsWith('!'))
        .join(', ')}`,
    );
  return step(new FilterArguments(value, where));
}

/** The filters that a task lists; without a list, one named `none`. Throws UserError. */
export function readFilters(list: PyValue, where: string): readonly TextFilter[] {
  if (list === null) return [{ name: 'none', leavesList: false, apply: (texts) => at(texts, 0) }];
  if (!isList(list) || list.length === 0) throw new UserError(`${where}: expected a list of filters`);
  const filters = list.map((each): TextFilter => {
    const name = isDict(each) ? each.get('name') : undefined;
    const steps = isDict(each) ? each.get('filter') : undefined;
    if (typeof name !== 'string' || !isList(steps ?? null))
      throw new UserError(`${where}: expected a name and a list of functions for each filter`);
    const made = (steps as readonly PyValue[]).map((step) => stepOf(step, where));
    const apply = (texts: Texts, document: Dict): string => {
      const left = made.reduce((current, step) => step(current, document), texts);
      if (left.length !== 1)
        throw new UserError(`${where}: ${name} leaves ${left.length} texts`, 'end it with take_first');
      return at(left, 0);
    };
    const leavesList = !(steps as readonly PyValue[]).some(
      (step) => isDict(step) && step.get('function') === 'take_first',
    );
    return { name, leavesList, apply };
  });
  // Where several filters have the same name, the last one is used.
  return [...new Map(filters.map((filter) => [filter.name, filter])).values()];
}
