/**
 * Tokenizers of checkpoints: tokenizer.json as it is, or a converted SentencePiece tokenizer.model, or that of a GGUF
 * file.
 */
import { createHash } from 'node:crypto';
import { join, resolve } from 'node:path';
import { BPE, Tokenizer as NativeTokenizer, type BpeOptions } from 'tokenizers';
import { UserError } from '../errors.js';
import { isGiven, isRecord, quote } from '../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject } from '../system/read.js';
import { convertGgufTokenizer, describeGgufTokenizer } from './ggufTokenizer.js';
import { convertSentencePiece, parseSentencePiece, type SpecialTokens } from './sentencepiece.js';
import { cuttableTexts, encodeSharing, SPACE, type Around } from './sharedHeads.js';
import { cutsOf, mayCutLines, SharedLines } from './sharedLines.js';
import type { Beside } from './tokenizerBeside.js';
import { parseTokenizerJson, writeTokenizerJson, type TokenizerJson } from './tokenizerJson.js';
import { pieceId } from './tokenizerModels.js';
import { findGgufModel } from './weightFiles.js';

/** All that a worker thread needs to make the same tokenizer: plain data that postMessage can copy. */
export type TokenizerSpec = {
  /** Rows of the model's embedding: a text with a larger token id is refused. No limit if absent. */
  readonly embeddings?: number;
} & (
  | {
      readonly kind: 'file';
      readonly path: string;
      /** Special tokens before and after a text, if tokenizer_config.json overrides the file. */
      readonly beside?: Partial<Beside>;
    }
  | {
      readonly kind: 'json';
      readonly text: string;
      /** Where the text comes from, for messages. */
      readonly where: string;
    }
  | { readonly kind: 'sentencepiece'; readonly path: string; readonly special: SpecialTokens }
  | { readonly kind: 'gguf'; readonly path: string }
);

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

export interface OpenTokenizer extends Tokenizer {
  readonly spec: TokenizerSpec;
  /** One more than the largest token id. */
  readonly vocabSize: number;
  /** SHA-256 of what decides the tokens (tokenizer.json; or tokenizer.model and its special tokens), hexadecimal. */
  readonly hash: string;
}

const JSON_BYTES = 64 << 20;
const MODEL_BYTES = 64 << 20;
const CONFIG_BYTES = 8 << 20;

const REFETCH = 'download tokenizer.json again';

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** What to do about a tokenizer that the library does not take. */
const AGAIN: Readonly<Record<TokenizerSpec['kind'], string>> = {
  file: REFETCH,
  json: REFETCH,
  sentencepiece: 'download tokenizer.model again',
  gguf: 'convert the model again with a current converter, or use its Hugging Face checkpoint',
};

/** The library names a place in the text that was written for it, which says nothing of the file. */
function whyUnreadable(error: unknown): string {
  const problem = message(error).replace(/ at line \d+ column \d+$/, '');
  const piece = /^Token `(.*)` out of vocabulary$/s.exec(problem)?.[1];
  return piece === undefined ? quote(problem, 200) : `a merge needs ${quote(piece)}, which is not in the vocabulary`;
}

function describe(spec: TokenizerSpec): string {
  return spec.kind === 'json' ? spec.where : spec.path;
}

/** The tokenizer.json of a spec. Converting a tokenizer.model takes tens of megabytes: best in a thread that ends. */
export function jsonOf(spec: TokenizerSpec): string {
  switch (spec.kind) {
    case 'file':
      return decodeUtf8(readBounded(spec.path, JSON_BYTES, REFETCH), spec.path, REFETCH);
    case 'json':
      return spec.text;
    case 'sentencepiece':
      return convertSentencePiece(readBounded(spec.path, MODEL_BYTES), spec.path, spec.special);
    case 'gguf':
      return convertGgufTokenizer(spec.path);
  }
}

