/** Encodes once what many texts have in common: the beginning of a question's choices, and the lines of shots. */
import { at as elementAt, zip } from '../../system/at.js';
import type { AddedToken, TokenizerJson } from './json.js';
import { CROSSES } from './vocabulary.js';

// Encodes the common beginning of similar texts once, for example of the choices of a question. This is exact if no
// piece of the vocabulary crosses the beginning of a word: then no merge does, and the tokens of a text are the tokens
// of its parts.

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
  const pieces = places.map(({ head: first, tail }) => [
    before,
    first < 0 ? [] : elementAt(found, first),
    elementAt(found, tail),
    after,
  ]);
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

// Encodes lines once that many texts have in common: the shots of a task, and a question before each of its choices. A
// text is cut where a line begins with a letter, between `\n` and one of A to Z or a to z. This is exact under three
// conditions. No piece of the vocabulary holds such a place, so no merge crosses it and the tokens of both sides are
// those of the text. Nothing that runs before the merges changes or searches across it. And what splits a text before
// the merges goes on from there as from any other beginning of a line, which probes show when a tokenizer is opened.
// Each part is encoded with a line's end before it and a letter after it, whose tokens are left out: it sees the same
// kinds of characters on both sides as in its text.

/** Encodes each text of a list separately, without special tokens. */
export type EncodeEach = (texts: string[]) => Promise<readonly ArrayLike<number>[]>;

const LEFT = '\n';
const RIGHT = 'a';
/** UTF-16 units of the lines that are remembered; twice that at most. */
const MAX_HELD = 4 << 20;

const NORMALIZERS: ReadonlySet<string> = new Set(['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents']);

/** Whether added tokens allow texts to be cut where a line begins. */
export const mayCutAtTokens = (tokens: readonly Pick<AddedToken, 'content' | 'lstrip'>[]): boolean =>
  !tokens.some(({ content, lstrip }) => CROSSES.test(content) || (lstrip && /^[A-Za-z]/.test(content)));

