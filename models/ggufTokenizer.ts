/** The tokenizer of a GGUF file as the text of a tokenizer.json that gives the same tokens. */
import { defined } from '../system/defined.js';
import { UserError } from '../errors.js';
import { quote } from '../system/json.js';
import { readGgufHeader } from './gguf/header.js';
import type { Metadata } from './gguf/metadata.js';
import { readVocabulary, TOKEN_TYPES, type MergedVocabulary, type ScoredVocabulary } from './gguf/vocabulary.js';
import type { TextBounds, TokenOf } from './namedTokens.js';
import { writePieces } from './sentencepiece.js';
import { writeByteLevel } from './tokenizers/byteLevel.js';

const USE_HF = 'use the Hugging Face checkpoint of the model, with its tokenizer.json';

/** The metadata of a GGUF file. Throws UserError. */
export const ggufMetadata = (path: string): Metadata => readGgufHeader(path).metadata;

/**
 * What decides the tokens of a GGUF file. Throws UserError if its tokenizer is not known, or has more tokens than the
 * model, where that has `embeddings`.
 */
export function describeGgufTokenizer(
  path: string,
  embeddings = Infinity,
): TextBounds & { readonly vocabSize: number; readonly hash: string } {
  const metadata = ggufMetadata(path);
  const vocabulary = readVocabulary(metadata);
  const tokens = vocabulary.kind === 'scored' ? vocabulary.pieces : vocabulary.tokens;
  const { length } = tokens;
  if (length > embeddings)
    throw new UserError(
      `${path}: tokenizer.ggml.tokens has ${length} tokens, and token_embd.weight ${embeddings} rows`,
      USE_HF,
    );
  const bound = (id: number | undefined): TokenOf | undefined =>
    id === undefined || tokens[id] === undefined ? undefined : { id, text: tokens[id].piece };
  const [bos, eos] = [bound(vocabulary.bosId), bound(vocabulary.eosId)];
  return {
    ...defined({ bos, eos }),
    vocabSize: length,
    hash: metadata.digest('tokenizer.ggml.'),
  };
}

/** The tokenizer.json of a GGUF file. Throws UserError. */
export function convertGgufTokenizer(path: string): string {
  const vocabulary = readVocabulary(ggufMetadata(path));
  return vocabulary.kind === 'scored' ? fromScores(vocabulary, path) : fromMerges(vocabulary, path);
}

function fromScores({ pieces, addsSpace, bosId, eosId, addBos, addEos }: ScoredVocabulary, path: string): string {
  checkScores(pieces, path);
  const byteFallback = pieces.some(({ type }) => type === TOKEN_TYPES.byte);
  return writePieces(
    { pieces, byteFallback, addDummyPrefix: addsSpace, bosId: bosId ?? 1, eosId: eosId ?? 2 },
    path,
    { addBos, addEos },
    { hasUnused: true },
  );
}

/**
 * Converters that do not know the scores write one for all pieces, and the order of merges is lost. A few pieces with
 * one score are usual: LLaMA's runs of spaces.
 */
function checkScores(pieces: ScoredVocabulary['pieces'], path: string): void {
  const longer = pieces.filter(({ piece, type }) => type === TOKEN_TYPES.normal && [...piece].length > 1);
  const scores = new Set(longer.map(({ score }) => score));
  if (2 * scores.size < longer.length)
    throw new UserError(
      `${path}: tokenizer.ggml.scores has ${scores.size} different scores for ${longer.length} pieces: ` +
        'the order of merges is not known',
      USE_HF,
    );
}

function fromMerges({ tokens, merges, rule, ...around }: MergedVocabulary, path: string): string {
  const vocab = Object.create(null) as Record<string, number>;
  tokens.forEach(({ piece }, id) => {
    if (piece in vocab)
      throw new UserError(`${path}: tokens ${vocab[piece]} and ${id} are both ${quote(piece)}`, USE_HF);
    vocab[piece] = id;
  });
  const special = (name: 'bos' | 'eos', id: number | undefined): { id: number; content: string } => {
    const token = id === undefined ? undefined : tokens[id];
    if (id === undefined || token === undefined)
      throw new UserError(`${path}: tokenizer.ggml.add_${name}_token is true, and no ${name} token is given`, USE_HF);
    return { id, content: token.piece };
  };
  return writeByteLevel({
    vocab,
    merges,
    added: tokens.flatMap(({ piece, type }, id) =>
      type === TOKEN_TYPES.control || type === TOKEN_TYPES.userDefined || type === TOKEN_TYPES.unknown
        ? [{ id, content: piece, special: type !== TOKEN_TYPES.userDefined }]
        : [],
    ),
    rule,
    before: around.addBos ? [special('bos', around.bosId)] : [],
    after: around.addEos ? [special('eos', around.eosId)] : [],
  });
}
