/** The filters of a task: what is taken from generated texts before they are compared. */
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import { choiceIn, choicesInInput, type ChoiceRegex } from './choiceRegex.js';
import { Arguments, compiled, INVALID, PATTERN } from './filterArguments.js';
import { mapStep, numberStep, sortStep } from './hardFilters.js';
import { strip } from '../../python/text.js';
import { isDict, isList, type Dict, type Value } from '../../python/value.js';

/** Texts of one request, in the order in which they were generated. */
type Texts = readonly string[];
type Step = (texts: Texts, document: Dict) => Texts;

export interface Filter {
  readonly name: string;
  /** Whether it leaves a list, if of one text: nothing takes the first of it. Files of samples show that. */
  readonly leavesList: boolean;
  /** The text that is compared. `texts` is not empty. */
  apply(texts: Texts, document: Dict): string;
}

function choiceStep(given: Arguments, choices?: ChoiceRegex['choices']): Step {
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

function regexStep(given: Arguments): Step {
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
function tableStep(given: Arguments): Step {
  given.only('mapping_dict', 'default_value');
  const table = given.get('mapping_dict') ?? new Map<string, Value>();
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
const STEPS: Readonly<Record<string, (given: Arguments) => Step>> = {
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

function stepOf(value: Value, where: string): Step {
  const name = isDict(value) ? value.get('function') : undefined;
  if (!isDict(value) || typeof name !== 'string') throw new UserError(`${where}: a filter without a function`);
  if (!Object.hasOwn(STEPS, name))
    throw new UserError(
      `${where}: no filter ${quote(name)}`,
      `There are ${Object.keys(STEPS)
        .filter((each) => !each.startsWith('!'))
        .join(', ')}`,
    );
  return STEPS[name]!(new Arguments(value, where));
}

/** The filters that a task lists; without a list, one named `none`. Throws UserError. */
export function readFilters(list: Value, where: string): readonly Filter[] {
  if (list === null) return [{ name: 'none', leavesList: false, apply: (texts) => texts[0]! }];
  if (!isList(list) || list.length === 0) throw new UserError(`${where}: expected a list of filters`);
  const filters = list.map((each): Filter => {
    const name = isDict(each) ? each.get('name') : undefined;
    const steps = isDict(each) ? each.get('filter') : undefined;
    if (typeof name !== 'string' || !isList(steps ?? null))
      throw new UserError(`${where}: expected a name and a list of functions for each filter`);
    const made = (steps as readonly Value[]).map((step) => stepOf(step, where));
    const apply = (texts: Texts, document: Dict): string => {
      const left = made.reduce((current, step) => step(current, document), texts);
      if (left.length !== 1)
        throw new UserError(`${where}: ${name} leaves ${left.length} texts`, 'end it with take_first');
      return left[0]!;
    };
    const leavesList = !(steps as readonly Value[]).some(
      (step) => isDict(step) && step.get('function') === 'take_first',
    );
    return { name, leavesList, apply };
  });
  // Where several filters have the same name, the last one is used.
  return [...new Map(filters.map((filter) => [filter.name, filter])).values()];
}
