/**
 * Regular expressions that whole texts match, in the syntax that ECMAScript and Python share: that of ECMAScript's flag
 * u, groups named by `(?P<name>`, `\A`, `\Z`, and `(?i)` in front. Anchors and looking ahead mean what they do there;
 * looking behind, borders of words and references to groups are refused.
 */
import type { Regular } from '../grammar.js';
import { characterSet, type CharacterSet } from '../schema/characters.js';
import { parsePattern } from '../schema/pattern.js';
import { wholeTexts } from '../schema/patternLanguage.js';

const ANY_CASE = '(?i)';

/** Throws GrammarError where the expression is invalid, no regular language, or not supported. */
export const regexLanguage = (source: string): Regular => {
  const isAnyCase = source.startsWith(ANY_CASE);
  const fold = isAnyCase ? withCases : (set: CharacterSet): CharacterSet => set;
  return wholeTexts(parsePattern(isAnyCase ? source.slice(ANY_CASE.length) : source, { isPython: true, fold }));
};

/** Characters that differ by case only, by the one that stands for all of them. */
let families: ReadonlyMap<number, readonly number[]> | undefined;
const LAST_WITH_CASE = 0x1ffff;
/** Its capital is that of i, which is another letter. */
const DOTLESS_I = 0x131;

const familiesOfCases = (): ReadonlyMap<number, readonly number[]> => {
  const found = new Map<number, number[]>();
  for (let code = 0; code <= LAST_WITH_CASE; code++) {
    if (code === DOTLESS_I) continue;
    const upper = only(String.fromCodePoint(code).toUpperCase()) ?? code;
    const folded = only(String.fromCodePoint(upper).toLowerCase()) ?? upper;
    if (folded === code) continue;
    const family = found.get(folded);
    if (family === undefined) found.set(folded, [folded, code]);
    else family.push(code);
  }
  return found;
};

/** The character that a text consists of. */
const only = (text: string): number | undefined => {
  const code = text.codePointAt(0) ?? 0;
  return String.fromCodePoint(code) === text ? code : undefined;
};

const withCases = (set: CharacterSet): CharacterSet => {
  families ??= familiesOfCases();
  const has = (code: number): boolean => set.some(([first, last]) => first <= code && code <= last);
  const others = [...families.values()].filter((family) => family.some(has)).flat();
  return others.length === 0 ? set : characterSet([...set, ...others.map((code) => [code, code] as const)]);
};
