/** SentencePiece's tokenizer.model, converted to a tokenizer.json that gives the same tokens. */
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';
import { decodeUtf8 } from '../../system/read.js';
import { findMerges } from './byRank.js';
import type { AddedToken } from './json.js';
import type { TextBounds, TokenOf, Vocabulary } from './namedTokens.js';

// Reads protobuf messages field by field; every length is checked against its message.

/** A field as encoded: a number (varint, fixed32 bits, fixed64 bits as bigint) or a length-delimited slice. */
export type ProtoField =
  | { readonly number: number; readonly wire: 'varint' | 'fixed64'; readonly value: bigint }
  | { readonly number: number; readonly wire: 'fixed32'; readonly value: number }
  | { readonly number: number; readonly wire: 'bytes'; readonly value: Uint8Array };

/**
 * The fields of one message, in order. Nested messages are 'bytes' fields: pass them to this function again.
 * https://protobuf.dev/programming-guides/encoding. `where` starts every message. Throws UserError.
 */
export function* protoFields(message: Uint8Array, where: string): Generator<ProtoField, void, undefined> {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  let at = 0;
  const fail = (what: string): never => {
    throw new UserError(`${where}: damaged protobuf: ${what} at byte ${at}`, 'download the file again');
  };
  const need = (count: number): void => {
    if (count > message.length - at) fail(`a field of ${count} bytes runs past the end`);
  };
  const varint = (): bigint => {
    let small = 0;
    // Four groups fit in a positive int32, and nearly every varint is that short.
    for (let shift = 0; shift < 28; shift += 7) {
      need(1);
      const byte = message[at++] ?? 0;
      small |= (byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt(small);
    }
    let large = BigInt(small);
    for (let shift = 28n; shift < 70n; shift += 7n) {
      need(1);
      const byte = message[at++] ?? 0;
      large |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, large);
    }
    return fail('a number of more than 10 bytes');
  };
  while (at < message.length) {
    const tag = varint();
    const number = Number(tag >> 3n);
    if (number < 1 || number > 536_870_911) fail(`field number ${number}`);
    switch (Number(tag & 7n)) {
      case 0:
        yield { number, wire: 'varint', value: varint() };
        break;
      case 1:
        need(8);
        yield { number, wire: 'fixed64', value: view.getBigUint64(at, true) };
        at += 8;
        break;
      case 2: {
        const length = Number(varint());
        need(length);
        yield { number, wire: 'bytes', value: message.subarray(at, at + length) };
        at += length;
        break;
      }
      case 5:
        need(4);
        yield { number, wire: 'fixed32', value: view.getUint32(at, true) };
        at += 4;
        break;
      default:
        fail(`wire type ${Number(tag & 7n)}`);
    }
  }
}

// A SentencePiece BPE tokenizer.model, converted to a tokenizer.json that gives the same tokens. Fields:
// sentencepiece's sentencepiece_model.proto.

const NORMAL = 1;
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;
const BYTE = 6;

const BPE = 2;
const MAX_PIECES = 1 << 20;
const MAX_PIECE_CHARACTERS = 512;
const SPACE = '▁';
const USE_JSON = 'put the tokenizer.json of the model beside it: it is used if both exist';

