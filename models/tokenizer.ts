/** Tokenizers of checkpoint folders: tokenizer.json as it is, or a bare SentencePiece tokenizer.model, converted. */
import { createHash } from 'node:crypto';
import { join, resolve } from 'node:path';
import { Tokenizer as NativeTokenizer } from 'tokenizers';
import { UserError } from '../errors.js';
import { decodeUtf8, fileSize, isGiven, isRecord, parseJson, quote, readBounded, readJsonObject } from './files.js';
import { convertSentencePiece, type SpecialTokens } from './sentencepiece.js';

/** All that a worker thread needs to make the same tokenizer: plain data, fit for postMessage. */
export type TokenizerSpec =
  | { readonly kind: 'file'; readonly path: string }
  | { readonly kind: 'json'; readonly text: string; /** Where the text comes from, for messages. */ readonly where: string };

export interface Tokenizer {
  /** Token ids of a text, with the special tokens that the tokenizer adds by itself (BOS, say). */
  encode(text: string): Promise<number[]>;
  /** encode of each text, in order: much faster than one by one. */
  encodeBatch(texts: readonly string[]): Promise<number[][]>;
}

export interface OpenTokenizer extends Tokenizer {
  readonly spec: TokenizerSpec;
  /** One more than the largest token id. */
  readonly vocabSize: number;
  /** SHA-256 of the tokenizer.json (of its generated text where converted), hexadecimal. */
  readonly hash: string;
}

const JSON_BYTES = 128 << 20;
const MODEL_BYTES = 64 << 20;
const CONFIG_BYTES = 8 << 20;

const REFETCH = 'download tokenizer.json again';

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function describe(spec: TokenizerSpec): string {
  return spec.kind === 'file' ? spec.path : spec.where;
}

function createNative(spec: TokenizerSpec): NativeTokenizer {
  const where = describe(spec);
  try {
    const text = spec.kind === 'json' ? spec.text : decodeUtf8(readBounded(spec.path, JSON_BYTES, REFETCH), spec.path, REFETCH);
    const native = NativeTokenizer.fromString(text);
    // A file may ask for both; scoring wants every token and no other.
    native.disableTruncation();
    native.disablePadding();
    return native;
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`${where}: not a tokenizer that can be read: ${quote(message(error), 200)}`, REFETCH, { cause: error });
  }
}

function wrap(native: NativeTokenizer, where: string): Tokenizer {
  const guarded = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      throw new UserError(`${where}: cannot tokenise: ${quote(message(error), 200)}`, 'leave the question out with --docs, or use the tokenizer.json of the original model', { cause: error });
    }
  };
  return {
    encode: (text) => guarded(async () => (await native.encode(text)).getIds()),
    encodeBatch: (texts) => guarded(async () => (await native.encodeBatch([...texts])).map((encoding) => encoding.getIds())),
  };
}

/** The tokenizer of a spec, in any thread. UserError where it cannot be made. */
export function createTokenizer(spec: TokenizerSpec): Tokenizer {
  return wrap(createNative(spec), describe(spec));
}

/** The tokenizer file of a checkpoint folder: tokenizer.json, else tokenizer.model; undefined where there is neither. */
export function findTokenizer(dir: string): string | undefined {
  return ['tokenizer.json', 'tokenizer.model'].map((name) => resolve(dir, name)).find((path) => fileSize(path) !== undefined);
}

/** add_bos_token and add_eos_token of tokenizer_config.json; LLaMA's defaults where the file or the key is absent. */
function readSpecialTokens(dir: string): SpecialTokens {
  const path = join(dir, 'tokenizer_config.json');
  const config = fileSize(path) === undefined ? {} : readJsonObject(path, CONFIG_BYTES, 'download tokenizer_config.json again').value;
  const flag = (key: string, fallback: boolean): boolean => {
    const value = config[key] ?? fallback;
    if (typeof value !== 'boolean') throw new UserError(`${path}: ${key}: expected true or false, got ${quote(value)}`, 'download tokenizer_config.json again');
    return value;
  };
  return { addBos: flag('add_bos_token', true), addEos: flag('add_eos_token', false) };
}

/** Refuses what would make one text two different token lists; returns one more than the largest token id. */
function checkJson(text: string, where: string): number {
  const json = parseJson(text, where, REFETCH);
  const model = isRecord(json) ? json['model'] : undefined;
  if (!isRecord(json) || !isRecord(model)) throw new UserError(`${where}: no "model": not a tokenizer.json`, 'download tokenizer.json again');
  if (isGiven(model['dropout']) && model['dropout'] !== 0) {
    throw new UserError(`${where}: model.dropout is ${quote(model['dropout'])}: it tokenises by chance, so no score could be repeated`, 'set it to null');
  }
  const vocab = model['vocab'];
  const ids: unknown[] = isRecord(vocab) ? Object.values(vocab) : Array.isArray(vocab) ? [vocab.length - 1] : [];
  const added = Array.isArray(json['added_tokens']) ? json['added_tokens'].map((token: unknown) => (isRecord(token) ? token['id'] : undefined)) : [];
  return [...ids, ...added].reduce<number>((largest, id) => (typeof id === 'number' ? Math.max(largest, id) : largest), -1) + 1;
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
    throw new UserError(`${resolve(dir)}: neither tokenizer.json nor tokenizer.model is there`, 'copy the tokenizer of the model into the folder');
  }
  const isJson = path.endsWith('.json');
  const text = isJson ? decodeUtf8(readBounded(path, JSON_BYTES), path) : convertSentencePiece(readBounded(path, MODEL_BYTES), path, readSpecialTokens(dir));
  return {
    spec: isJson ? { kind: 'file', path } : { kind: 'json', text, where: path },
    vocabSize: checkJson(text, path),
    hash: createHash('sha256').update(text).digest('hex'),
  };
}

/** Opens the tokenizer of the checkpoint folder `dir`. UserError where there is none or it cannot be read. */
export function openTokenizer(dir: string): OpenTokenizer {
  const description = describeTokenizer(dir);
  return { ...createTokenizer(description.spec), ...description };
}
