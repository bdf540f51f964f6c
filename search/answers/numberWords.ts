/** Numbers in words, as the Python package word2number reads them: words that it does not know are passed over. */
import { str } from '../../python/show.js';
import { codePointLength, Float, westernDigits } from '../../python/value.js';

const UNITS =
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen ' +
  'eighteen nineteen';
const TENS = 'twenty thirty forty fifty sixty seventy eighty ninety';
const VALUES: ReadonlyMap<string, number> = new Map([
  ...UNITS.split(' ').map((word, value): [string, number] => [word, value]),
  ...TENS.split(' ').map((word, i): [string, number] => [word, 10 * (i + 2)]),
  ['hundred', 100],
  ['thousand', 1e3],
  ['million', 1e6],
  ['billion', 1e9],
]);
const GROUPS = ['billion', 'million', 'thousand'] as const;
/** Python turns no more digits into a number. */
const MAX_DIGITS = 4300;

/** What a group of up to four words comes to; of more, the first alone counts. Undefined for none. */
function groupValue(words: readonly string[]): number | undefined {
  const values = words.map((word) => VALUES.get(word)!);
  const [a = NaN, b = NaN, c = NaN, d = NaN] = values;
  switch (values.length) {
    case 0:
      return undefined;
    case 2:
      return values.includes(100) ? a * b : a + b;
    case 3:
      return a * b + c;
    case 4:
      return a * b + c + d;
    default:
      return a;
  }
}

function wholeValue(words: readonly string[]): number | undefined {
  if (words.length <= 1) return words.length === 0 ? 0 : VALUES.get(words[0]!);
  const places = GROUPS.map((group) => words.indexOf(group));
  const present = places.filter((place) => place >= 0);
  if (present.some((place, i) => i > 0 && place < present[i - 1]!)) return undefined;
  let total = 0;
  let from = 0;
  for (const [i, group] of GROUPS.entries()) {
    const place = places[i]!;
    if (place < 0) continue;
    const value = groupValue(words.slice(from, place));
    if (value === undefined) return undefined;
    total += value * VALUES.get(group)!;
    from = place + 1;
  }
  return from === words.length ? total : total + groupValue(words.slice(from))!;
}

/** The number in digits that a text says in words; the text itself where it says none. */
export function digitsOfWords(text: string): string {
  const spaced = text.replaceAll('-', ' ').toLowerCase();
  if (/^\p{Nd}+$/u.test(spaced))
    return codePointLength(spaced) > MAX_DIGITS ? text : westernDigits(spaced).replace(/^0+(?=\d)/, '');
  const words = spaced.split(/[\s\x1c-\x1f\x85]+/).filter((word) => word === 'point' || VALUES.has(word));
  const isTwice = (word: string): boolean => words.indexOf(word) !== words.lastIndexOf(word);
  if (words.length === 0 || [...GROUPS, 'point'].some(isTwice)) return text;
  const point = words.indexOf('point');
  const value = wholeValue(point < 0 ? words : words.slice(0, point));
  if (value === undefined) return text;
  const decimals = point < 0 ? [] : words.slice(point + 1).map((word) => VALUES.get(word)!);
  if (decimals.length === 0 || decimals.some((digit) => digit > 9)) return String(value);
  return str(new Float(value + Number(`0.${decimals.join('')}`)));
}