/** Whether a tokenizer's parts allow texts to be cut where a line begins; probes decide where it splits texts first. */
export function mayCutLines({ model, pieces, added, normalizers, preTokenizers }: TokenizerJson): boolean {
  if (model.type !== 'BPE' && model.type !== 'Unigram') return false;
  const letters = Array.from({ length: 26 }, (_, i) => String.fromCharCode(97 + i));
  const isPiece = (text: string): boolean => pieces.idOf(text) !== undefined;
  if (!letters.every((letter) => isPiece(letter) && isPiece(letter.toUpperCase()))) return false;
  if (pieces.crossesLines) return false;
  if (!mayCutAtTokens(added)) return false;
  const areLocal = normalizers.every((each) =>
    each.type === 'Prepend'
      ? true
      : each.type === 'Replace'
        ? 'String' in each.pattern && !/[\nA-Za-z]/.test(each.pattern.String + each.content)
        : NORMALIZERS.has(each.type),
  );
  // Without looking back, what a pattern matches from a place on does not depend on what is before it.
  return (
    areLocal &&
    preTokenizers.every((each) =>
      each.type === 'Split'
        ? 'Regex' in each.pattern
          ? !/\(\?<[=!]/.test(each.pattern.Regex)
          : !/[\nA-Za-z]/.test(each.pattern.String)
        : each.type === 'ByteLevel' || each.type === 'Digits' || each.type === 'Metaspace',
    )
  );
}

const LEFT_PROBES = [
  'a\n',
  'a\n\n',
  '.\n',
  '."\n\n',
  ' \n',
  '1 \n\n',
  ')\n\n\n',
  ':\r\n',
  '\t\n',
  'é\n',
  '日\n',
  '-- \n\n',
];
const RIGHT_PROBES = [
  'a',
  'Abc def',
  "I'm 12.",
  'iPhone\nx',
  'A. x',
  'x1',
  'Question: What?\nAnswer:',
  'zÉ日',
  'T\n\n',
];

/** Lines and their tokens; once there are many, those that were not used lately are forgotten. */
class Memo {
  #recent = new Map<string, ArrayLike<number>>();
  #older = new Map<string, ArrayLike<number>>();
  #held = 0;

  get(line: string): ArrayLike<number> | undefined {
    const found = this.#recent.get(line);
    if (found !== undefined) return found;
    const older = this.#older.get(line);
    if (older !== undefined) this.put(line, older);
    return older;
  }

  put(line: string, tokens: ArrayLike<number>): void {
    if (this.#held >= MAX_HELD) [this.#older, this.#recent, this.#held] = [this.#recent, new Map(), 0];
    // A copy: a part of a text would keep the whole of it. A surrogate by itself is encoded as what it becomes here.
    this.#recent.set(Buffer.from(line).toString(), tokens);
    this.#held += line.length;
  }
}

/** Where lines begin with a letter. */
export function cutsOf(text: string): number[] {
  const cuts: number[] = [];
  for (let at = text.indexOf('\n') + 1; at > 0; at = text.indexOf('\n', at) + 1) {
    const code = text.charCodeAt(at) | 32;
    if (code >= 97 && code <= 122) cuts.push(at);
  }
  return cuts;
}

/** Tokens that are known, or the number of a part that is being encoded. */
type FoundTokens = ArrayLike<number> | number;

/** The parts of a batch that have to be encoded. */
class Jobs {
  readonly texts: string[] = [];
  readonly #finish: ((ids: ArrayLike<number>) => ArrayLike<number>)[] = [];

  add(text: string, finish: (ids: ArrayLike<number>) => ArrayLike<number>): number {
    this.#finish.push(finish);
    return this.texts.push(text) - 1;
  }

  async run(encode: EncodeEach): Promise<ArrayLike<number>[]> {
    const encoded = this.texts.length === 0 ? [] : await encode(this.texts);
    return zip(this.#finish, encoded).map(([finish, each]) => finish(each));
  }
}

const part = (ids: ArrayLike<number>, from: number, to: number): Int32Array => Int32Array.from(ids).slice(from, to);

export class SharedLines {
  readonly #encode: EncodeEach;
  /** Tokens of what is put on either side of a part. */
  readonly #left: number;
  readonly #right: number;
  readonly #firsts = new Memo();
  readonly #middles = new Memo();

  private constructor(encode: EncodeEach, left: number, right: number) {
    this.#encode = encode;
    this.#left = left;
    this.#right = right;
  }

  /** Undefined where a probe shows that texts may not be cut. */
  static async open(encode: EncodeEach): Promise<SharedLines | undefined> {
    const [bare, sided] = await encode([LEFT, LEFT + RIGHT]);
    const lines = new SharedLines(encode, bare!.length, sided!.length - bare!.length);
    const probes = LEFT_PROBES.flatMap((left) => RIGHT_PROBES.map((right) => left + right));
    const [whole, cut] = [await encode(probes), await lines.encodeBatch(probes, { before: [], after: [] })];
    const areSame = zip(whole, cut).every(([ids, own]) =>
      Buffer.from(Int32Array.from(ids).buffer).equals(bytesOf(own)),
    );
    return areSame && lines.#right > 0 ? lines : undefined;
  }

  /** Tokens of each text, with those `around` it. All results are views of one array. */
  async encodeBatch(texts: readonly string[], { before, after }: Around): Promise<Int32Array[]> {
    const jobs = new Jobs();
    const begun = new Map<string, number>();
    const partsOf = texts.map((text): readonly FoundTokens[] => {
      const cuts = cutsOf(text);
      const last = cuts.at(-1);
      if (last === undefined) return [jobs.add(text, (ids) => ids)];
      return [
        this.#first(text.slice(0, cuts[0]), jobs, begun),
        ...cuts.slice(1).map((end, i) => this.#middle(text.slice(cuts[i], end), jobs, begun)),
        // The last part is as a rule in no other text.
        jobs.add(LEFT + text.slice(last), (ids) => part(ids, this.#left, ids.length)),
      ];
    });
    const made = await jobs.run(this.#encode);
    const tokensOf = (found: FoundTokens): ArrayLike<number> =>
      typeof found === 'number' ? elementAt(made, found) : found;
    const size = (parts: readonly FoundTokens[]): number =>
      parts.reduce<number>((sum, each) => sum + tokensOf(each).length, before.length + after.length);
    const ids = new Int32Array(partsOf.reduce((sum, parts) => sum + size(parts), 0));
    let at = 0;
    return partsOf.map((parts) => {
      const from = at;
      for (const piece of [before, ...parts.map(tokensOf), after]) {
        ids.set(piece, at);
        at += piece.length;
      }
      return ids.subarray(from, at);
    });
  }

  #first(line: string, jobs: Jobs, begun: Map<string, number>): FoundTokens {
    return this.#known(this.#firsts, line, begun, line + RIGHT, jobs, (ids) => part(ids, 0, ids.length - this.#right));
  }

  #middle(line: string, jobs: Jobs, begun: Map<string, number>): FoundTokens {
    return this.#known(this.#middles, line, begun, LEFT + line + RIGHT, jobs, (ids) =>
      part(ids, this.#left, ids.length - this.#right),
    );
  }

  /** `text`: the line between what is put around it. No two lines of either kind have the same. */
  #known(
    memo: Memo,
    line: string,
    begun: Map<string, number>,
    text: string,
    jobs: Jobs,
    cut: (ids: ArrayLike<number>) => ArrayLike<number>,
  ): FoundTokens {
    const found = memo.get(line) ?? begun.get(text);
    if (found !== undefined) return found;
    const job = jobs.add(text, (ids) => {
      const tokens = cut(ids);
      memo.put(line, tokens);
      return tokens;
    });
    begun.set(text, job);
    return job;
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Int32Array): Buffer => Buffer.from(buffer, byteOffset, byteLength);
