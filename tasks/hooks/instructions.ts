/**
 * The instructions of IFEval (Zhou et al. 2023) and when a text follows them, with the quirks that the public harness's
 * scores have: which letters count as a bullet, a title or a word.
 */
import { at } from '../../system/at.js';
import { parseJsonValue } from '../../python/literal.js';
import { FileRegex, pythonRegex } from '../../python/regex.js';
import {
  type Dict,
  isDict,
  isList,
  leftStrip,
  numeric,
  splitAtSpace,
  strip,
  stripCharacters,
  typeName,
  type PyValue,
} from '../../python/value.js';
import { fieldOf, HookProblem, type Scored, textsOf } from './hook.js';
import { languageOf } from './language.js';
import { isLower, isUpper, sentenceCount, tokensOf, wordCount } from './sentences.js';

export type InstructionCheck = (text: string) => boolean;

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/** A pattern of a document, without regard to case. What is no pattern is a plain text. */
function patternOf(text: string, settings: InstructionSettings, around = ''): FileRegex {
  const fail = (problem: string): HookProblem => settings.fail(problem);
  const flagged = (pattern: string): string => `(?i)${around}${pattern}${around}`;
  try {
    return new FileRegex(flagged(text), fail);
  } catch {
    return new FileRegex(flagged(escaped(text)), fail);
  }
}

const sides = (left: boolean, right: boolean): { left: boolean; right: boolean } => ({ left, right });

/** Lines that begin with a dash, or with an asterisk that another one does not follow. */
function bullets(text: string): number {
  const lines = text.split('\n').map(leftStrip);
  let count = 0;
  for (let i = 0; i < lines.length; i++) {
    const line = at(lines, i);
    if (line.startsWith('-')) count++;
    if (!line.startsWith('*') || line[1] === '*') continue;
    if (line.length > 1) count++;
    // An asterisk alone takes the next line with it; a dash there counts by itself.
    else if (i + 1 < lines.length) {
      count++;
      if (at(lines, i + 1).startsWith('-')) count++;
      i++;
    }
  }
  return count;
}

/** Texts in brackets within a line. */
function placeholders(text: string): number {
  let count = 0;
  for (const line of text.split('\n'))
    for (let from = line.indexOf('['); from >= 0; from = line.indexOf('[', from)) {
      const end = line.indexOf(']', from);
      if (end < 0) break;
      count++;
      from = end + 1;
    }
  return count;
}

function highlights(text: string): number {
  const single = (text.match(/\*[^\n*]*\*/g) ?? []).filter((each) => strip(each.replace(/^\*+|\*+$/g, '')) !== '');
  const double = (text.match(/\*\*[^\n*]*\*\*/g) ?? []).filter((each) => strip(each.slice(2, -2)) !== '');
  return single.length + double.length;
}

const hasTitle = (text: string): boolean =>
  text.split('\n').some((line) => {
    const [from, to] = [line.indexOf('<<'), line.lastIndexOf('>>')];
    if (from < 0 || to < from + 3) return false;
    const title = line.slice(from, to + 2);
    return strip(stripCharacters(stripCharacters(title, '<', sides(true, false)), '>', sides(false, true))) !== '';
  });

const DIVIDER = pythonRegex('\\s?\\*\\*\\*\\s?');

/** Undefined where a part between two dividers is empty. */
function paragraphs(text: string): number | undefined {
  const parts = text.split(DIVIDER).map(strip);
  return parts.slice(1, -1).includes('') ? undefined : parts.filter((part) => part !== '').length;
}

