/**
 * Encodes the common beginning of similar texts once, for example of the choices of a question. This is exact if no
 * piece of the vocabulary crosses the beginning of a word: then no merge does, and the tokens of a text are the tokens
 * of its parts.
 */

/** SentencePiece's mark for a space, which it puts before every word. */
export const SPACE = '▁';
/** A head shorter than this, in UTF-16 units, is not worth encoding separately. */
const SHORTEST_HEAD = 16;

/** The parts of a tokenizer that determine where texts may be cut. */
export interface WordRule {
  /** Every piece of the vocabulary. */
  readonly pieces: Iterable<string>;
  /** Tokens that are searched for in a text before anything else. */
  readonly added: readonly string[];
}

/**
 * For a byte-pair encoding without pre-tokenizer, whose normalizer puts a mark before the text and in place of each
 * space: decides which texts may be cut at a space that follows another character. Undefined if none may: a piece has a
 * mark after another character, the mark itself is not a piece, or a token to search for contains a space.
 */
export function cuttableTexts({ pieces, added }: WordRule): ((text: string) => boolean) | undefined {
  let hasMark = false;
  for (const piece of pieces) {
    if (piece === SPACE) hasMark = true;
    if (/[^▁]▁/u.test(piece)) return undefined;
  }
  if (!hasMark || added.some((token) => token === '' || token.includes(' ') || token.includes(SPACE))) return undefined;
  return (text) => !added.some((token) => text.includes(token));
}

/**
 * The last position at or before `end` where a word begins after a space that is alone or the first of several; 0 if
 * there is none.
 */
function cutBefore(text: string, end: number): number {
  for (let at = text.lastIndexOf(' ', end); at > 0; at = text.lastIndexOf(' ', at - 1)) {
    if (text[at - 1] !== ' ' && text[at - 1] !== SPACE && at + 1 < text.length) return at;
  }
  return 0;
}

function commonLength(a: string, b: string): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a.charCodeAt(length) === b.charCodeAt(length)) length++;
  return length;
}

/** Special tokens before and after every text. */
export interface Around {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/**
 * Tokens of each text, with those `around` it, by `encode`, which encodes each text of a list separately, without them.
 * Neighbouring texts with a common beginning share its tokens. Only texts that `mayCut` allows are cut. All results are
 * views of one array.
 */
export async function encodeSharing(
  texts: readonly string[],
  mayCut: (text: string) => boolean,
  { before, after }: Around,
  encode: (parts: string[]) => Promise<readonly (readonly number[])[]>,
): Promise<Int32Array[]> {
  const parts: string[] = [];
  const places: { readonly head: number; readonly tail: number }[] = [];
  let head = '',
    headAt = -1;
  for (const [i, text] of texts.entries()) {
    const isCut = mayCut(text);
    if (
      !(isCut && headAt >= 0 && text.startsWith(head) && text[head.length] === ' ' && head.length + 1 < text.length)
    ) {
      const next = texts[i + 1];
      const cut = isCut && next !== undefined && mayCut(next) ? cutBefore(text, commonLength(text, next) - 1) : 0;
      head = cut >= SHORTEST_HEAD ? text.slice(0, cut) : '';
      headAt = head === '' ? -1 : parts.push(head) - 1;
    }
    // The space between is the mark that the normalizer puts before the tail.
    places.push({ head: headAt, tail: parts.push(headAt < 0 ? text : text.slice(head.length + 1)) - 1 });
  }
  const found = await encode(parts);
  const pieces = places.map(({ head: first, tail }) => [before, first < 0 ? [] : found[first]!, found[tail]!, after]);
  const ids = new Int32Array(pieces.flat().reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  return pieces.map((each) => {
    const from = at;
    for (const piece of each) {
      ids.set(piece, at);
      at += piece.length;
    }
    return ids.subarray(from, at);
  });
}