export interface SentencePiece {
  readonly piece: string;
  readonly score: number;
  /** 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
  readonly type: number;
}

export interface SentencePieceModel {
  readonly pieces: readonly SentencePiece[];
  readonly byteFallback: boolean;
  readonly addDummyPrefix: boolean;
  readonly bosId: number;
  readonly eosId: number;
}

const asInt = (field: ProtoField): number =>
  field.wire === 'varint' ? Number(BigInt.asIntN(64, field.value)) : Number.NaN;

function parsePiece(bytes: Uint8Array, id: number, where: string): SentencePiece {
  const place = `${where}: piece ${id}`;
  let piece = '';
  let score = 0;
  let type = NORMAL;
  for (const field of protoFields(bytes, place)) {
    if (field.number === 1 && field.wire === 'bytes') piece = decodeUtf8(field.value, place);
    else if (field.number === 2 && field.wire === 'fixed32')
      score = new Float32Array(Uint32Array.of(field.value).buffer)[0] ?? 0;
    else if (field.number === 3) type = asInt(field);
  }
  if (piece === '' || piece.length > MAX_PIECE_CHARACTERS) {
    throw new UserError(`${place}: ${piece.length} characters; expected 1 to ${MAX_PIECE_CHARACTERS}`, USE_JSON);
  }
  if (!Number.isFinite(score))
    throw new UserError(`${place} (${quote(piece)}): score ${score} is not a number`, USE_JSON);
  return { piece, score, type };
}

/** Reads a ModelProto. Refuses models that no tokenizer.json of the form below can reproduce. Throws UserError. */
export function parseSentencePiece(model: Uint8Array, where: string): SentencePieceModel {
  const refuse = (what: string): never => {
    throw new UserError(`${where}: ${what}: such a tokenizer.model cannot be converted exactly`, USE_JSON);
  };
  const pieces: SentencePiece[] = [];
  let modelType = 1;
  let byteFallback = false;
  let addDummyPrefix = true;
  let removeExtraWhitespaces = true;
  let bosId = 1;
  let eosId = 2;
  for (const field of protoFields(model, where)) {
    if (field.wire !== 'bytes') continue;
    if (field.number === 1) {
      if (pieces.length === MAX_PIECES) throw new UserError(`${where}: more than ${MAX_PIECES} pieces`, USE_JSON);
      pieces.push(parsePiece(field.value, pieces.length, where));
    } else if (field.number === 2) {
      for (const inner of protoFields(field.value, `${where}: trainer_spec`)) {
        if (inner.number === 3) modelType = asInt(inner);
        else if (inner.number === 24 && asInt(inner) !== 0) refuse('it treats white space as a suffix');
        else if (inner.number === 35) byteFallback = asInt(inner) !== 0;
        else if (inner.number === 41) bosId = asInt(inner);
        else if (inner.number === 42) eosId = asInt(inner);
      }
    } else if (field.number === 3) {
      for (const inner of protoFields(field.value, `${where}: normalizer_spec`)) {
        if (inner.number === 2 && inner.wire === 'bytes' && inner.value.length > 0)
          refuse('it normalizes characters by a table');
        else if (inner.number === 3) addDummyPrefix = asInt(inner) !== 0;
        else if (inner.number === 4) removeExtraWhitespaces = asInt(inner) !== 0;
        else if (inner.number === 5 && asInt(inner) === 0) refuse('it does not escape white space');
      }
    }
  }
  if (pieces.length === 0) throw new UserError(`${where}: no pieces: not a SentencePiece model`, USE_JSON);
  if (modelType !== BPE) refuse(`its model type is ${modelType === 1 ? 'unigram' : modelType}, not BPE`);
  if (removeExtraWhitespaces) refuse('it removes repeated white space');
  return { pieces, byteFallback, addDummyPrefix, bosId, eosId };
}

/** Normal pieces, best first: by score from high to low (equal scores: by id). */
function byScore(pieces: readonly SentencePiece[]): string[] {
  const normal = pieces.flatMap((piece, id) => (piece.type === NORMAL ? [{ id, ...piece }] : []));
  return normal.sort((a, b) => b.score - a.score || a.id - b.id).map(({ piece }) => piece);
}

/**
 * Whether the one space before a text has to be put there by whoever encodes it. SentencePiece searches for
 * user-defined pieces in the text with that space, and a normalizer of a tokenizer.json would put one before those
 * pieces, too.
 */
export const needsSpaceBefore = ({ pieces, addDummyPrefix }: SentencePieceModel): boolean =>
  addDummyPrefix && pieces.some(({ type }) => type === USER_DEFINED);

/** What a tokenizer.json adds before and after a text. */
export interface SpecialTokens {
  readonly addBos: boolean;
  readonly addEos: boolean;
}

/**
 * The tokenizer.json (its text) that tokenizes like the tokenizer.model `model`. Its added tokens are the unknown and
 * control pieces, as in transformers' conversion. If two different pieces have the same score, SentencePiece takes the
 * leftmost and this takes the lower id; trained models have no equal scores. Throws UserError.
 */
export function convertSentencePiece(model: Uint8Array, where: string, special: SpecialTokens): string {
  const parsed = parseSentencePiece(model, where);
  return writePieces(parsed, where, special, { isSpaced: needsSpaceBefore(parsed) });
}

/** The tokens of a model that begin and end texts. */
export function boundsOfPieces({ pieces, bosId, eosId }: SentencePieceModel): TextBounds {
  const bound = (id: number): TokenOf | undefined => {
    const piece = pieces[id];
    return piece?.type === CONTROL ? { id, text: piece.piece } : undefined;
  };
  const [bos, eos] = [bound(bosId), bound(eosId)];
  return { ...defined({ bos, eos }) };
}

/**
 * The pieces that are searched for in texts before anything is merged. User-defined ones are searched for together, in
 * the text as the normalizers leave it, unless these put a space before it.
 */
const addedPieces = (pieces: readonly SentencePiece[], isNormalized: boolean): AddedToken[] =>
  pieces.flatMap(({ piece: content, type }, id) => {
    if (type !== UNKNOWN && type !== CONTROL && type !== USER_DEFINED) return [];
    const plain = { id, content, single_word: false, lstrip: false, rstrip: false };
    return [{ ...plain, normalized: type === USER_DEFINED && isNormalized, special: type !== USER_DEFINED }];
  });

/** The library searches for such pieces in the normalized text, where the mark before it would be a part of them. */
const isMarked = ({ piece, type }: SentencePiece): boolean => type === USER_DEFINED && piece.includes(SPACE);

/** What the converted tokenizer.json will have. */
export function vocabularyOfPieces(model: SentencePieceModel): Vocabulary {
  const { pieces, addDummyPrefix } = model;
  const ids = new Map(pieces.map(({ piece }, id) => [piece, id]));
  const added = addedPieces(pieces, !addDummyPrefix || needsSpaceBefore(model));
  return { added, idOf: (text) => ids.get(text), next: pieces.length };
}

/** What else a vocabulary may have. */
export interface PiecesOptions {
  /** Whether pieces may pad the vocabulary: unused ones, to which nothing merges. Default: refused. */
  readonly hasUnused?: boolean;
  /** Whether texts get the space before them elsewhere: see needsSpaceBefore. */
  readonly isSpaced?: boolean;
}

/** The tokenizer.json (its text) of such pieces. Throws UserError. */
export function writePieces(
  { pieces, byteFallback, addDummyPrefix, bosId, eosId }: SentencePieceModel,
  where: string,
  special: SpecialTokens,
  { hasUnused = false, isSpaced = false }: PiecesOptions = {},
): string {
  const refuse = (what: string): never => {
    throw new UserError(`${where}: ${what}`, USE_JSON);
  };
  const ids = new Map<string, number>();
  for (const [id, { piece }] of pieces.entries()) {
    if (ids.has(piece)) refuse(`pieces ${ids.get(piece)} and ${id} are both ${quote(piece)}`);
    ids.set(piece, id);
  }
  const unused = pieces.findIndex(({ type }) => type === UNUSED);
  if (unused !== -1 && !hasUnused)
    refuse(`piece ${unused} (${quote(pieces[unused]?.piece)}) is unused: such a tokenizer.model is not supported`);
  const unknown = pieces.filter((piece) => piece.type === UNKNOWN);
  // Converters to GGUF call a token unknown that pads the vocabulary; the first one stands for what has no piece.
  if (unknown.length === 0 || (unknown.length > 1 && !hasUnused))
    refuse(`${unknown.length} unknown pieces; expected 1`);
  const prepends = addDummyPrefix && !isSpaced;
  const marked = prepends ? pieces.findIndex(isMarked) : -1;
  if (marked !== -1)
    refuse(`piece ${marked} (${quote(pieces[marked]?.piece)}) is user-defined, and a space is put before texts`);
  const isByte = (value: number): boolean => {
    const id = ids.get(`<0x${value.toString(16).toUpperCase().padStart(2, '0')}>`);
    return id !== undefined && pieces[id]?.type === BYTE;
  };
  if (byteFallback && !Array.from({ length: 256 }, (_, value) => isByte(value)).every(Boolean)) {
    refuse('byte fallback is on, but some of the 256 byte pieces are missing');
  }
  const template = (id: number, name: string): { content: string; id: number } => {
    const piece = pieces[id];
    if (piece === undefined || piece.type !== CONTROL) return refuse(`${name} id ${id} is not a control piece`);
    return { content: piece.piece, id };
  };
  const before = special.addBos ? [template(bosId, 'bos')] : [];
  const after = special.addEos ? [template(eosId, 'eos')] : [];
  const sequence = (name: 'A' | 'B', type: number): unknown[] => [
    ...before.map(({ content }) => ({ SpecialToken: { id: content, type_id: type } })),
    { Sequence: { id: name, type_id: type } },
    ...after.map(({ content }) => ({ SpecialToken: { id: content, type_id: type } })),
  ];
  // No prototype: a piece may be called __proto__.
  const vocab = Object.create(null) as Record<string, number>;
  for (const [piece, id] of ids) vocab[piece] = id;
  return JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: addedPieces(pieces, !prepends),
    normalizer: {
      type: 'Sequence',
      normalizers: [
        ...(prepends ? [{ type: 'Prepend', prepend: SPACE }] : []),
        { type: 'Replace', pattern: { String: ' ' }, content: SPACE },
      ],
    },
    pre_tokenizer: null,
    post_processor: {
      type: 'TemplateProcessing',
      single: sequence('A', 0),
      pair: [...sequence('A', 0), ...sequence('B', 1)],
      special_tokens: Object.fromEntries(
        [...before, ...after].map(({ content, id }) => [content, { id: content, ids: [id], tokens: [content] }]),
      ),
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: SPACE }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(addDummyPrefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: unknown[0]?.piece,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: byteFallback,
      ignore_merges: false,
      vocab,
      merges: findMerges(byScore(pieces), ids, refuse),
    },
  });
}