/** Of a paragraph: in lower case, up to its first mark. */
const firstWord = (paragraph: string): string => {
  const bare = (splitAtSpace(paragraph)[0] ?? '').replace(/^'+/, '').replace(/^"+/, '');
  return bare.toLowerCase().replace(/[.,?!'"][^]*$/, '');
};

function isJson(text: string): boolean {
  const fence = ['```json', '```Json', '```JSON', '```'];
  let body = strip(text);
  for (const mark of fence) if (body.startsWith(mark)) body = body.slice(mark.length);
  try {
    parseJsonValue(strip(body.endsWith('```') ? body.slice(0, -3) : body));
    return true;
  } catch {
    return false;
  }
}

function hasTwoResponses(text: string): boolean {
  const parts = text.split('******').map(strip);
  const [one, two, ...others] = parts.filter((part) => part !== '');
  return !parts.slice(1, -1).includes('') && two !== undefined && others.length === 0 && one !== two;
}

/** Markers that may have spaces in them; the harness's own pattern for them. */
const POSTSCRIPTS: Readonly<Record<string, string>> = { 'P.P.S': 'p\\.\\s?p\\.\\s?s', 'P.S.': 'p\\.\\s?s\\.' };

const isLanguage = (text: string, code: string): boolean => (languageOf(text) ?? code) === code;
const ANSWERS = ['My answer is yes.', 'My answer is no.', 'My answer is maybe.'];

/** By their names: what makes a check of an instruction's settings. */
export const INSTRUCTIONS: Readonly<Record<string, (settings: InstructionSettings) => InstructionCheck>> = {
  'keywords:existence': (settings) => {
    const all = settings.texts('keywords').map((word) => patternOf(word, settings));
    return (text) => all.every((pattern) => pattern.first(text) !== undefined);
  },
  'keywords:frequency': (settings) => {
    const pattern = patternOf(strip(settings.text('keyword')), settings);
    const holds = settings.compare('relation', 'frequency');
    return (text) => holds(pattern.matches(text).length);
  },
  'keywords:forbidden_words': (settings) => {
    const all = settings.texts('forbidden_words').map((word) => patternOf(word, settings, '\\b'));
    return (text) => all.every((pattern) => pattern.first(text) === undefined);
  },
  'keywords:letter_frequency': (settings) => {
    const letter = strip(settings.text('letter')).toLowerCase();
    const holds = settings.compare('let_relation', 'let_frequency');
    return (text) => holds(letter === '' ? 0 : text.toLowerCase().split(letter).length - 1);
  },
  'language:response_language': (settings) => {
    const code = settings.text('language');
    return (text) => isLanguage(text, code);
  },
  'length_constraints:number_sentences': (settings) => {
    const holds = settings.compare('relation', 'num_sentences');
    return (text) => holds(sentenceCount(text));
  },
  'length_constraints:number_paragraphs': (settings) => {
    const count = settings.number('num_paragraphs');
    return (text) => paragraphs(text) === count;
  },
  'length_constraints:number_words': (settings) => {
    const holds = settings.compare('relation', 'num_words');
    return (text) => holds(wordCount(text));
  },
  'length_constraints:nth_paragraph_first_word': (settings) => {
    const [count, nth] = [settings.number('num_paragraphs'), settings.number('nth_paragraph')];
    const word = settings.text('first_word').toLowerCase();
    return (text) => {
      const parts = text.split('\n\n').map(strip);
      const filled = parts.filter((part) => part !== '').length;
      const part = nth <= filled ? (parts[nth - 1] ?? '') : '';
      return part !== '' && filled === count && firstWord(part) === word;
    };
  },
  'detectable_content:number_placeholders': (settings) => {
    const count = settings.number('num_placeholders');
    return (text) => placeholders(text) >= count;
  },
  'detectable_content:postscript': (settings) => {
    const marker = strip(settings.text('postscript_marker'));
    const known = (Object.hasOwn(POSTSCRIPTS, marker) ? POSTSCRIPTS[marker] : undefined) ?? marker.toLowerCase();
    const pattern = patternOf(known, settings);
    return (text) => pattern.first(text.toLowerCase()) !== undefined;
  },
  'detectable_format:number_bullet_lists': (settings) => {
    const count = settings.number('num_bullets');
    return (text) => bullets(text) === count;
  },
  'detectable_format:constrained_response': () => (text) => ANSWERS.some((answer) => text.includes(answer)),
  'detectable_format:number_highlighted_sections': (settings) => {
    const count = settings.number('num_highlights');
    return (text) => highlights(text) >= count;
  },
  'detectable_format:multiple_sections': (settings) => {
    const count = settings.number('num_sections');
    const pattern = new FileRegex(`\\s?${strip(settings.text('section_spliter'))}\\s?\\d+\\s?`, (problem) =>
      settings.fail(problem),
    );
    return (text) => pattern.matches(text).length >= count;
  },
  'detectable_format:json_format': () => isJson,
  'detectable_format:title': () => hasTitle,
  'combination:two_responses': () => hasTwoResponses,
  'combination:repeat_prompt': (settings) => {
    const prompt = strip(settings.text('prompt_to_repeat')).toLowerCase();
    return (text) => strip(text).toLowerCase().startsWith(prompt);
  },
  'startend:end_checker': (settings) => {
    const phrase = strip(settings.text('end_phrase')).toLowerCase();
    return (text) => stripCharacters(strip(text), '"', sides(true, true)).toLowerCase().endsWith(phrase);
  },
  'startend:quotation': () => (text) => {
    const body = strip(text);
    return body.length > 1 && body.startsWith('"') && body.endsWith('"');
  },
  'change_case:capital_word_frequency': (settings) => {
    const holds = settings.compare('capital_relation', 'capital_frequency');
    return (text) => holds(tokensOf(text).filter(isUpper).length);
  },
  'change_case:english_capital': () => (text) => isUpper(text) && isLanguage(text, 'en'),
  'change_case:english_lowercase': () => (text) => isLower(text) && isLanguage(text, 'en'),
  'punctuation:no_comma': () => (text) => !text.includes(','),
};

// The settings of an instruction: its entry of a document's `kwargs`.

export class InstructionSettings {
  readonly #given: Dict;
  readonly #instruction: string;

  constructor(given: Dict, instruction: string) {
    this.#given = given;
    this.#instruction = instruction;
  }

  fail(problem: string): HookProblem {
    return new HookProblem(`${this.#instruction}: ${problem}`);
  }

  #get(name: string): PyValue {
    const value = this.#given.get(name) ?? null;
    if (value === null) throw this.fail(`${name} is missing`);
    return value;
  }

  text(name: string): string {
    const value = this.#get(name);
    if (typeof value !== 'string') throw this.fail(`${name}: expected text, found ${typeName(value)}`);
    return value;
  }

  number(name: string): number {
    const value = this.#get(name);
    const number = typeof value === 'boolean' ? undefined : numeric(value);
    if (number === undefined) throw this.fail(`${name}: expected a number, found ${typeName(value)}`);
    return number;
  }

  texts(name: string): readonly string[] {
    const value = this.#get(name);
    if (isList(value) && value.every((each) => typeof each === 'string')) return value;
    throw this.fail(`${name}: expected a list of texts`);
  }

  /** Compares a count with what the instruction says: `less than` or `at least` a number. */
  compare(relation: string, number: string): (count: number) => boolean {
    const asked = this.text(relation);
    const limit = this.number(number);
    if (asked === 'less than') return (count) => count < limit;
    if (asked === 'at least') return (count) => count >= limit;
    throw this.fail(`${relation}: expected "less than" or "at least"`);
  }
}

// IFEval's figures of a document: whether its instructions are followed, to the letter and with some leniency.

function checksOf(document: Dict): readonly InstructionCheck[] {
  const names = textsOf(fieldOf(document, 'instruction_id_list'), 'instruction_id_list');
  const settings = fieldOf(document, 'kwargs');
  if (!isList(settings) || settings.length !== names.length || !settings.every(isDict))
    throw new HookProblem('kwargs: expected keys and values for each instruction');
  return names.map((name, i) => {
    const made = Object.hasOwn(INSTRUCTIONS, name) ? INSTRUCTIONS[name] : undefined;
    if (made === undefined) throw new HookProblem(`instruction_id_list: no instruction ${JSON.stringify(name)}`);
    return made(new InstructionSettings(settings[i] as Dict, name));
  });
}

/** The text, and without its first line, its last one, both; each of them also without asterisks. */
function lenientForms(text: string): readonly string[] {
  const lines = text.split('\n');
  const cut = [lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)].map((rest) => strip(rest.join('\n')));
  const all = [text, ...cut];
  return [...all, ...all.map((each) => each.replaceAll('*', ''))].filter((each) => strip(each) !== '');
}

const flag = (holds: boolean): number => (holds ? 1 : 0);

/** By prompt: all instructions are followed. By instruction: one value each, which are averaged over all prompts. */
export function instructionResults(document: Dict, [text = '']: readonly string[]): ReadonlyMap<string, Scored> {
  const checks = checksOf(document);
  const forms = lenientForms(text);
  const strict = checks.map((follows) => strip(text) !== '' && follows(text));
  const loose = checks.map((follows) => forms.some(follows));
  return new Map<string, Scored>([
    ['prompt_level_strict_acc', flag(strict.every(Boolean))],
    ['inst_level_strict_acc', strict.map(flag)],
    ['prompt_level_loose_acc', flag(loose.every(Boolean))],
    ['inst_level_loose_acc', loose.map(flag)],
  ]);
}
