/** Tokenizers of checkpoints, opened and called through the native library. */
import { at as elementAt } from '../../system/at.js';
import { AddedToken, BPE, Tokenizer as NativeTokenizer } from 'tokenizers';
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';
import { aboutOf, type AboutTokenizer, cacheFor, keepTokenizer, keptTokenizer, sameBytes } from './cache.js';
import { describeTokenizer, jsonOf, REPLACE_HINTS, type TokenizerDescription, type TokenizerSpec } from './files.js';
import { mergesWholeTexts, parseTokenizerJson, type TokenizerJson, writeTokenizerJson } from './json.js';
import { Detokenizer } from './detokenizer.js';
import { type TokenFlags, withTokens } from './namedTokens.js';
import { type Around, cutsOf, cuttableTexts, encodeSharing, mayCutAtTokens, SharedLines, SPACE } from './shared.js';

// The tokenizer of the native library for a tokenizer.json.

/** A tokenizer of the library, and what it may be spared. */
export interface OpenedNative {
  readonly tokenizer: NativeTokenizer;
  /** Decides which texts may be cut at words; see sharedHeads.ts. */
  readonly mayCut?: (text: string) => boolean;
}

/** Whether these normalizers put a mark before the text and in place of each space, and do nothing else. */
function marksSpaces(normalizers: TokenizerJson['normalizers']): boolean {
  const [prepend, replace, ...others] = normalizers;
  return (
    others.length === 0 &&
    prepend?.type === 'Prepend' &&
    prepend.prepend === SPACE &&
    replace?.type === 'Replace' &&
    'String' in replace.pattern &&
    replace.pattern.String === ' ' &&
    replace.content === SPACE
  );
}

/** Adds the tokens of other files, as transformers does it. */
function withTokensOf(tokenizer: NativeTokenizer, tokens: readonly TokenFlags[]): NativeTokenizer {
  const added = tokens.map(
    ({ content, special, single_word: singleWord, lstrip: leftStrip, rstrip: rightStrip, normalized }) =>
      new AddedToken(content, special, { singleWord, leftStrip, rightStrip, normalized }),
  );
  if (added.length > 0) tokenizer.addAddedTokens(added);
  return tokenizer;
}

/**
 * A tokenizer that merges whole texts, without the library's cache. The package takes its capacity only with a bare
 * model, so the rest is built around a vocabulary of the added tokens.
 */
function createWhole(json: TokenizerJson): OpenedNative {
  const { model, added, later, pieces, normalizers } = json;
  const unknown = model.type === 'BPE' ? (model.unk_token ?? '') : '';
  const { vocab: stated, merges: pairs = [] } = json.vocabulary();
  const vocab = stated as Readonly<Record<string, number>>;
  const tokens = added.slice(added.length - later);
  // No prototype: a token may be called __proto__.
  const named = Object.create(null) as Record<string, number>;
  for (const { content, id } of added) named[content] = pieces.idOf(content) ?? id;
  named[unknown] = pieces.idOf(unknown) ?? 0;
  const bare = Buffer.from(`"vocab":${JSON.stringify(named)},"merges":[]`);
  const tokenizer = withTokensOf(NativeTokenizer.fromString(writeTokenizerJson(json, [bare]).toString()), tokens);
  const merges = pairs.flatMap((pair): [string, string][] => {
    // The library takes such a text for a heading.
    if (typeof pair === 'string' && pair.startsWith('#version')) return [];
    const [left = '', right = ''] = typeof pair === 'string' ? pair.split(' ') : pair;
    return [[left, right]];
  });
  const { fuse_unk: fuseUnk = false, byte_fallback: byteFallback = false } = model.type === 'BPE' ? model : {};
  tokenizer.setModel(BPE.init(vocab, merges, { cacheCapacity: 0, unkToken: unknown, fuseUnk, byteFallback }));
  const mayCut = marksSpaces(normalizers)
    ? cuttableTexts({ pieces: Object.keys(vocab), added: added.map(({ content }) => content) })
    : undefined;
  return { tokenizer, ...defined({ mayCut }) };
}

/** A tokenizer of the library with what was found when its file was checked. */
export interface CheckedNative extends OpenedNative {
  readonly about: AboutTokenizer;
}

const withCuts = (about: AboutTokenizer, tokens: readonly TokenFlags[]): AboutTokenizer => ({
  ...about,
  cutsLines: about.cutsLines && mayCutAtTokens(tokens),
});

