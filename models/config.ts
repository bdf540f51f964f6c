/** config.json of a Hugging Face LLaMA checkpoint: what the compiler needs of it, checked and frozen. */
import { join } from 'node:path';
import { z } from 'zod';
import { UserError } from '../errors.js';
import { isGiven, isRecord, quote } from '../system/json.js';
import { fileSize, readJsonObject } from '../system/read.js';
import { parseRope, type RopeConfig } from './rope.js';

export { ropeInverseFrequencies, type RopeConfig, type RopeScaling } from './rope.js';

/** Element type of stored weights. */
export type WeightDType = 'f32' | 'f16' | 'bf16';

export interface LlamaConfig {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layers: number;
  readonly heads: number;
  /** Key and value heads: divides `heads`; equal to it without grouped-query attention. */
  readonly kvHeads: number;
  /** Even. heads·headDim need not be hiddenSize. */
  readonly headDim: number;
  readonly vocabSize: number;
  /** Longest context the model was made for, tokens. */
  readonly maxPositions: number;
  readonly rmsNormEps: number;
  /** The head is the embedding table: there is no lm_head. */
  readonly tieWordEmbeddings: boolean;
  readonly rope: RopeConfig;
  /** Element type that the checkpoint claims for its weights. */
  readonly dtype: WeightDType;
  readonly bosTokenId?: number;
  readonly eosTokenIds: readonly number[];
}

const CONFIG_BYTES = 1 << 20;
const ARCHITECTURE = 'LlamaForCausalLM';
const SUPPORTED = `supported: ${ARCHITECTURE} (LLaMA 1, 2, 3 and models that are exactly like them)`;

