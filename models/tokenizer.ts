/** Tokenizers of checkpoint folders: tokenizer.json as it is, or a bare SentencePiece tokenizer.model, converted. */
import { createHash } from 'node:crypto';
import { join, resolve } from 'node:path';
import { BPE, Tokenizer as NativeTokenizer } from 'tokenizers';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { isGiven, isRecord, parseJson, quote } from '../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject } from '../system/read.js';
import { convertSentencePiece, parseSentencePiece, type SpecialTokens } from './sentencepiece.js';
import { cuttableTexts, encodeSharing, type Around } from './sharedHeads.js';

/** All that a worker thread needs to make the same tokenizer: plain data, fit for postMessage. */
export type TokenizerSpec =
  | { readonly kind: 'file'; readonly path: string }
  | {
      readonly kind: 'json';
      readonly text: string;
      /** Where the text comes from, for messages. */ readonly where: string;
    }
  | { readonly kind: 'sentencepiece'; readonly path: string; readonly special: SpecialTokens };

export interface Tokenizer {
  /** Token ids of a text, with the special tokens that the tokenizer adds by itself (BOS, say). */
  encode(text: string): Promise<number[]>;
  /** encode of each text, in order: much faster than one by one. */
  encodeBatch(texts: readonly string[]): Promise<readonly ArrayLike<number>[]>;
}

export interface OpenTokenizer extends Tokenizer {
  readonly spec: TokenizerSpec;
  /** One more than the largest token id. */
  readonly vocabSize: number;
  /** SHA-256 of what decides the tokens (tokenizer.json; or tokenizer.model and its special tokens), hexadecimal. */
  readonly hash: string;
}

const JSON_BYTES = 128 << 20;
const MODEL_BYTES = 64 << 20;
const CONFIG_BYTES = 8 << 20;

const REFETCH = 'download tokenizer.json again';

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

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
  }
}

/** A BPE without pre-tokenizer, as SentencePiece models become: what can be made without its cache. */
const wholeTextBpe = z.looseObject({
  normalizer: z.unknown(),
  pre_tokenizer: z.null(),
  post_processor: z.unknown(),
  added_tokens: z.array(z.looseObject({ content: z.string(), id: z.number() })),
  model: z.looseObject({
    type: z.literal('BPE'),
    unk_token: z.string(),
    continuing_subword_prefix: z.null(),
    end_of_word_suffix: z.null(),
    fuse_unk: z.boolean(),
    byte_fallback: z.boolean(),
    ignore_merges: z.literal(false),
    vocab: z.record(z.string(), z.number()),
    merges: z.array(z.tuple([z.string(), z.string()])),
  }),
});

/** A mark before the text and in place of each space. */
const marksSpaces = z.strictObject({
  type: z.literal('Sequence'),
  normalizers: z.tuple([
    z.strictObject({ type: z.literal('Prepend'), prepend: z.literal('▁') }),
    z.strictObject({
      type: z.literal('Replace'),
      pattern: z.strictObject({ String: z.literal(' ') }),
      content: z.literal('▁'),
    }),
  ]),
});
/** Special tokens before and after a text, whatever it says. */
const template = z.looseObject({ type: z.literal('TemplateProcessing') });

interface Native {
  readonly tokenizer: NativeTokenizer;
  /** Which texts may be cut at words: see sharedHeads.ts. */
  readonly mayCut?: (text: string) => boolean;
}

/**
 * The native tokenizer of a tokenizer.json. Where nothing splits the text before the merges, the native cache would
 * keep every text with its tokens (about 100 MB for 10,000 questions) and never find one again: it is left out.
 */
function fromJson(text: string): Native {
  const parsed = wholeTextBpe.safeParse(JSON.parse(text));
  if (!parsed.success) return { tokenizer: NativeTokenizer.fromString(text) };
  const { model, added_tokens: added, ...rest } = parsed.data;
  // The package takes cacheCapacity with a bare model only, so the rest is made around a vocabulary of the added
  // tokens.
  const named = [...added.map(({ content }) => content), model.unk_token];
  const vocab = Object.fromEntries(named.map((token) => [token, model.vocab[token] ?? -1]));
  if (Object.values(vocab).includes(-1)) return { tokenizer: NativeTokenizer.fromString(text) };
  const native = NativeTokenizer.fromString(
    JSON.stringify({ ...rest, added_tokens: added, model: { ...model, vocab, merges: [] } }),
  );
  native.setModel(
    BPE.init(model.vocab, model.merges, {
      cacheCapacity: 0,
      unkToken: model.unk_token,
      fuseUnk: model.fuse_unk,
      byteFallback: model.byte_fallback,
    }),
  );
  const isPlain = marksSpaces.safeParse(rest.normalizer).success && template.safeParse(rest.post_processor).success;
  const mayCut = isPlain
    ? cuttableTexts({ pieces: Object.keys(model.vocab), added: added.map(({ content }) => content) })
    : undefined;
  return { tokenizer: native, ...(mayCut === undefined ? {} : { mayCut }) };
}

function createNative(spec: TokenizerSpec): Native {
  const where = describe(spec);
  try {
    const native = fromJson(jsonOf(spec));
    // A file may ask for both; scoring wants every token and no other.
    native.tokenizer.disableTruncation();
    native.tokenizer.disablePadding();
    return native;
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`${where}: not a tokenizer that can be read: ${quote(message(error), 200)}`, REFETCH, {
      cause: error,
    });
  }
}

