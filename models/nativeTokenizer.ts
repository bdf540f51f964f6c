/** The tokenizer of the native library for a tokenizer.json. */
import { AddedToken, BPE, Tokenizer as NativeTokenizer, type BpeOptions } from 'tokenizers';
import { isGiven } from '../system/json.js';
import { cuttableTexts, SPACE } from './sharedHeads.js';
import { writeTokenizerJson, type TokenizerJson } from './tokenizerJson.js';

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

/** The options of a BPE that can be made without its cache; undefined if the library does not allow it. */
function wholeTextBpe({
  model,
  vocabulary,
  added,
  later,
  preTokenizers,
}: TokenizerJson):
  | { vocab: Record<string, number>; merges: [string, string][]; named: Record<string, number>; options: BpeOptions }
  | undefined {
  if (model.type !== 'BPE' || preTokenizers.length > 0 || !isGiven(model.unk_token) || model.ignore_merges === true)
    return undefined;
  const { vocab: stated, merges: pairs = [] } = vocabulary();
  const vocab = stated as Readonly<Record<string, number>>;
  // No prototype: a token may be called __proto__.
  const named = Object.create(null) as Record<string, number>;
  for (const { content, id } of added.slice(added.length - later)) named[content] = id;
  for (const token of [...added.slice(0, added.length - later).map(({ content }) => content), model.unk_token]) {
    const id = Object.hasOwn(vocab, token) ? vocab[token] : undefined;
    if (id === undefined) return undefined;
    named[token] = id;
  }
  const merges: [string, string][] = [];
  for (const pair of pairs) {
    const [left, right] = typeof pair === 'string' ? pair.split(' ') : pair;
    merges.push([left!, right!]);
  }
  const options = {
    cacheCapacity: 0,
    unkToken: model.unk_token,
    fuseUnk: model.fuse_unk ?? false,
    byteFallback: model.byte_fallback ?? false,
  };
  return { vocab, merges, named, options };
}

/** Adds the tokens of other files, as transformers does it. */
function addLater(tokenizer: NativeTokenizer, { added, later }: TokenizerJson): NativeTokenizer {
  const tokens = added
    .slice(added.length - later)
    .map(
      ({ content, special, single_word: singleWord, lstrip: leftStrip, rstrip: rightStrip, normalized }) =>
        new AddedToken(content, special, { singleWord, leftStrip, rightStrip, normalized }),
    );
  if (tokens.length > 0) tokenizer.addAddedTokens(tokens);
  return tokenizer;
}

/**
 * The native tokenizer of a tokenizer.json. If nothing splits the text before the merges, the native cache would keep
 * every whole text with its tokens (about 100 MB for 10,000 questions) and never hit, so it is left out.
 */
export function createNative(json: TokenizerJson): Native {
  const bpe = wholeTextBpe(json);
  if (bpe === undefined) return { tokenizer: addLater(NativeTokenizer.fromString(writeTokenizerJson(json)), json) };
  // The package takes cacheCapacity only with a bare model, so the rest is built around a vocabulary of the added
  // tokens.
  const bare = `"vocab":${JSON.stringify(bpe.named)},"merges":[]`;
  const tokenizer = addLater(NativeTokenizer.fromString(writeTokenizerJson(json, bare)), json);
  tokenizer.setModel(BPE.init(bpe.vocab, bpe.merges, bpe.options));
  const mayCut = marksSpaces(json.normalizers)
    ? cuttableTexts({ pieces: Object.keys(bpe.vocab), added: json.added.map(({ content }) => content) })
    : undefined;
  return { tokenizer, ...(mayCut === undefined ? {} : { mayCut }) };
}