/**
 * The native tokenizer of a tokenizer.json, its bytes or its text, with `tokens` of other files. What was written for
 * the library is kept for a large file. `digest`: of the bytes that there must be. Throws UserError where the file is
 * refused or another, else the library's error.
 */
export function createNative(
  file: Buffer | string,
  where: string,
  tokens: readonly TokenFlags[],
  digest?: string,
): CheckedNative {
  const cache = typeof file === 'string' ? undefined : cacheFor(file);
  if (typeof file !== 'string') sameBytes(file, digest, where, cache?.digest);
  const kept = cache && keptTokenizer(cache);
  const known = kept && fromFile(kept.path);
  if (kept !== undefined && known !== undefined)
    return { tokenizer: withTokensOf(known, tokens), about: withCuts(kept.about, tokens) };
  const own = parseTokenizerJson(file, where);
  const about = withCuts(aboutOf(own), tokens);
  if (mergesWholeTexts(own)) return { ...createWhole(withTokens(own, tokens)), about };
  const path = cache && keepTokenizer(cache, own);
  const tokenizer =
    (path === undefined ? undefined : fromFile(path)) ?? NativeTokenizer.fromString(writeTokenizerJson(own).toString());
  return { tokenizer: withTokensOf(tokenizer, tokens), about };
}

/** Undefined where the library does not take the file, or it has been removed from the cache since. */
function fromFile(path: string): NativeTokenizer | undefined {
  try {
    return NativeTokenizer.fromFile(path);
  } catch {
    return undefined;
  }
}

// Tokenizers of checkpoints as functions from texts to tokens and back, in any thread.

/** Texts to tokens and back. The functions reject with a UserError where the tokenizer does not fit the model. */
export interface Tokenizer {
  /** Token ids of a text, with the special tokens that the tokenizer adds by itself (BOS, say). */
  encode(text: string): Promise<number[]>;
  /** encode of each text, in order: much faster than one by one. */
  encodeBatch(texts: readonly string[]): Promise<readonly ArrayLike<number>[]>;
  /** Token ids of a text that names its special tokens itself: none is added. */
  encodeWritten(text: string): Promise<number[]>;
  /** Makes text of tokens, special ones left out. Throws UserError where the tokenizer's decoder is not supported. */
  detokenizer(): Detokenizer;
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
  { tokenizer: native, mayCut, about: { decoders, added, special, cutsLines } }: CheckedNative,
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
  let detokenizer: Detokenizer | undefined;
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
      checkIds(ids, elementAt(texts, i), where, embeddings);
    });
    return all;
  };
  return {
    encode: async (text) => (await encodeBatch([text])).flatMap((ids) => Array.from(ids)),
    encodeBatch,
    encodeWritten: async (text) => {
      const [ids = []] = await guarded(() => encodeEach([text]));
      checkIds(ids, text, where, embeddings);
      return ids;
    },
    detokenizer: () => {
      if (decoders === undefined)
        throw new UserError(
          `${where}: its decoder is not supported: tokens cannot be shown as text`,
          'use the tokenizer.json of the original model',
        );
      const { tokens = [] } = spec;
      detokenizer ??= new Detokenizer({
        pieceOf: (id) => native.idToToken(id) ?? undefined,
        decoders,
        added: new Set([...added, ...tokens.map(({ content }) => content)]),
        special: new Set([...special, ...tokens.filter((each) => each.special).map(({ content }) => content)]),
      });
      return detokenizer;
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
    detokenizer: () => tokenizer().detokenizer(),
  };
}

/** Opens the tokenizer of the checkpoint `dir`. Throws UserError if there is none or it cannot be read. */
export function openTokenizer(dir: string): OpenTokenizer {
  const description = describeTokenizer(dir);
  return { ...createTokenizer(description.spec), ...description };
}

// Texts of single tokens, as they read in the middle of a text.

/**
 * The text of each of these tokens; null for one without: a special token. Part of a character is U+FFFD. Throws
 * UserError where the tokenizer's decoder is not supported.
 */
export function tokenTexts(
  tokenizer: Pick<Tokenizer, 'detokenizer'>,
  ids: Iterable<number>,
): ReadonlyMap<number, string | null> {
  const detokenizer = tokenizer.detokenizer();
  const texts = new Map<number, string | null>();
  for (const id of ids)
    if (!texts.has(id)) {
      const bytes = detokenizer.bytesOf(id);
      texts.set(id, bytes.length === 0 ? null : Buffer.from(bytes).toString());
    }
  return texts;
}