/** What a template puts before and after every text. */
async function specialTokens(native: NativeTokenizer): Promise<Around> {
  const [all, own] = await Promise.all([native.encode('a'), native.encode('a', null, { addSpecialTokens: false })]);
  const ids = all.getIds(),
    length = own.getLength();
  const special = all.getSpecialTokensMask();
  const first = special.indexOf(0);
  return { before: ids.slice(0, first), after: ids.slice(first + length) };
}

function wrap({ tokenizer: native, mayCut }: Native, where: string): Tokenizer {
  const guarded = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      throw new UserError(
        `${where}: cannot tokenise: ${quote(message(error), 200)}`,
        'leave the question out with --docs, or use the tokenizer.json of the original model',
        { cause: error },
      );
    }
  };
  let around: Promise<Around> | undefined;
  return {
    encode: (text) => guarded(async () => (await native.encode(text)).getIds()),
    encodeBatch: (texts) =>
      guarded(async () => {
        if (mayCut === undefined) return (await native.encodeBatch([...texts])).map((encoding) => encoding.getIds());
        around ??= specialTokens(native);
        return encodeSharing(texts, mayCut, await around, async (parts) =>
          (await native.encodeBatch(parts, { addSpecialTokens: false })).map((encoding) => encoding.getIds()),
        );
      }),
  };
}

/** The tokenizer of a spec, in any thread. UserError where it cannot be made. */
export function createTokenizer(spec: TokenizerSpec): Tokenizer {
  return wrap(createNative(spec), describe(spec));
}

/**
 * The tokenizer file of a checkpoint folder: tokenizer.json, else tokenizer.model; undefined where there is neither.
 */
export function findTokenizer(dir: string): string | undefined {
  return ['tokenizer.json', 'tokenizer.model']
    .map((name) => resolve(dir, name))
    .find((path) => fileSize(path) !== undefined);
}

/** add_bos_token and add_eos_token of tokenizer_config.json; LLaMA's defaults where the file or the key is absent. */
function readSpecialTokens(dir: string): SpecialTokens {
  const path = join(dir, 'tokenizer_config.json');
  const config =
    fileSize(path) === undefined
      ? {}
      : readJsonObject(path, CONFIG_BYTES, 'download tokenizer_config.json again').value;
  const flag = (key: string, fallback: boolean): boolean => {
    const value = config[key] ?? fallback;
    if (typeof value !== 'boolean')
      throw new UserError(
        `${path}: ${key}: expected true or false, got ${quote(value)}`,
        'download tokenizer_config.json again',
      );
    return value;
  };
  return { addBos: flag('add_bos_token', true), addEos: flag('add_eos_token', false) };
}

/** Refuses what would make one text two different token lists; returns one more than the largest token id. */
function checkJson(text: string, where: string): number {
  const json = parseJson(text, where, REFETCH);
  const model = isRecord(json) ? json['model'] : undefined;
  if (!isRecord(json) || !isRecord(model))
    throw new UserError(`${where}: no "model": not a tokenizer.json`, 'download tokenizer.json again');
  if (isGiven(model['dropout']) && model['dropout'] !== 0) {
    throw new UserError(
      `${where}: model.dropout is ${quote(model['dropout'])}: it tokenises by chance, so no score could be repeated`,
      'set it to null',
    );
  }
  const vocab = model['vocab'];
  const ids: unknown[] = isRecord(vocab) ? Object.values(vocab) : Array.isArray(vocab) ? [vocab.length - 1] : [];
  const added = Array.isArray(json['added_tokens'])
    ? json['added_tokens'].map((token: unknown) => (isRecord(token) ? token['id'] : undefined))
    : [];
  return (
    [...ids, ...added].reduce<number>((largest, id) => (typeof id === 'number' ? Math.max(largest, id) : largest), -1) +
    1
  );
}

/** What a checkpoint folder says of its tokenizer. */
export type TokenizerDescription = Pick<OpenTokenizer, 'spec' | 'vocabSize' | 'hash'>;

/**
 * The tokenizer of the checkpoint folder `dir`, without making it: threads make their own from the spec, and a
 * second one here would only take memory. UserError where there is none or its file is damaged.
 */
export function describeTokenizer(dir: string): TokenizerDescription {
  const path = findTokenizer(dir);
  if (path === undefined) {
    throw new UserError(
      `${resolve(dir)}: neither tokenizer.json nor tokenizer.model is there`,
      'copy the tokenizer of the model into the folder',
    );
  }
  if (path.endsWith('.json')) {
    const text = decodeUtf8(readBounded(path, JSON_BYTES), path);
    return {
      spec: { kind: 'file', path },
      vocabSize: checkJson(text, path),
      hash: createHash('sha256').update(text).digest('hex'),
    };
  }
  const model = readBounded(path, MODEL_BYTES);
  const special = readSpecialTokens(dir);
  return {
    spec: { kind: 'sentencepiece', path, special },
    vocabSize: parseSentencePiece(model, path).pieces.length,
    hash: createHash('sha256').update(model).update(JSON.stringify(special)).digest('hex'),
  };
}

/** Opens the tokenizer of the checkpoint folder `dir`. UserError where there is none or it cannot be read. */
export function openTokenizer(dir: string): OpenTokenizer {
  const description = describeTokenizer(dir);
  return { ...createTokenizer(description.spec), ...description };
}