interface Native {
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
  added,
  preTokenizers,
}: TokenizerJson):
  | { vocab: Record<string, number>; merges: [string, string][]; named: Record<string, number>; options: BpeOptions }
  | undefined {
  if (model.type !== 'BPE' || preTokenizers.length > 0 || !isGiven(model.unk_token) || model.ignore_merges === true)
    return undefined;
  const named: Record<string, number> = {};
  for (const token of [...added.map(({ content }) => content), model.unk_token]) {
    const id = Object.hasOwn(model.vocab, token) ? model.vocab[token] : undefined;
    if (id === undefined) return undefined;
    named[token] = id;
  }
  const merges: [string, string][] = [];
  for (const pair of model.merges) {
    if (typeof pair === 'string') return undefined;
    merges.push([pair[0], pair[1]]);
  }
  const options = {
    cacheCapacity: 0,
    unkToken: model.unk_token,
    fuseUnk: model.fuse_unk ?? false,
    byteFallback: model.byte_fallback ?? false,
  };
  return { vocab: model.vocab, merges, named, options };
}

/**
 * The native tokenizer of a tokenizer.json. If nothing splits the text before the merges, the native cache would keep
 * every whole text with its tokens (about 100 MB for 10,000 questions) and never hit, so it is left out.
 */
function createNative(json: TokenizerJson): Native {
  const bpe = wholeTextBpe(json);
  if (bpe === undefined || json.model.type !== 'BPE')
    return { tokenizer: NativeTokenizer.fromString(writeTokenizerJson(json)) };
  // The package takes cacheCapacity only with a bare model, so the rest is built around a vocabulary of the added
  // tokens.
  const bare = { ...json.model, vocab: bpe.named, merges: [] };
  const tokenizer = NativeTokenizer.fromString(writeTokenizerJson({ ...json, model: bare }));
  tokenizer.setModel(BPE.init(bpe.vocab, bpe.merges, bpe.options));
  const mayCut = marksSpaces(json.normalizers)
    ? cuttableTexts({ pieces: Object.keys(bpe.vocab), added: json.added.map(({ content }) => content) })
    : undefined;
  return { tokenizer, ...(mayCut === undefined ? {} : { mayCut }) };
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

function wrap(
  { tokenizer: native, mayCut }: Native,
  around: Around,
  json: TokenizerJson,
  spec: TokenizerSpec,
): Tokenizer {
  const where = describe(spec);
  const embeddings = spec.embeddings ?? Infinity;
  const guarded = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      throw new UserError(
        `${where}: cannot tokenise: ${quote(message(error), 200)}`,
        'use the tokenizer.json of the original model',
        { cause: error },
      );
    }
  };
  const encodeEach = async (texts: string[]): Promise<number[][]> =>
    (await native.encodeBatch(texts, { addSpecialTokens: false })).map((encoding) => encoding.getIds());
  const { before, after } = around;
  const encodeAlike = (texts: string[], beside: Around): Promise<readonly ArrayLike<number>[]> =>
    mayCut === undefined ? encodeEach(texts) : encodeSharing(texts, mayCut, beside, encodeEach);
  const cutsLines = mayCutLines(json);
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
      if (json.decoders === undefined)
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
  const json = parseTokenizerJson(jsonOf(spec), where);
  const { before, after } = spec.kind === 'file' ? { ...json.beside, ...spec.beside } : json.beside;
  try {
    return wrap(createNative(json), { before, after }, json, spec);
  } catch (error) {
    throw new UserError(`${where}: not a tokenizer that can be read: ${whyUnreadable(error)}`, AGAIN[spec.kind], {
      cause: error,
    });
  }
}

/** The tokenizer file of a checkpoint folder: tokenizer.json, else tokenizer.model; undefined if there is neither. */
export function findTokenizer(dir: string): string | undefined {
  return ['tokenizer.json', 'tokenizer.model']
    .map((name) => resolve(dir, name))
    .find((path) => fileSize(path) !== undefined);
}

/** What tokenizer_config.json says of the tokens around a text; undefined if the file or the key is absent. */
function readTokenizerConfig(dir: string): {
  readonly addBos: boolean | undefined;
  readonly addEos: boolean | undefined;
  /** The text of `bos_token` or `eos_token`. */
  readonly nameOf: (key: 'bos_token' | 'eos_token') => string | undefined;
} {
  const path = join(dir, 'tokenizer_config.json');
  const hint = 'download tokenizer_config.json again';
  const config = fileSize(path) === undefined ? {} : readJsonObject(path, CONFIG_BYTES, hint).value;
  const flag = (key: string): boolean | undefined => {
    const value = config[key];
    if (!isGiven(value)) return undefined;
    if (typeof value !== 'boolean')
      throw new UserError(`${path}: ${key}: expected true or false, got ${quote(value)}`, hint);
    return value;
  };
  const nameOf = (key: string): string | undefined => {
    const value = config[key];
    const text = isRecord(value) ? value['content'] : value;
    return typeof text === 'string' ? text : undefined;
  };
  return { addBos: flag('add_bos_token'), addEos: flag('add_eos_token'), nameOf };
}

