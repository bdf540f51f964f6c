/** Text operations as Python defines them. Published scores of the public harness depend on them. */

/** str.isspace(): unlike trim(), it includes U+001C–U+001F and U+0085, and not U+FEFF. */
export const PYTHON_SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const LEADING = new RegExp(`^[${PYTHON_SPACE}]+`);
/** Anchored at each run's start by the lookbehind, so that long runs inside a text cost linear time. */
const TRAILING = new RegExp(`(?<![${PYTHON_SPACE}])[${PYTHON_SPACE}]+$|^[${PYTHON_SPACE}]+$`);

/** str.rstrip() */
export const rightStrip = (text: string): string => text.replace(TRAILING, '');
/** str.strip() */
export const strip = (text: string): string => rightStrip(text.replace(LEADING, ''));

/** len(str): the number of code points; a lone surrogate counts as one. */
export function codePointLength(text: string): number {
  let length = 0;
  for (let i = 0; i < text.length; length++) i += (text.codePointAt(i) ?? 0) > 0xffff ? 2 : 1;
  return length;
}

/** Letters of two glyphs with a separate form for the start of a word. */
const TITLE_DIGRAPHS: ReadonlyMap<string, string> = new Map([
  ...['\u01c4', '\u01c5', '\u01c6'].map((letter) => [letter, '\u01c5'] as const),
  ...['\u01c7', '\u01c8', '\u01c9'].map((letter) => [letter, '\u01c8'] as const),
  ...['\u01ca', '\u01cb', '\u01cc'].map((letter) => [letter, '\u01cb'] as const),
  ...['\u01f1', '\u01f2', '\u01f3'].map((letter) => [letter, '\u01f2'] as const),
  ['\u0149', '\u02bcN'],
]);

/** The title-case form of one code point: it differs from upper case for digraphs, ligatures, Georgian and Greek. */
function titleCase(letter: string): string {
  const digraph = TITLE_DIGRAPHS.get(letter);
  if (digraph !== undefined) return digraph;
  // Georgian sentences do not start with a Mtavruli capital.
  if (/^[\u10d0-\u10fa\u10fd-\u10ff]$/.test(letter)) return letter;
  const upper = letter.toUpperCase();
  if (letter >= '\u1f80' && letter <= '\u1ffc' && upper.endsWith('\u0399') && upper.length > 1) {
    // Greek: the iota stays a subscript, joined to the capital if a joined form exists.
    const subscript = `${upper.slice(0, -1)}\u0345`;
    return upper.length === 2 ? subscript.normalize('NFC') : subscript;
  }
  const [first = '', ...rest] = upper;
  // 'ß' becomes 'Ss' and 'ﬁ' becomes 'Fi'.
  return first + rest.join('').toLowerCase();
}

/** str.title(): letters behind a cased one in lower case, the others in title case. */
export function title(text: string): string {
  let titled = '',
    isInWord = false,
    at = 0;
  for (const letter of text) {
    at += letter.length;
    if (!isInWord) titled += titleCase(letter);
    else if (letter === '\u03a3')
      titled += /^\p{Case_Ignorable}*(?!\p{Case_Ignorable})\p{Cased}/u.test(text.slice(at, at + 64)) ? 'σ' : 'ς';
    else titled += letter.toLowerCase();
    isInWord = /\p{Cased}/u.test(letter);
  }
  return titled;
}

/** str.capitalize(): the first code point in title case, the rest in lower case. */
export function capitalize(text: string): string {
  const [first] = text;
  if (first === undefined) return '';
  // The whole text is lowered: whether a capital sigma is final depends on what precedes it.
  return titleCase(first) + text.toLowerCase().slice(first.toLowerCase().length);
}

const SPACES = new RegExp(`^[${PYTHON_SPACE}]+$`);
/** str.isspace() */
export const isSpace = (text: string): boolean => SPACES.test(text);
/** str.lstrip() */
export const leftStrip = (text: string): string => text.replace(LEADING, '');

/** The items of a text as Python counts them. */
export const codePoints = (text: string): string[] => Array.from(text);

/** str.strip(characters), on the sides that are asked for. */
export function stripCharacters(text: string, characters: string, sides: { left: boolean; right: boolean }): string {
  const removed = new Set(characters);
  let from = 0,
    to = text.length;
  for (; sides.left && from < to;) {
    const letter = String.fromCodePoint(text.codePointAt(from) ?? 0);
    if (!removed.has(letter)) break;
    from += letter.length;
  }
  for (; sides.right && to > from;) {
    const pair = text.slice(Math.max(from, to - 2), to);
    const letter = /^[\ud800-\udbff][\udc00-\udfff]$/.test(pair) ? pair : text[to - 1]!;
    if (!removed.has(letter)) break;
    to -= letter.length;
  }
  return text.slice(from, to);
}

/** str.split(): at runs of white space, without empty parts. */
export function splitAtSpace(text: string): string[] {
  const stripped = strip(text);
  return stripped === '' ? [] : stripped.split(new RegExp(`[${PYTHON_SPACE}]+`));
}