const whole = (min: number, max: number): z.ZodNumber => {
  const error = `expected a whole number from ${min} to ${max}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
};
const tokenId = z.int({ error: 'expected a token id or a list of them' });

/** Bounds are several times the largest published model's; what passes them cannot overflow a product of two sizes. */
const schema = z.looseObject({
  hidden_size: whole(1, 1 << 16),
  intermediate_size: whole(1, 1 << 19),
  num_hidden_layers: whole(1, 1024),
  num_attention_heads: whole(1, 1024),
  num_key_value_heads: whole(1, 1024).nullish(),
  head_dim: whole(2, 1024).nullish(),
  vocab_size: whole(2, 1 << 21),
  max_position_embeddings: whole(1, 1 << 24).nullish(),
  rms_norm_eps: z
    .number({ error: 'expected a number from 0 to 0.1' })
    .min(0, { error: 'expected a number from 0 to 0.1' })
    .max(0.1, { error: 'expected a number from 0 to 0.1' })
    .nullish(),
  tie_word_embeddings: z.boolean({ error: 'expected true or false' }).nullish(),
  bos_token_id: tokenId.nullish(),
  eos_token_id: z
    .union([tokenId, z.array(tokenId).max(64)], { error: 'expected a token id or a list of them' })
    .nullish(),
});

const DTYPES: Readonly<Record<string, WeightDType>> = { float32: 'f32', float16: 'f16', bfloat16: 'bf16' };

function parseDType(config: Readonly<Record<string, unknown>>, where: string, fallback: WeightDType): WeightDType {
  const key = isGiven(config['dtype']) ? 'dtype' : 'torch_dtype';
  const stated = config[key];
  if (!isGiven(stated) || stated === 'auto') return fallback;
  const dtype = typeof stated === 'string' ? DTYPES[stated.replace(/^torch\./, '')] : undefined;
  if (dtype === undefined)
    throw new UserError(
      `${where}: ${key} ${quote(stated)} is not supported; supported: ${Object.keys(DTYPES).join(', ')}`,
    );
  return dtype;
}

/** Refuses what is not LLaMA before looking at sizes, so that the first message is the one that matters. */
function checkArchitecture(config: Readonly<Record<string, unknown>>, where: string): void {
  const { architectures, model_type: modelType } = config;
  const first: unknown = Array.isArray(architectures) ? architectures[0] : architectures;
  if (isGiven(first) && first !== ARCHITECTURE)
    throw new UserError(`${where}: architecture ${quote(first)} is not supported; ${SUPPORTED}`);
  if (isGiven(modelType) && modelType !== 'llama')
    throw new UserError(`${where}: model_type ${quote(modelType)} is not supported; ${SUPPORTED}`);
  if (!isGiven(first) && !isGiven(modelType))
    throw new UserError(`${where}: neither architectures nor model_type is there; ${SUPPORTED}`);
}

/** Settings that change the computation and have one supported value. Absent means that value. */
const FIXED: readonly (readonly [key: string, value: unknown, why: string])[] = [
  ['attention_bias', false, 'attention projections with a bias are not supported'],
  ['mlp_bias', false, 'feed-forward projections with a bias are not supported'],
  ['hidden_act', 'silu', 'the only supported activation is "silu"'],
  ['partial_rotary_factor', 1, 'rotating only a part of a head is not supported'],
];

/**
 * Reads a parsed config.json. `where` (its path) starts every message. `fallbackDType` is the weights' element type
 * where the file names none. Token ids outside the vocabulary (some files use −1) count as absent.
 * Defaults of absent keys are those of transformers' LlamaConfig. Throws UserError, one line.
 */
export function parseConfig(json: unknown, where: string, fallbackDType: WeightDType = 'f32'): LlamaConfig {
  if (!isRecord(json)) throw new UserError(`${where}: expected a JSON object, got ${quote(json)}`);
  checkArchitecture(json, where);
  if (isGiven(json['quantization_config'])) {
    throw new UserError(
      `${where}: quantised weights are not supported`,
      'use the unquantised checkpoint (float32, float16 or bfloat16)',
    );
  }
  for (const [key, value, why] of FIXED) {
    if (isGiven(json[key]) && json[key] !== value)
      throw new UserError(`${where}: ${key} is ${quote(json[key])}: ${why}`);
  }
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const key = String(issue?.path[0] ?? '');
    throw new UserError(`${where}: ${key}: ${issue?.message}, got ${key in json ? quote(json[key]) : 'nothing'}`);
  }
  const raw = parsed.data;
  const heads = raw.num_attention_heads;
  const kvHeads = raw.num_key_value_heads ?? heads;
  if (heads % kvHeads !== 0) {
    throw new UserError(`${where}: num_attention_heads ${heads} is not a multiple of num_key_value_heads ${kvHeads}`);
  }
  if (!isGiven(raw.head_dim) && raw.hidden_size % heads !== 0) {
    throw new UserError(
      `${where}: hidden_size ${raw.hidden_size} is not a multiple of num_attention_heads ${heads}, and head_dim is absent`,
    );
  }
  const headDim = raw.head_dim ?? raw.hidden_size / heads;
  if (headDim % 2 !== 0) throw new UserError(`${where}: head_dim ${headDim} is odd; rotary embedding turns pairs`);
  if (headDim > 1024)
    throw new UserError(`${where}: head_dim ${headDim} (hidden_size / num_attention_heads) is more than 1024`);
  const inVocabulary = (id: number): boolean => id >= 0 && id < raw.vocab_size;
  const bos = raw.bos_token_id;
  return Object.freeze({
    hiddenSize: raw.hidden_size,
    intermediateSize: raw.intermediate_size,
    layers: raw.num_hidden_layers,
    heads,
    kvHeads,
    headDim,
    vocabSize: raw.vocab_size,
    maxPositions: raw.max_position_embeddings ?? 2048,
    rmsNormEps: raw.rms_norm_eps ?? 1e-6,
    tieWordEmbeddings: raw.tie_word_embeddings ?? false,
    rope: parseRope(json, where),
    dtype: parseDType(json, where, fallbackDType),
    ...(isGiven(bos) && inVocabulary(bos) ? { bosTokenId: bos } : {}),
    eosTokenIds: Object.freeze([raw.eos_token_id ?? []].flat().filter(inVocabulary)),
  });
}

const OTHER_MODEL =
  'use the Hugging Face checkpoint of a LLaMA 1, 2 or 3 model; if this is one, download its config.json again';
const WANTED = 'give the folder of a Hugging Face checkpoint: config.json and *.safetensors';

/** The configuration in the file `path`. UserError where it is missing or unsupported. */
export function readConfig(path: string, fallbackDType?: WeightDType): LlamaConfig {
  const { value } = readJsonObject(path, CONFIG_BYTES, WANTED);
  try {
    return parseConfig(value, path, fallbackDType);
  } catch (error) {
    throw error instanceof UserError && error.hint === undefined
      ? new UserError(error.message, OTHER_MODEL, { cause: error })
      : error;
  }
}

/** config.json of the checkpoint folder `dir`. UserError where it is missing or unsupported. */
export function loadConfig(dir: string, fallbackDType?: WeightDType): LlamaConfig {
  const path = join(dir, 'config.json');
  if (fileSize(path) === undefined && fileSize(join(dir, 'params.json')) !== undefined) {
    throw new UserError(
      `${dir}: this is Meta's own layout (params.json), which is not supported yet`,
      'use the Hugging Face copy of the model (config.json and *.safetensors)',
    );
  }
  return readConfig(path, fallbackDType);
}
