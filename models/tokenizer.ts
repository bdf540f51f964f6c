/** Tokenizers of checkpoints as functions from texts to tokens and back, in any thread. */
import { UserError } from '../errors.js';
import { quote } from '../system/json.js';
import { encodeSharing, type Around } from './sharedHeads.js';
import { cutsOf, SharedLines } from './sharedLines.js';
import {
  describeTokenizer,
  jsonOf,
  REPLACE_HINTS,
  type TokenizerDescription,
  type TokenizerSpec,
} from './tokenizerFiles.js';
import { createNative, type CheckedNative } from './nativeTokenizer.js';

/** Texts to tokens and back. The functions reject with a UserError where the tokenizer does not fit the model. */
export interface Tokenizer {
  /** Token ids of a text, with the special tokens that the tokenizer adds by itself (BOS, say). */
  encode(text: string): Promise<number[]>;
  /** encode of each text, in order: much faster than one by one. */
  encodeBatch(texts: readonly string[]): Promise<readonly ArrayLike<number>[]>;
  /** Token ids of a text that names its special tokens itself: none is added. */
  encodeWritten(text: string): Promise<number[]>;
  /** The text of tokens, without special tokens. Bytes that are no character yet become U+FFFD. */
  decode(ids: readonly number[]): Promise<string>;
}

/** A tokenizer with what its checkpoint says of it. */
export interface OpenTokenizer extends Tokenizer, TokenizerDescription {}

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** The library names a place in the text that was written for it, which says nothing of the file. */
function whyUnreadable(error: unknown): string {
  const problem = message(error).replace(/ at line \d+ column \d+$/, '');
  const piece = /^Token `(.*)` out of vocabulary$/s.exec(problem)?.[1];
  return piece === undefined ? quote(problem, 200) : `a merge needs ${quote(piece)}, which is not in the vocabulary`;
}

function describe(spec: TokenizerSpec): string {
  return spec.kind === 'json' ? spec.where : spec.path;
}

/** Refuses a token that the model has no embedding for. */
function checkIds(ids: ArrayLike<number>, text: string, where: string, embeddings: number): void {
  for (let i = 0; i < ids.length; i++) {
    if (ids[i]! >= embeddings)
      throw new UserError(
        `${where}: token ${ids[i]} of the text ${quote(text)} has no embedding: the model has ${embeddings}`,
        'use the tokenizer.json of the model',
      );
  }
}

/** Puts a space before a text that has words at its beginning: what begins with a control token has none there. */
function spaceBefore(control: readonly string[]): (text: string) => string {
  const begins = new Set(control.map((token) => token[0]));
  return (text) =>
    text === '' || (begins.has(text[0]) && control.some((token) => text.startsWith(token))) ? text : ` ${text}`;
}

function wrap(
  { tokenizer: native, mayCut, about: { canDecode, cutsLines } }: CheckedNative,
  around: Around,
  spec: TokenizerSpec,
): Tokenizer {
  const where = describe(spec);
  const embeddings = spec.embeddings ?? Infinity;
  const guarded = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      throw new UserError(
        `${where}: cannot tokenize: ${quote(message(error), 200)}`,
        'use the tokenizer.json of the original model',
        { cause: error },
      );
    }
  };
  const spaced = spec.spaceUnless === undefined ? undefined : spaceBefore(spec.spaceUnless);
  const encodeEach = async (texts: string[]): Promise<number[][]> => {
    const given = spaced === undefined ? texts : texts.map(spaced);
    return (await native.encodeBatch(given, { addSpecialTokens: false })).map((encoding) => encoding.getIds());
  };
  const { before, after } = around;
  const encodeAlike = (texts: string[], beside: Around): Promise<readonly ArrayLike<number>[]> =>
    mayCut === undefined ? encodeEach(texts) : encodeSharing(texts, mayCut, beside, encodeEach);
  let lines: Promise<SharedLines | undefined> | undefined;
  const encodeBatch = async (texts: readonly string[]): Promise<readonly ArrayLike<number>[]> => {
    const all = await guarded(async () => {
      const shared =
        cutsLines && texts.some((text) => cutsOf(text).length > 0)
          ? await (lines ??= SharedLines.open((parts) => encodeAlike(parts, { before: [], after: [] })))
          : undefined;
      if (shared !== undefined) return shared.encodeBatch(texts, around);
      const encoded = await encodeAlike([...texts], around);
      return mayCut === undefined ? encoded.map((ids) => [...before, ...Array.from(ids), ...after]) : encoded;
    });
    all.forEach((ids, i) => {
      checkIds(ids, texts[i]!, where, embeddings);
    });
    return all;
  };
  return {
    encode: async (text) => Array.from((await encodeBatch([text]))[0]!),
    encodeBatch,
    encodeWritten: async (text) => {
      const [ids = []] = await guarded(() => encodeEach([text]));
      checkIds(ids, text, where, embeddings);
      return ids;
    },
    decode: (ids) => {
      if (!canDecode)
        throw new UserError(
          `${where}: its decoder is not supported: tokens cannot be shown as text`,
          'use the tokenizer.json of the original model',
        );
      return native.decode([...ids], true);
    },
  };
}

/** The tokenizer of a spec, in any thread. Throws UserError if it cannot be made. */
export function createTokenizer(spec: TokenizerSpec): Tokenizer {
  const where = describe(spec);
  const file = jsonOf(spec);
  try {
    const native = createNative(file, where, spec.tokens ?? [], spec.digest);
    return wrap(native, { ...native.about.beside, ...spec.beside }, spec);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(
      `${where}: not a tokenizer that can be read: ${whyUnreadable(error)}`,
      REPLACE_HINTS[spec.kind],
      { cause: error },
    );
  }
}

/**
 * The tokenizer that createTokenizer makes, made when it is first asked for something: a large one takes half a second
 * of the thread, and is not needed where others tokenize.
 */
export function deferredTokenizer(spec: TokenizerSpec): Tokenizer {
  let made: Tokenizer | undefined;
  const tokenizer = (): Tokenizer => (made ??= createTokenizer(spec));
  return {
    encode: async (text) => tokenizer().encode(text),
    encodeBatch: async (texts) => tokenizer().encodeBatch(texts),
    encodeWritten: async (text) => tokenizer().encodeWritten(text),
    decode: async (ids) => tokenizer().decode(ids),
  };
}

/** Opens the tokenizer of the checkpoint `dir`. Throws UserError if there is none or it cannot be read. */
export function openTokenizer(dir: string): OpenTokenizer {
  const description = describeTokenizer(dir);
  return { ...createTokenizer(description.spec), ...description };
}
