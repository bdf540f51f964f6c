/** Writes GGUF files for tests, field by field, sound or not. Facts: ggml's docs/gguf.md. */

/** Values of metadata by their type in the file. */
export type GgufValue =
  | { readonly u32: number }
  | { readonly u64: bigint }
  | { readonly f32: number }
  | { readonly flag: boolean }
  | { readonly text: string }
  | { readonly texts: readonly string[] }
  | { readonly i32s: readonly number[] }
  | { readonly f32s: readonly number[] }
  | { readonly flags: readonly boolean[] };

export type GgufPairs = Readonly<Record<string, GgufValue>>;

export interface GgufTensor {
  readonly name: string;
  /** Slowest extent first. */
  readonly shape: readonly number[];
  /** The number of its element type. */
  readonly type: number;
  readonly bytes: Buffer;
}

export interface GgufFile {
  readonly version?: number;
  readonly alignment?: number;
  readonly pairs: GgufPairs | readonly (readonly [key: string, value: GgufValue])[];
  readonly tensors: readonly GgufTensor[];
  /** Another place of a tensor, from the beginning of the data. */
  readonly offsetOf?: (tensor: GgufTensor, offset: number) => number;
}

export const GGUF_TYPES = {
  F32: 0,
  F16: 1,
  Q4_0: 2,
  Q8_0: 8,
  Q4_K: 12,
  Q5_K: 13,
  Q6_K: 14,
  BF16: 30,
  MXFP4: 39,
} as const;
export type GgufType = keyof typeof GGUF_TYPES;

export const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
export const u64 = (value: bigint | number): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
export const text = (value: string): Buffer => Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);
const bytesOf = (view: ArrayBufferView): Buffer => Buffer.from(view.buffer, view.byteOffset, view.byteLength);
const list = (type: number, count: number, elements: Buffer): Buffer =>
  Buffer.concat([u32(9), u32(type), u64(count), elements]);

/** The type of a value and its bytes. */
export function ggufValue(value: GgufValue): Buffer {
  if ('u32' in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ('u64' in value) return Buffer.concat([u32(10), u64(value.u64)]);
  if ('f32' in value) return Buffer.concat([u32(6), bytesOf(Float32Array.of(value.f32))]);
  if ('flag' in value) return Buffer.concat([u32(7), Buffer.of(value.flag ? 1 : 0)]);
  if ('text' in value) return Buffer.concat([u32(8), text(value.text)]);
  if ('texts' in value) return list(8, value.texts.length, Buffer.concat(value.texts.map(text)));
  if ('i32s' in value) return list(5, value.i32s.length, bytesOf(Int32Array.from(value.i32s)));
  if ('f32s' in value) return list(6, value.f32s.length, bytesOf(Float32Array.from(value.f32s)));
  return list(7, value.flags.length, Buffer.from(value.flags.map(Number)));
}

/** The bytes of a file. */
export function ggufFile({
  version = 3,
  alignment = 32,
  pairs: given,
  tensors,
  offsetOf = (_, at) => at,
}: GgufFile): Buffer {
  const pairs = Array.isArray(given) ? (given as readonly (readonly [string, GgufValue])[]) : Object.entries(given);
  const padded = (bytes: Buffer): Buffer =>
    Buffer.concat([bytes, Buffer.alloc((alignment - (bytes.length % alignment)) % alignment)]);
  let at = 0;
  const described = tensors.map((tensor) => {
    const { name, shape, type, bytes } = tensor;
    const extents = [...shape].reverse().map(u64);
    const entry = Buffer.concat([text(name), u32(shape.length), ...extents, u32(type), u64(offsetOf(tensor, at))]);
    at += padded(bytes).length;
    return entry;
  });
  const header = Buffer.concat([
    Buffer.from('GGUF'),
    u32(version),
    u64(tensors.length),
    u64(pairs.length),
    ...pairs.map(([key, value]) => Buffer.concat([text(key), ggufValue(value)])),
    ...described,
  ]);
  return Buffer.concat([padded(header), ...tensors.map(({ bytes }) => padded(bytes))]);
}

/**
 * Converts small models to GGUF for tests, as the converters of llama.cpp do: their names, their order of rows, their
 * norm weights. Written from those converters' facts, apart from the reader.
 */
import { type FormatName, FORMATS } from '../../ir/storage.js';
import type { Json } from '../../models/model/model.js';
import type { SentencePieceModel } from '../../models/tokenizer/sentencepiece.js';
import { isRecord } from '../../system/json.js';

/** A tensor of the Hugging Face checkpoint. */
export interface PlainTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float64Array;
}

