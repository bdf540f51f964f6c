/**
 * Words and sentences of a text, where the public harness asks nltk. Words follow the rules of the Penn Treebank as far
 * as they matter for counting capitals; sentences end where a list of abbreviations lets them.
 */
import { literalEval } from '../../python/literal.js';
import { pythonRegex } from '../../python/regex.js';
import { capitalize, codePoints, type Dict, isInt, splitAtSpace, strip, type PyValue } from '../../python/value.js';
import { withoutMarkup } from './markup.js';
import { chosen, fieldOf, HookProblem, intOf, textOf, textsOf } from './hook.js';

const WORD = pythonRegex('\\w+');

/** Runs of letters, digits and underscores. */
export const wordCount = (text: string): number => text.match(WORD)?.length ?? 0;

const APART = /[«»“”„‘’`"()[\]{}<>;@#$%&?!*]|\.{2,}|--|[:,](?=[^\d]|$)/gu;
/** Contractions are two words. */
const JOINED =
  /\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?=\s)|('t)(is|was))\b/giu;
const ENDINGS = /([^\s'])('(?:[smd]|ll|re|ve)?|n't)(?=\s|$)/giu;

/** Tokens without the period at a sentence's end. */
export function tokensOf(text: string): string[] {
  const apart = text
    .replace(APART, ' ')
    .replace(ENDINGS, '$1 $2')
    .replace(JOINED, (...found: unknown[]) =>
      found
        .slice(1, 17)
        .filter((part) => typeof part === 'string')
        .join(' '),
    );
  return splitAtSpace(apart).filter((token) => token !== '');
}

/** str.isupper() */
export const isUpper = (text: string): boolean => /\p{Uppercase}/u.test(text) && !/\p{Lowercase}|\p{Lt}/u.test(text);
/** str.islower() */
export const isLower = (text: string): boolean => /\p{Lowercase}/u.test(text) && !/\p{Uppercase}|\p{Lt}/u.test(text);

/** Written with a period that ends no sentence. */
const ABBREVIATIONS = new Set(
  (
    'mr mrs ms dr prof rev hon gen col capt lt sgt maj gov sen rep pres st jr sr messrs mme mlle inc ltd ' +
    'co corp bros llc vs etc cf al ca approx dept dist est ave blvd rd ft mt no nos vol vols pp pg fig ' +
    'figs ed eds ch sec jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun a.m ' +
    'p.m e.g i.e u.s u.k u.n u.s.a ph.d b.a m.a m.d d.c b.c a.d p.s p.p.s viz min max tel ext univ assn ' +
    'oz lb lbs hr hrs'
  ).split(' '),
);
/** With a capital, these begin a sentence even after an abbreviation. */
const STARTERS = new Set(
  (
    'the a an this that these those he she it we they you i his her its our their my your in on at for ' +
    'from with by as if when while after before since although though because but and or so however ' +
    'therefore moreover furthermore there here what who why how where which is are was were do does did ' +
    'have has had can could will would should may might must let not no yes all some many most each every ' +
    'both either neither one two first second finally then also'
  ).split(' '),
);
const CLOSERS = `["')\\]}*_”’»]`;
const END = new RegExp(`([.?!])${CLOSERS}*(?=\\s)`, 'gu');
const OPENERS = /^["'([{*_“‘«]+/u;

/** The word before a period ends no sentence, given the word after it. */
function isAbbreviation(word: string, next: string): boolean {
  const bare = word.replace(OPENERS, '');
  const isStarter = STARTERS.has(next.toLowerCase()) && /^\p{Lu}/u.test(next);
  // An ellipsis, initials and abbreviations go on, unless a word follows that mostly begins sentences.
  if (bare.endsWith('.') || bare === '') return !isStarter;
  if (/^\p{L}$/u.test(bare) || ABBREVIATIONS.has(bare.toLowerCase())) return !isStarter;
  // "1. Item" is two sentences for nltk, "3. apples" is one.
  return /^[\d.,-]*\d$/.test(bare) && /^\p{Ll}/u.test(next);
}

/** How many sentences a text has. */
export function sentenceCount(text: string): number {
  let count = 0,
    from = 0;
  for (const { index, 0: all, 1: mark } of text.matchAll(END)) {
    const end = index + all.length;
    const before = /\S*$/u.exec(text.slice(Math.max(from, index - 100), index))?.[0] ?? '';
    const next = /^\s*(\S{1,60})/u.exec(text.slice(end, end + 400))?.[1]?.replace(OPENERS, '') ?? '';
    if (next !== '' && mark === '.' && isAbbreviation(before, /^[\p{L}\p{N}'’]+/u.exec(next)?.[0] ?? '')) continue;
    if (strip(text.slice(from, end)) !== '') count++;
    from = end;
  }
  return strip(text.slice(from)) === '' ? count : count + 1;
}

// HellaSwag, WinoGrande and COPA.

function wholeNumber(value: PyValue, name: string): PyValue {
  if (isInt(value)) return value;
  const text = typeof value === 'string' ? strip(value) : '';
  if (!/^[-+]?[0-9]{1,15}$/.test(text)) throw new HookProblem(`${name}: expected a whole number`);
  return literalEval(text.replace(/^\+?(-?)0*(?=[0-9])/, '$1'));
}

export function hellaswagDocument(document: Dict): Dict {
  const context = `${textOf(document, 'ctx_a')} ${capitalize(textOf(document, 'ctx_b'))}`;
  return new Map<string, PyValue>([
    ...document,
    ['query', withoutMarkup(`${textOf(document, 'activity_label')}: ${context}`)],
    ['choices', textsOf(fieldOf(document, 'endings'), 'endings').map(withoutMarkup)],
    ['gold', wholeNumber(fieldOf(document, 'label'), 'label')],
  ]);
}

function gapOf(document: Dict): readonly [before: string, after: string] {
  const sentence = textOf(document, 'sentence');
  const at = sentence.indexOf('_');
  if (at < 0) throw new HookProblem('sentence: there is no "_" in it');
  return [sentence.slice(0, at), sentence.slice(at + 1)];
}

/** The contexts are the choices here: this is the index of the right one. */
export const winograndeText = (document: Dict): PyValue =>
  chosen({ '1': 0, '2': 1 }, textOf(document, 'answer'), 'answer');
export const winograndeTarget = (document: Dict): PyValue => strip(gapOf(document)[1]);
export const winograndeChoices = (document: Dict): PyValue =>
  ['option1', 'option2'].map((option) => gapOf(document)[0] + textOf(document, option));

const CONNECTORS = { cause: 'because', effect: 'therefore' };

/** The premise without its last character, which is a period. */
export function copaText(document: Dict): PyValue {
  const premise = codePoints(strip(textOf(document, 'premise'))).slice(0, -1);
  return `${premise.join('')} ${chosen(CONNECTORS, textOf(document, 'question'), 'question')}`;
}

function copaChoice(document: Dict, name: string): string {
  const [first, ...rest] = codePoints(textOf(document, name));
  if (first === undefined) throw new HookProblem(`${name} is empty`);
  return ` ${first.toLowerCase()}${rest.join('')}`;
}

export const copaTarget = (document: Dict): PyValue =>
  copaChoice(document, intOf(document, 'label') === 0 ? 'choice1' : 'choice2');
export const copaChoices = (document: Dict): PyValue =>
  ['choice1', 'choice2'].map((name) => copaChoice(document, name));
