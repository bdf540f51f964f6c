/**
 * The language of a text, where the public harness asks langdetect. Most scripts belong to one language; within the
 * others, frequent short words decide.
 */
import { LANGUAGES, type Script } from './languageWords.js';

/** Scripts that a language has to itself. */
const ALONE: readonly (readonly [script: string, code: string])[] = [
  ['Hangul', 'ko'],
  ['Thai', 'th'],
  ['Kannada', 'kn'],
  ['Gurmukhi', 'pa'],
  ['Telugu', 'te'],
  ['Tamil', 'ta'],
  ['Gujarati', 'gu'],
  ['Bengali', 'bn'],
  ['Malayalam', 'ml'],
  ['Hebrew', 'he'],
  ['Greek', 'el'],
];
const JAPANESE = /\p{Script=Hiragana}|\p{Script=Katakana}/gu;
const HAN = /\p{Script=Han}/gu;
/** What is looked at of a longer text. */
const MAX_LETTERS = 20_000;
/** How much a letter that few languages use counts, in words. */
const LETTER_WEIGHT = 0.25;
/** Without any known word: English is the most likely. */
const DEFAULTS: Readonly<Record<Script, string>> = { Latin: 'en', Cyrillic: 'ru', Arabic: 'ar', Devanagari: 'hi' };

const count = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0;

interface Votes {
  readonly words: ReadonlyMap<string, readonly (readonly [code: string, weight: number])[]>;
  readonly letters: readonly (readonly [code: string, pattern: RegExp])[];
}

/** A word that several languages share counts less. */
function votesOf(script: Script): Votes {
  const languages = Object.entries(LANGUAGES[script]);
  const codes = new Map<string, string[]>();
  for (const [code, { words }] of languages)
    for (const word of new Set(words.split(' '))) codes.set(word, [...(codes.get(word) ?? []), code]);
  return {
    words: new Map([...codes].map(([word, all]) => [word, all.map((code) => [code, 1 / all.length] as const)])),
    letters: languages.flatMap(([code, { letters }]) =>
      letters === undefined ? [] : [[code, new RegExp(`[${letters}]`, 'gu')] as const],
    ),
  };
}

const known = new Map<Script, Votes>();

function within(script: Script, text: string): string {
  const votes = known.get(script) ?? votesOf(script);
  known.set(script, votes);
  const sums = new Map<string, number>();
  const add = (code: string, weight: number): unknown => sums.set(code, (sums.get(code) ?? 0) + weight);
  for (const word of text.match(/[\p{L}\p{M}]+/gu) ?? [])
    for (const [code, weight] of votes.words.get(word) ?? []) add(code, weight);
  for (const [code, pattern] of votes.letters) add(code, LETTER_WEIGHT * count(text, pattern));
  const [best] = [...sums].filter(([, sum]) => sum > 0).sort(([, a], [, b]) => b - a);
  return best?.[0] ?? DEFAULTS[script];
}

/** An ISO 639-1 code; Chinese is `zh-cn`. Undefined for a text without letters of a known script. */
export function languageOf(text: string): string | undefined {
  const lower = text.slice(0, MAX_LETTERS).toLowerCase().normalize('NFC');
  const scripts = Object.keys(LANGUAGES) as Script[];
  const of = (script: string): number => count(lower, new RegExp(`\\p{Script=${script}}`, 'gu'));
  const [kana, han] = [count(lower, JAPANESE), count(lower, HAN)];
  const found = [
    ...scripts.map((script) => ({ letters: of(script), code: () => within(script, lower) })),
    ...ALONE.map(([script, code]) => ({ letters: of(script), code: () => code })),
    { letters: kana + han, code: () => (kana * 20 >= kana + han ? 'ja' : 'zh-cn') },
  ];
  const most = Math.max(...found.map(({ letters }) => letters));
  return most === 0 ? undefined : found.find(({ letters }) => letters === most)!.code();
}
