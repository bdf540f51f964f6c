/**
 * Where the tokenizer of a checkpoint is, and what its files say: tokenizer.json as it is, or what a file of another
 * format is converted to, or the tokenizer of a GGUF file; and what tokenizer_config.json and others name beside them.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import { readBounded } from '../../system/read.js';
import { findGgufModel } from '../weights/weightFiles.js';
import { classNameOf } from './byteLevel.js';
import {
  cacheFor,
  digestOf,
  type FileCache,
  keepTokenizer,
  sameBytes,
  tokenizerFacts,
  type TokenizerFacts,
} from './cache.js';
import {
  convertFile,
  type FolderFacts,
  factsBeside,
  findTokenizer,
  type TokenizerFormat,
  formatOf,
  MODEL_BYTES,
  noTokenizer,
} from './formats.js';
import { convertGgufTokenizer, describeGgufTokenizer } from './gguf.js';
import { type TokensAround, mergesWholeTexts, parseTokenizerJson, type TokenizerJson } from './json.js';
import {
  missingTokens,
  type NamedTokens,
  newTokens,
  readNamedTokens,
  textBounds,
  type TextBounds,
  type TokenFlags,
  type TokenOf,
  type Vocabulary,
  vocabularyOf,
} from './namedTokens.js';
import {
  boundsOfPieces,
  convertSentencePiece,
  needsSpaceBefore,
  parseSentencePiece,
  type SentencePieceModel,
  type SpecialTokens,
  vocabularyOfPieces,
} from './sentencepiece.js';

/** All that a worker thread needs to make the same tokenizer: plain data that postMessage can copy. */
export type TokenizerSpec = {
  /** Rows of the model's embedding: a text with a larger token id is refused. No limit if absent. */
  readonly embeddings?: number;
  /** SHA-256 of what was described, hexadecimal: the file's bytes, or the tokenizer.json that they are converted to. */
  readonly digest?: string;
  /** Special tokens before and after a text, where tokenizer_config.json overrides the tokenizer itself. */
  readonly beside?: Partial<TokensAround>;
  /** Tokens that only other files name, or that have other flags there. */
  readonly tokens?: readonly TokenFlags[];
  /** A space is put before each text that begins with none of these: see needsSpaceBefore. */
  readonly spaceUnless?: readonly string[];
} & (
  | { readonly kind: 'file'; readonly path: string }
  | {
      readonly kind: 'converted';
      readonly format: Exclude<TokenizerFormat, 'json' | 'sentencepiece'>;
      readonly path: string;
      readonly facts: FolderFacts;
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

const JSON_BYTES = 64 << 20;

const REFETCH = 'download tokenizer.json again';

/** What to do about a tokenizer that the library does not take. */
export const REPLACE_HINTS: Readonly<Record<TokenizerSpec['kind'], string>> = {
  file: REFETCH,
  converted: 'put the tokenizer.json of the model beside it: it is used if both exist',
  json: REFETCH,
  sentencepiece: 'download tokenizer.model again',
  gguf: 'convert the model again with a current converter, or use its Hugging Face checkpoint',
};

/**
 * The tokenizer.json of a spec, its bytes or its text. Converting a tokenizer.model takes tens of megabytes: best in a
 * thread that ends.
 */
export function jsonOf(spec: TokenizerSpec): Buffer | string {
  switch (spec.kind) {
    case 'file':
      return readBounded(spec.path, JSON_BYTES, REFETCH);
    case 'converted':
      return Buffer.from(convertFile(spec.format, spec.path, spec.facts));
    case 'json':
      return spec.text;
    case 'sentencepiece':
      return convertSentencePiece(
        sameBytes(readBounded(spec.path, MODEL_BYTES), spec.digest, spec.path),
        spec.path,
        spec.special,
      );
    case 'gguf':
      return convertGgufTokenizer(spec.path);
  }
}

type Side = 'bos' | 'eos';

/** add_bos_token and add_eos_token override what a tokenizer.json puts around a text, as in transformers. */
function aroundJson(
  dir: string,
  where: string,
  { addBos, addEos, roles }: NamedTokens,
  bounds: TextBounds,
  embeddings = Infinity,
): Partial<TokensAround> {
  const ids = (side: Side): readonly number[] => {
    const token = bounds[side];
    const name = roles[`${side}_token`];
    if (token === undefined || token.id >= embeddings)
      throw new UserError(
        `${join(dir, 'tokenizer_config.json')}: add_${side}_token is true, but ${side}_token ` +
          `${isGiven(name) ? `${quote(name)} is no token of ${where}` : 'is absent'}` +
          `${token === undefined ? '' : `: the model has no embedding for one more, ${token.id}`}`,
        'download tokenizer_config.json and tokenizer.json again',
      );
    return [token.id];
  };
  return {
    ...defined({ before: addBos === undefined ? undefined : addBos ? ids('bos') : [] }),
    ...defined({ after: addEos === undefined ? undefined : addEos ? ids('eos') : [] }),
  };
}

/** What goes around the texts of a tokenizer.model: LLaMA's defaults, if tokenizer_config.json or the key is absent. */
function aroundPieces(
  { addBos = true, addEos = false, roles }: NamedTokens,
  bounds: TextBounds,
  own: TextBounds,
): { readonly special: SpecialTokens; readonly beside: Partial<TokensAround> } {
  // The model's own tokens are put there by its conversion.
  const isOwn = (adds: boolean, side: Side): boolean =>
    adds && roles[`${side}_token`] !== null && (bounds[side]?.id ?? own[side]?.id) === own[side]?.id;
  const special = { addBos: isOwn(addBos, 'bos'), addEos: isOwn(addEos, 'eos') };
  return {
    special,
    beside: {
      ...(addBos && !special.addBos && bounds.bos !== undefined ? { before: [bounds.bos.id] } : {}),
      ...(addEos && !special.addEos && bounds.eos !== undefined ? { after: [bounds.eos.id] } : {}),
    },
  };
}

/** What a checkpoint folder says of its tokenizer. */
export interface TokenizerDescription extends TextBounds {
  readonly spec: TokenizerSpec;
  /** One more than the largest token id. */
  readonly vocabSize: number;
  /** SHA-256 of what decides the tokens (the tokenizer's own file, and what others change of it), hexadecimal. */
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
  const facts = format === 'json' || format === 'sentencepiece' ? {} : factsBeside(path, embeddings);
  const named = readNamedTokens(dir, format === 'bpe' ? classNameOf(facts) : undefined);
  if (format === 'sentencepiece') {
    const file = readBounded(path, MODEL_BYTES);
    const cache = cacheFor(file);
    const { bounds, changes, special, vocabSize } = tokenizerFacts(cache, [format, named, embeddings], () =>
      factsOfPieces(parseSentencePiece(file, path), named),
    );
    const digest = cache?.digest ?? digestOf(file);
    const spec: TokenizerSpec = { kind: format, path, digest, special: special ?? NO_TOKENS, ...changes, ...limit };
    return { spec, ...bounds, vocabSize, hash: hashOf(file, digest, changes, special) };
  }
  const file = format === 'json' ? readBounded(path, JSON_BYTES) : Buffer.from(convertFile(format, path, facts));
  const cache = cacheFor(file);
  const { bounds, changes, vocabSize } = tokenizerFacts(cache, [format, named, embeddings], () =>
    factsOfJson(dir, parseAndKeep(file, path, cache), path, named, embeddings, OWN_BOUNDS[format]),
  );
  const made: TokenizerSpec = format === 'json' ? { kind: 'file', path } : { kind: 'converted', format, path, facts };
  const digest = cache?.digest ?? digestOf(file);
  const hash = hashOf(file, digest, changes, undefined);
  return { spec: { ...made, digest, ...changes, ...limit }, ...bounds, vocabSize, hash };
}

const NO_TOKENS: SpecialTokens = { addBos: false, addEos: false };

/** What formats call the tokens that begin and end texts where no file beside them does: the first that is there. */
const OWN_BOUNDS: Readonly<
  Record<Exclude<TokenizerFormat, 'sentencepiece'>, Readonly<Record<Side, readonly string[]>>>
> = {
  json: { bos: [], eos: [] },
  bpe: { bos: [], eos: [] },
  tekken: { bos: ['<s>'], eos: ['</s>'] },
  tiktoken: { bos: ['<|begin_of_text|>'], eos: ['<|end_of_text|>', '<|endoftext|>'] },
};

/** The threads that will make this tokenizer find it in the cache. */
function parseAndKeep(file: Buffer, path: string, cache: FileCache | undefined): TokenizerJson {
  const json = parseTokenizerJson(file, path);
  if (cache !== undefined && !mergesWholeTexts(json)) keepTokenizer(cache, json);
  return json;
}

function factsOfJson(
  dir: string,
  json: TokenizerJson,
  path: string,
  named: NamedTokens,
  embeddings: number | undefined,
  own: Readonly<Record<Side, readonly string[]>>,
): TokenizerFacts {
  const vocabulary = vocabularyOf(json);
  const tokens = missingTokens(vocabulary, named);
  const known = (side: Side): Readonly<Partial<Record<Side, TokenOf>>> => {
    const text = own[side].find((name) => vocabulary.idOf(name) !== undefined);
    return text === undefined ? {} : { [side]: { id: vocabulary.idOf(text)!, text } };
  };
  const bounds = textBounds(vocabulary, named, tokens, { ...known('bos'), ...known('eos') });
  const beside = aroundJson(dir, path, named, bounds, embeddings);
  return {
    bounds,
    changes: given({ beside, tokens }),
    vocabSize: vocabSizeWith(json.vocabSize, vocabulary, tokens),
  };
}

function factsOfPieces(model: SentencePieceModel, named: NamedTokens): TokenizerFacts {
  const vocabulary = vocabularyOfPieces(model);
  const tokens = missingTokens(vocabulary, asWritten(named));
  const own = boundsOfPieces(model);
  const bounds = textBounds(vocabulary, named, tokens, own);
  const { special, beside } = aroundPieces(named, bounds, own);
  const control = [...vocabulary.added, ...tokens].filter((token) => token.special).map(({ content }) => content);
  return {
    bounds,
    changes: { ...given({ beside, tokens }), ...(needsSpaceBefore(model) ? { spaceUnless: control } : {}) },
    special,
    vocabSize: vocabSizeWith(model.pieces.length, vocabulary, tokens),
  };
}

/** Tokens that are searched for in texts as they are: what marks spaces here is no normalizer in transformers. */
const asWritten = ({ listed, others, ...rest }: NamedTokens): NamedTokens => ({
  ...rest,
  listed: listed.map((token) => ({ ...token, normalized: false })),
  others: others.map((token) => ({ ...token, normalized: false })),
});

type Changes = TokenizerFacts['changes'];

/** Only what changes anything. */
const given = ({ beside, tokens }: Required<Pick<TokenizerSpec, 'beside' | 'tokens'>>): Changes => ({
  ...(Object.keys(beside).length > 0 ? { beside } : {}),
  ...(tokens.length > 0 ? { tokens } : {}),
});

/** A file that others change nothing of has the hash of its bytes. */
function hashOf(file: Buffer, digest: string, { beside, tokens }: Changes, special: SpecialTokens | undefined): string {
  const changes = [special, beside, tokens].filter((each) => each !== undefined).map((each) => JSON.stringify(each));
  if (changes.length === 0) return digest;
  return createHash('sha256').update(file).update(changes.join('')).digest('hex');
}

const vocabSizeWith = (own: number, vocabulary: Vocabulary, tokens: readonly TokenFlags[]): number =>
  newTokens(vocabulary, tokens).reduce((most, { id }) => Math.max(most, id + 1), own);
