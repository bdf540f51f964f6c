/** The metadata of tokenizers, as converters write it. */
import type { SentencePieceModel } from '../../models/tokenizer/sentencepiece.js';
import { isRecord } from '../../system/json.js';
import type { GgufPairs } from './ggufWriter.js';

/** The parts of a byte-level tokenizer.json. */
export interface ByteLevelJson {
  readonly added_tokens: readonly { readonly id: number; readonly content: string; readonly special?: boolean }[];
  readonly model: {
    readonly vocab: Readonly<Record<string, number>>;
    readonly merges: readonly (string | readonly string[])[];
  };
}

const [NORMAL, CONTROL, USER_DEFINED] = [1, 3, 4];

/** Of a byte-level tokenizer.json that is cut as `pre` says, with BOS token `bos`. */
export function byteLevelPairs({ added_tokens: added, model }: ByteLevelJson, pre: string, bos: string): GgufPairs {
  const ids = new Map(Object.entries(model.vocab));
  for (const { id, content } of added) ids.set(content, id);
  const tokens = [...ids].sort(([, a], [, b]) => a - b).map(([piece]) => piece);
  const types = new Map(added.map(({ content, special }) => [content, special === true ? CONTROL : USER_DEFINED]));
  return {
    'tokenizer.ggml.model': { text: 'gpt2' },
    'tokenizer.ggml.pre': { text: pre },
    'tokenizer.ggml.tokens': { texts: tokens },
    'tokenizer.ggml.token_type': { i32s: tokens.map((piece) => types.get(piece) ?? NORMAL) },
    'tokenizer.ggml.merges': { texts: model.merges.map((pair) => (typeof pair === 'string' ? pair : pair.join(' '))) },
    'tokenizer.ggml.bos_token_id': { u32: ids.get(bos)! },
    'tokenizer.ggml.add_bos_token': { flag: true },
  };
}

/** Of a SentencePiece model. */
export const piecePairs = ({ pieces, addDummyPrefix, bosId, eosId }: SentencePieceModel): GgufPairs => ({
  'tokenizer.ggml.model': { text: 'llama' },
  'tokenizer.ggml.pre': { text: 'default' },
  'tokenizer.ggml.tokens': { texts: pieces.map(({ piece }) => piece) },
  'tokenizer.ggml.scores': { f32s: pieces.map(({ score }) => score) },
  'tokenizer.ggml.token_type': { i32s: pieces.map(({ type }) => type) },
  'tokenizer.ggml.bos_token_id': { u32: bosId },
  'tokenizer.ggml.eos_token_id': { u32: eosId },
  'tokenizer.ggml.add_space_prefix': { flag: addDummyPrefix },
});

/** A parsed tokenizer.json that is byte-level. */
export function asByteLevel(json: unknown): ByteLevelJson {
  if (!isRecord(json) || !isRecord(json['model'])) throw new Error('not a tokenizer.json');
  return json as unknown as ByteLevelJson;
}
