/**
 * Where the tokenizer of a checkpoint is, and what its files say: tokenizer.json as it is, or what a file of another
 * format is converted to, or the tokenizer of a GGUF file; and tokenizer_config.json beside them.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { UserError } from '../errors.js';
import { isGiven, isRecord, quote } from '../system/json.js';
import { decodeUtf8, fileSize, readBounded, readJsonObject } from '../system/read.js';
import { convertGgufTokenizer, describeGgufTokenizer } from './ggufTokenizer.js';
import { convertSentencePiece, needsSpaceBefore, parseSentencePiece, type SpecialTokens } from './sentencepiece.js';
import type { Beside } from './tokenizerBeside.js';
import { parseTokenizerJson, type TokenizerJson } from './tokenizerJson.js';
import { pieceId } from './tokenizerModels.js';
import { convertFile, factsBeside, findTokenizer, formatOf, MODEL_BYTES, noTokenizer } from './tokenizers/files.js';
import type { Facts } from './tokenizers/files.js';
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
      readonly kind: 'converted';
      readonly format: 'tiktoken' | 'tekken' | 'bpe';
      readonly path: string;
      readonly facts: Facts;
      /** As of a file. */
      readonly beside?: Partial<Beside>;
    }
  | {
      readonly kind: 'json';
      readonly text: string;
      /** Where the text comes from, for messages. */
      readonly where: string;
    }
  | {
      readonly kind: 'sentencepiece';
      readonly path: string;
      readonly special: SpecialTokens;
      /** Whether a space is put before each text: see needsSpaceBefore. */
      readonly isSpaced?: boolean;
    }
  | { readonly kind: 'gguf'; readonly path: string }
);

const JSON_BYTES = 64 << 20;
const CONFIG_BYTES = 8 << 20;

const REFETCH = 'download tokenizer.json again';

/** What to do about a tokenizer that the library does not take. */
export const REPLACE_HINTS: Readonly<Record<TokenizerSpec['kind'], string>> = {
  file: REFETCH,
  converted: 'put the tokenizer.json of the model beside it: it is used if both exist',
  json: REFETCH,
  sentencepiece: 'download tokenizer.model again',
  gguf: 'convert the model again with a current converter, or use its Hugging Face checkpoint',
};

/** The tokenizer.json of a spec. Converting a tokenizer.model takes tens of megabytes: best in a thread that ends. */
export function jsonOf(spec: TokenizerSpec): string {
  switch (spec.kind) {
    case 'file':
      return decodeUtf8(readBounded(spec.path, JSON_BYTES, REFETCH), spec.path, REFETCH);
    case 'converted':
      return convertFile(spec.format, spec.path, spec.facts);
    case 'json':
      return spec.text;
    case 'sentencepiece':
      return convertSentencePiece(readBounded(spec.path, MODEL_BYTES), spec.path, spec.special);
    case 'gguf':
      return convertGgufTokenizer(spec.path);
  }
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
export interface TokenizerDescription {
  readonly spec: TokenizerSpec;
  /** One more than the largest token id. */
  readonly vocabSize: number;
  /** SHA-256 of what decides the tokens (tokenizer.json; or tokenizer.model and its special tokens), hexadecimal. */
  readonly hash: string;
}

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
  if (path === undefined) throw noTokenizer(dir);
  const format = formatOf(path);
  if (format === 'sentencepiece') {
    const model = readBounded(path, MODEL_BYTES);
    const special = readSpecialTokens(dir);
    const parsed = parseSentencePiece(model, path);
    return {
      spec: { kind: 'sentencepiece', path, special, ...(needsSpaceBefore(parsed) ? { isSpaced: true } : {}), ...limit },
      vocabSize: parsed.pieces.length,
      hash: createHash('sha256').update(model).update(JSON.stringify(special)).digest('hex'),
    };
  }
  const facts = format === 'json' ? {} : factsBeside(path, embeddings);
  const text = format === 'json' ? decodeUtf8(readBounded(path, JSON_BYTES), path) : convertFile(format, path, facts);
  const json = parseTokenizerJson(text, path);
  const beside = besideByConfig(dir, json, path);
  const isStated = Object.keys(beside).length > 0;
  const stated = { ...(isStated ? { beside } : {}), ...limit };
  return {
    spec: format === 'json' ? { kind: 'file', path, ...stated } : { kind: 'converted', format, path, facts, ...stated },
    vocabSize: json.vocabSize,
    hash: createHash('sha256')
      .update(text)
      .update(isStated ? JSON.stringify(beside) : '')
      .digest('hex'),
  };
}