/** LLaMA's defaults, if tokenizer_config.json or the key is absent. */
function readSpecialTokens(dir: string): SpecialTokens {
  const { addBos = true, addEos = false } = readTokenizerConfig(dir);
  return { addBos, addEos };
}

/** add_bos_token and add_eos_token override the tokenizer.json beside them, as in transformers. */
function besideByConfig(dir: string, json: TokenizerJson, where: string): Partial<Beside> {
  const { addBos, addEos, nameOf } = readTokenizerConfig(dir);
  const ids = (flag: 'add_bos_token' | 'add_eos_token', key: 'bos_token' | 'eos_token'): readonly number[] => {
    const name = nameOf(key);
    const id =
      json.added.find(({ content }) => content === name)?.id ??
      (name === undefined ? undefined : pieceId(json.model, name));
    if (id === undefined)
      throw new UserError(
        `${join(dir, 'tokenizer_config.json')}: ${flag} is true, but ${key} ` +
          `${name === undefined ? 'is absent' : `${quote(name)} is no token of ${where}`}`,
        'download tokenizer_config.json and tokenizer.json again',
      );
    return [id];
  };
  return {
    ...(addBos === undefined ? {} : { before: addBos ? ids('add_bos_token', 'bos_token') : [] }),
    ...(addEos === undefined ? {} : { after: addEos ? ids('add_eos_token', 'eos_token') : [] }),
  };
}

/** What a checkpoint folder says of its tokenizer. */
export type TokenizerDescription = Pick<OpenTokenizer, 'spec' | 'vocabSize' | 'hash'>;

/**
 * The tokenizer of the checkpoint `dir`, a folder or a GGUF file, without creating it: threads create their own from
 * the spec, and a second one here would only take memory. `embeddings` is the number of tokens that the model knows.
 * Throws UserError if there is no tokenizer or its file is damaged.
 */
export function describeTokenizer(dir: string, embeddings?: number): TokenizerDescription {
  const limit = embeddings === undefined ? {} : { embeddings };
  const gguf = findGgufModel(dir);
  if (gguf !== undefined)
    return { spec: { kind: 'gguf', path: gguf, ...limit }, ...describeGgufTokenizer(gguf, embeddings) };
  const path = findTokenizer(dir);
  if (path === undefined) {
    throw new UserError(
      `${resolve(dir)}: found neither tokenizer.json nor tokenizer.model`,
      'copy the tokenizer of the model into the folder',
    );
  }
  if (path.endsWith('.json')) {
    const text = decodeUtf8(readBounded(path, JSON_BYTES), path);
    const json = parseTokenizerJson(text, path);
    const beside = besideByConfig(dir, json, path);
    const isStated = Object.keys(beside).length > 0;
    return {
      spec: { kind: 'file', path, ...(isStated ? { beside } : {}), ...limit },
      vocabSize: json.vocabSize,
      hash: createHash('sha256')
        .update(text)
        .update(isStated ? JSON.stringify(beside) : '')
        .digest('hex'),
    };
  }
  const model = readBounded(path, MODEL_BYTES);
  const special = readSpecialTokens(dir);
  return {
    spec: { kind: 'sentencepiece', path, special, ...limit },
    vocabSize: parseSentencePiece(model, path).pieces.length,
    hash: createHash('sha256').update(model).update(JSON.stringify(special)).digest('hex'),
  };
}

/** Opens the tokenizer of the checkpoint `dir`. Throws UserError if there is none or it cannot be read. */
export function openTokenizer(dir: string): OpenTokenizer {
  const description = describeTokenizer(dir);
  return { ...createTokenizer(description.spec), ...description };
}
