/** The tokenizer of the native library for a tokenizer.json. */
import { AddedToken, BPE, Tokenizer as NativeTokenizer } from 'tokenizers';
import { defined } from '../system/defined.js';
import { cuttableTexts, SPACE } from './sharedHeads.js';
import { withTokens, type TokenFlags } from './namedTokens.js';
import { mayCutAtTokens } from './sharedLines.js';
import { aboutOf, cacheFor, keepTokenizer, keptTokenizer, sameBytes, type AboutTokenizer } from './tokenizerCache.js';
import { mergesWholeTexts, parseTokenizerJson, writeTokenizerJson, type TokenizerJson } from './tokenizerJson.js';

/** A tokenizer of the library, and what it may be spared. */
export interface Native {
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
function createWhole(json: TokenizerJson): Native {
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
export interface CheckedNative extends Native {
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
