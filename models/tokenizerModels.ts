/** The `model` of a tokenizer.json: schemas of the types that are read, with bounds on every size. */
import { z } from 'zod';
import { isRecord, quote } from '../system/json.js';
import { MAX_ID, MAX_PIECE, piecesOf, piecesOfList, type Pieces } from './pieces.js';

/** Twice those of the largest published vocabularies. */
export const MAX_MERGES = 1 << 20;
/** Members of a list of components. */
export const MAX_COMPONENTS = 16;
/** Log-probabilities of pieces are about -20 to 0. Sums of bounded ones stay finite. */
const MAX_SCORE = 1e6;
/** WordPiece compares every part of a word with the vocabulary. */
const MAX_WORD = 1000;

const isId = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value < MAX_ID;
const isPiece = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_PIECE;
const isScore = (value: unknown): value is number => typeof value === 'number' && Math.abs(value) <= MAX_SCORE;

export const id = z
  .int()
  .min(0)
  .max(MAX_ID - 1);
export const short = z.string().min(1).max(256);
/** A component without settings. */
export const plain = <T extends string>(type: T): z.ZodObject<{ type: z.ZodLiteral<T> }> =>
  z.object({ type: z.literal(type) });
const flag = z.boolean().optional();
const unaffixed = z.literal('').nullish();
const unknownToken = z.string().max(MAX_PIECE);

const bpe = z.object({
  type: z.literal('BPE'),
  unk_token: unknownToken.nullish(),
  continuing_subword_prefix: unaffixed,
  end_of_word_suffix: unaffixed,
  fuse_unk: flag,
  byte_fallback: flag,
  ignore_merges: flag,
});
const wordLevel = z.object({ type: z.literal('WordLevel'), unk_token: unknownToken });
const wordPiece = z.object({
  type: z.literal('WordPiece'),
  unk_token: unknownToken,
  continuing_subword_prefix: z.string().max(MAX_PIECE).default('##'),
  max_input_chars_per_word: z.int().min(1).max(MAX_WORD).default(100),
});
const unigram = z.object({
  type: z.literal('Unigram'),
  /** The piece that stands for what no piece covers. A text that needs it where it is absent is refused. */
  unk_id: id.nullish(),
  byte_fallback: flag,
});

/** Everything of a model but its vocabulary and merges. */
export const modelSettings = z.discriminatedUnion('type', [bpe, wordLevel, unigram, wordPiece]);
export type ModelSettings = z.infer<typeof modelSettings>;

type Vocab = Readonly<Record<string, number>>;
export type Merge = string | readonly [string, string];
type Scores = readonly (readonly [piece: string, score: number])[];

/** The vocabulary of a model as objects. */
export interface WholeVocabulary {
  readonly vocab: Vocab | Scores;
  readonly merges?: readonly Merge[];
}

/** Says what is wrong, at a key of the model. */
export type Fail = (key: string, what: string) => never;

/** Checked by hand: a schema an entry takes a second for a hundred thousand, and loses a piece called __proto__. */
function checkVocab(value: unknown, fail: Fail): Vocab {
  const expected = `expected an object of pieces of at most ${MAX_PIECE} characters and their ids below ${MAX_ID}`;
  if (!isRecord(value)) return fail('vocab', expected);
  const texts = new Map<number, string>();
  for (const [text, number] of Object.entries(value)) {
    if (!isPiece(text) || !isId(number)) return fail('vocab', `${expected}; ${quote(text)} is ${quote(number)}`);
    const other = texts.get(number);
    if (other !== undefined) return fail('vocab', `${quote(other)} and ${quote(text)} both have the id ${number}`);
    texts.set(number, text);
  }
  return value as Vocab;
}

const isMerge = (pair: unknown): pair is Merge =>
  Array.isArray(pair)
    ? pair.length === 2 && pair.every(isPiece)
    : typeof pair === 'string' && pair.length <= 2 * MAX_PIECE && /^[^ ]+ [^ ]+$/.test(pair);

function checkMerges(value: unknown, fail: Fail): readonly Merge[] {
  if (!Array.isArray(value) || value.length > MAX_MERGES)
    return fail('merges', `expected a list of at most ${MAX_MERGES} pairs of pieces`);
  // The library takes lists or texts, not both in one file.
  const stray = value.findIndex((pair: unknown) => !isMerge(pair) || typeof pair !== typeof value[0]);
  if (stray !== -1)
    return fail('merges', `merge ${stray + 1} of ${value.length} is no pair of pieces: ${quote(value[stray])}`);
  return value as readonly Merge[];
}

function checkScores(value: unknown, fail: Fail): Scores {
  const isEntry = (entry: unknown): boolean =>
    Array.isArray(entry) && entry.length === 2 && isPiece(entry[0]) && entry[0] !== '' && isScore(entry[1]);
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_ID || !value.every(isEntry))
    return fail(
      'vocab',
      `expected 1 to ${MAX_ID} pairs of a piece of 1 to ${MAX_PIECE} characters and a score within ±${MAX_SCORE}`,
    );
  return value as Scores;
}

/** The vocabulary of a model that JSON.parse has read. */
export function checkVocabulary(
  { type }: ModelSettings,
  model: Readonly<Record<string, unknown>>,
  fail: Fail,
): WholeVocabulary & { readonly pieces: Pieces } {
  if (type === 'Unigram') {
    const vocab = checkScores(model['vocab'], fail);
    return { vocab, pieces: piecesOfList(vocab) };
  }
  const vocab = checkVocab(model['vocab'], fail);
  const pieces = piecesOf(vocab);
  return type === 'BPE' ? { vocab, merges: checkMerges(model['merges'], fail), pieces } : { vocab, pieces };
}

/** What the settings say of the pieces. */
export function checkUnknown(settings: ModelSettings, pieces: Pieces, fail: Fail): void {
  const isOutside =
    settings.type === 'Unigram'
      ? (settings.unk_id ?? 0) >= pieces.count
      : settings.type === 'WordPiece' && pieces.idOf(settings.unk_token) === undefined;
  if (isOutside) fail(settings.type === 'Unigram' ? 'unk_id' : 'unk_token', 'it is not in the vocabulary');
}

/** Two different pieces with one id; undefined if there are none. */
export function sharedId(
  pieces: Iterable<readonly [piece: string, id: number]>,
): { readonly id: number; readonly pieces: readonly [string, string] } | undefined {
  const texts = new Map<number, string>();
  for (const [piece, id] of pieces) {
    const other = texts.get(id);
    if (other !== undefined && other !== piece) return { id, pieces: [other, piece] };
    texts.set(id, piece);
  }
  return undefined;
}
