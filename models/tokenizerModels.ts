/** The `model` of a tokenizer.json: schemas of the types that are read, with bounds on every size. */
import { z } from 'zod';
import { isRecord } from '../system/json.js';

export const MAX_ID = 1 << 22;
export const MAX_PIECE = 1024;
/** Twice those of the largest published vocabularies. */
const MAX_MERGES = 1 << 20;
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

/** Checked by hand: a schema an entry takes a second for a hundred thousand, and loses a piece called __proto__. */
const vocab = z.custom<Readonly<Record<string, number>>>(
  (value) => isRecord(value) && Object.entries(value).every(([text, number]) => isPiece(text) && isId(number)),
  `expected an object of pieces of at most ${MAX_PIECE} characters and their ids below ${MAX_ID}`,
);
const merges = z.custom<readonly (string | readonly [string, string])[]>(
  (value) =>
    Array.isArray(value) &&
    value.length <= MAX_MERGES &&
    value.every((pair: unknown) =>
      Array.isArray(pair)
        ? pair.length === 2 && pair.every(isPiece)
        : typeof pair === 'string' && pair.length <= 2 * MAX_PIECE && /^[^ ]+ [^ ]+$/.test(pair),
    ),
  `expected a list of at most ${MAX_MERGES} pairs of pieces`,
);
const scores = z.custom<readonly (readonly [piece: string, score: number])[]>(
  (value) =>
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= MAX_ID &&
    value.every(
      (entry: unknown) =>
        Array.isArray(entry) && entry.length === 2 && isPiece(entry[0]) && entry[0] !== '' && isScore(entry[1]),
    ),
  `expected 1 to ${MAX_ID} pairs of a piece of 1 to ${MAX_PIECE} characters and a score within ±${MAX_SCORE}`,
);

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

const unigram = z
  .object({
    type: z.literal('Unigram'),
    /** The piece that stands for what no piece covers. A text that needs it where it is absent is refused. */
    unk_id: id.nullish(),
    byte_fallback: flag,
    vocab: scores,
  })
  .refine(({ unk_id: unknown, vocab: pieces }) => (unknown ?? 0) < pieces.length, {
    path: ['unk_id'],
    message: 'it is not in the vocabulary',
  });

const wordPiece = z
  .object({
    type: z.literal('WordPiece'),
    unk_token: unknownToken,
    continuing_subword_prefix: z.string().max(MAX_PIECE).default('##'),
    max_input_chars_per_word: z.int().min(1).max(MAX_WORD).default(100),
    vocab,
  })
  .refine(({ unk_token: token, vocab: pieces }) => Object.hasOwn(pieces, token), {
    path: ['unk_token'],
    message: 'it is not in the vocabulary',
  });

export const tokenizerModel = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('BPE'),
    unk_token: unknownToken.nullish(),
    continuing_subword_prefix: unaffixed,
    end_of_word_suffix: unaffixed,
    fuse_unk: flag,
    byte_fallback: flag,
    ignore_merges: flag,
    vocab,
    merges,
  }),
  z.object({ type: z.literal('WordLevel'), unk_token: unknownToken, vocab }),
  unigram,
  wordPiece,
]);
export type TokenizerModel = z.infer<typeof tokenizerModel>;

export const pieceCount = (model: TokenizerModel): number =>
  model.type === 'Unigram' ? model.vocab.length : Object.keys(model.vocab).length;

/** The ids of pieces; undefined where the model has no such piece. */
export function pieceIndex(model: TokenizerModel): (piece: string) => number | undefined {
  if (model.type !== 'Unigram') {
    const { vocab } = model;
    return (piece) => (Object.hasOwn(vocab, piece) ? vocab[piece] : undefined);
  }
  let ids: ReadonlyMap<string, number> | undefined;
  return (piece) => (ids ??= new Map(model.vocab.map(([text], id) => [text, id]))).get(piece);
}

/** The ids of all pieces. A Unigram model numbers its pieces in order. */
export const pieceIds = (model: TokenizerModel): number[] =>
  model.type === 'Unigram' ? [...model.vocab.keys()] : Object.values(model.vocab);

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