/** Names in Hugging Face checkpoints, and in GGUF files: the first that matches. */
const NAMES: readonly (readonly [RegExp, string])[] = [
  [/^(?:model\.embed_tokens|gpt_neox\.embed_in)\./, 'token_embd.'],
  [/^(?:model\.norm|gpt_neox\.final_layer_norm)\./, 'output_norm.'],
  [/^(?:lm_head|embed_out)\./, 'output.'],
  [/^(?:model|gpt_neox)\.layers\.(\d+)\./, 'blk.$1.'],
  [/self_attn\.([qk])_(?:norm|layernorm)\.(?:norms\.(\d+)\.)?/, 'attn_$1_norm.$2.'],
  [/(?:self_attn\.qkv_proj|attention\.query_key_value)/, 'attn_qkv'],
  [/self_attn\.([qkv])_proj/, 'attn_$1'],
  [/self_attn\.o_proj|attention\.dense/, 'attn_output'],
  [/mlp\.gate_up_proj|mlp\.dense_h_to_4h/, 'ffn_up'],
  [/mlp\.dense_4h_to_h/, 'ffn_down'],
  [/mlp\.shared_expert_gate/, 'ffn_gate_inp_shexp'],
  [/mlp\.shared_expert\.(\w+)_proj/, 'ffn_$1_shexp'],
  [/(?:mlp|block_sparse_moe)\.gate\./, 'ffn_gate_inp.'],
  [/(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(?:gate_proj|w1)\./, 'ffn_gate_exps.$1.'],
  [/(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(?:up_proj|w3)\./, 'ffn_up_exps.$1.'],
  [/(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(?:down_proj|w2)\./, 'ffn_down_exps.$1.'],
  [/mlp\.(\w+)_proj/, 'ffn_$1'],
  [/input_layernorm/, 'attn_norm'],
  [/pre_feedforward_layernorm/, 'ffn_norm'],
  [/post_feedforward_layernorm/, 'post_ffw_norm'],
];

/** Architectures whose norms before feed-forward are called post_attention_layernorm elsewhere. */
const HAS_NORMS_BEHIND: readonly unknown[] = ['gemma2', 'gemma3_text', 'olmo2', 'olmo3'];
/** Architectures whose rows of q and k are put into the order of Meta. */
const PERMUTED: readonly unknown[] = ['llama', 'mistral', 'mixtral', 'granite', 'smollm3'];

const nameOf = (name: string, modelType: unknown): string =>
  [...NAMES, [/post_attention_layernorm/, HAS_NORMS_BEHIND.includes(modelType) ? 'post_attention_norm' : 'ffn_norm']]
    .reduce((text, [from, to]) => text.replace(from as RegExp, to as string), name)
    .replaceAll('..', '.');

/** Rows in another order: row i of the result is row `from(i)`. */
function rows(values: Float64Array, count: number, from: (row: number) => number): Float64Array {
  const length = values.length / count;
  const out = new Float64Array(values.length);
  for (let row = 0; row < count; row++)
    out.set(values.subarray(from(row) * length, (from(row) + 1) * length), row * length);
  return out;
}

/** A head's two halves, row by row in turn. */
const byPairs =
  (headDim: number) =>
  (row: number): number => {
    const at = row % headDim;
    return row - at + (at % 2) * (headDim / 2) + Math.trunc(at / 2);
  };

/** Numbers of a config.json that were checked before. */
const numberOf = (json: Json, key: string): number => json[key] as number;
const headDimOf = (json: Json): number =>
  (json['head_dim'] as number | undefined) ?? numberOf(json, 'hidden_size') / numberOf(json, 'num_attention_heads');

function converted({ name, shape, values }: PlainTensor, json: Json): Float64Array {
  const type = json['model_type'];
  const headDim = headDimOf(json);
  if (PERMUTED.includes(type) && /self_attn\.[qk]_proj/.test(name)) return rows(values, shape[0]!, byPairs(headDim));
  if (String(type).startsWith('gemma') && name.endsWith('norm.weight')) return values.map((value) => value + 1);
  if (type === 'gpt_neox' && name.includes('query_key_value')) {
    const heads = numberOf(json, 'num_attention_heads');
    // [head, which, row of the head] becomes [which, head, row].
    return rows(values, shape[0]!, (row) => {
      const [which, head, at] = [Math.trunc(row / (heads * headDim)), Math.trunc(row / headDim) % heads, row % headDim];
      return (head * 3 + which) * headDim + at;
    });
  }
  return values;
}

/** Encodes rows of `columns` numbers. */
export type Encode = (values: Float64Array, type: GgufType) => Buffer;

const plain: Encode = (values, type) => {
  const formats: Partial<Record<GgufType, FormatName>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };
  const format = formats[type];
  if (format === undefined) throw new Error(`no encoder for ${type}`);
  return Buffer.from(FORMATS[format].encode(values));
};

/** The tensors of a model. `typeOf`: that of a matrix; vectors are F32, as converters write them. */
export function ggufTensors(
  tensors: readonly PlainTensor[],
  json: Json,
  typeOf: (name: string) => GgufType,
  encode: Encode = plain,
): GgufTensor[] {
  const groups = new Map<string, { shape: readonly number[]; values: Float64Array[] }>();
  for (const tensor of tensors) {
    const [, before = '', each, kind = ''] =
      /^(blk\.\d+\.\w+)\.(\d+)\.(\w+)$/.exec(nameOf(tensor.name, json['model_type'])) ?? [];
    const name = each === undefined ? nameOf(tensor.name, json['model_type']) : `${before}.${kind}`;
    const group = groups.get(name) ?? { shape: tensor.shape, values: [] };
    group.values.push(converted(tensor, json));
    groups.set(name, each === undefined ? group : { ...group, shape: [group.values.length, ...tensor.shape] });
  }
  return [...groups].map(([name, { shape: full, values }]) => {
    const shape = name.includes('ffn_gate_inp_shexp') ? full.slice(1) : full;
    const all = Float64Array.from(values.flatMap((each) => [...each]));
    const isVector = shape.length === 1 || name.includes('_norm') || name.includes('ffn_gate_inp.');
    const type = isVector ? 'F32' : typeOf(name);
    return { name, shape, type: GGUF_TYPES[type], bytes: isVector ? plain(all, type) : encode(all, type) };
  });
}

const ARCHITECTURES: Readonly<Record<string, string>> = {
  mistral: 'llama',
  mixtral: 'llama',
  qwen2_moe: 'qwen2moe',
  qwen3_moe: 'qwen3moe',
  gemma3_text: 'gemma3',
  olmo3: 'olmo2',
  gpt_neox: 'gptneox',
};

/** Keys below the architecture, by those of config.json, and whether they are whole numbers. */
const KEYS: readonly (readonly [key: string, to: string, type: 'u32' | 'f32' | 'flag'])[] = [
  ['max_position_embeddings', 'context_length', 'u32'],
  ['hidden_size', 'embedding_length', 'u32'],
  ['num_hidden_layers', 'block_count', 'u32'],
  ['intermediate_size', 'feed_forward_length', 'u32'],
  ['num_attention_heads', 'attention.head_count', 'u32'],
  ['num_key_value_heads', 'attention.head_count_kv', 'u32'],
  ['head_dim', 'attention.key_length', 'u32'],
  ['head_dim', 'attention.value_length', 'u32'],
  ['rms_norm_eps', 'attention.layer_norm_rms_epsilon', 'f32'],
  ['layer_norm_eps', 'attention.layer_norm_epsilon', 'f32'],
  ['rope_theta', 'rope.freq_base', 'f32'],
  ['sliding_window', 'attention.sliding_window', 'u32'],
  ['attn_logit_softcapping', 'attn_logit_softcapping', 'f32'],
  ['final_logit_softcapping', 'final_logit_softcapping', 'f32'],
  ['logit_scale', 'logit_scale', 'f32'],
  ['logits_scaling', 'logit_scale', 'f32'],
  ['embedding_multiplier', 'embedding_scale', 'f32'],
  ['residual_multiplier', 'residual_scale', 'f32'],
  ['attention_multiplier', 'attention.scale', 'f32'],
  ['use_parallel_residual', 'use_parallel_residual', 'flag'],
  ['num_local_experts', 'expert_count', 'u32'],
  ['num_experts', 'expert_count', 'u32'],
  ['num_experts_per_tok', 'expert_used_count', 'u32'],
  ['moe_intermediate_size', 'expert_feed_forward_length', 'u32'],
  ['shared_expert_intermediate_size', 'expert_shared_feed_forward_length', 'u32'],
];

const asValue = (value: unknown, type: 'u32' | 'f32' | 'flag'): GgufValue =>
  type === 'flag' ? { flag: value as boolean } : type === 'u32' ? { u32: value as number } : { f32: value as number };

/** The metadata of a model, without a tokenizer. */
export function ggufPairs(json: Json): GgufPairs {
  const type = String(json['model_type']);
  const architecture = ARCHITECTURES[type] ?? type;
  const pairs: Record<string, GgufValue> = { 'general.architecture': { text: architecture } };
  const set = (key: string, value: GgufValue): void => void (pairs[`${architecture}.${key}`] = value);
  for (const [key, to, kind] of KEYS) {
    const value = json[key];
    if (value !== undefined && value !== null) set(to, asValue(value, kind));
  }
  const part = json['partial_rotary_factor'] ?? json['rotary_pct'] ?? 1;
  set('rope.dimension_count', { u32: headDimOf(json) * (part as number) });
  // Converters tell models without a window by 0.
  if (type === 'phi3' && json['sliding_window'] === null) set('attention.sliding_window', { u32: 0 });
  const scaling = json['rope_scaling'] as Json | undefined;
  if (scaling?.['rope_type'] === 'linear' || scaling?.['rope_type'] === 'yarn') {
    set('rope.scaling.type', { text: scaling['rope_type'] });
    set('rope.scaling.factor', { f32: numberOf(scaling, 'factor') });
    const original = scaling['original_max_position_embeddings'];
    if (original !== undefined) set('rope.scaling.original_context_length', { u32: original as number });
  }
  return pairs;
}

// The metadata of tokenizers, as converters write it.

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
