/** params.json of Meta's checkpoints in the words of config.json. */
import { z } from 'zod';
import { UserError } from '../../errors.js';
import { isGiven, quote } from '../../system/json.js';
import type { Json } from '../family/model.js';
import { META_ARCHITECTURE } from './index.js';

const HINT = 'use the Hugging Face copy of the model (config.json and *.safetensors)';

const size = (most: number): z.ZodNumber => {
  const error = `expected a whole number from 1 to ${most}`;
  return z.int({ error }).min(1, { error }).max(most, { error });
};
const factor = z
  .number({ error: 'expected a number from 0.1 to 100' })
  .min(0.1, { error: 'expected a number from 0.1 to 100' })
  .max(100, { error: 'expected a number from 0.1 to 100' });

/** The keys of published files. Another one may change the computation, so it is refused. */
const schema = z.strictObject({
  dim: size(1 << 16),
  n_layers: size(1024),
  n_heads: size(1024),
  n_kv_heads: size(1024).nullish(),
  vocab_size: z.int({ error: 'expected a whole number' }),
  multiple_of: size(1 << 16),
  ffn_dim_multiplier: factor.nullish(),
  norm_eps: z.number({ error: 'expected a number' }),
  rope_theta: z.number({ error: 'expected a number' }).nullish(),
  use_scaled_rope: z.boolean({ error: 'expected true or false' }).nullish(),
  rope_scaling_factor: factor.nullish(),
  rope_high_freq_factor: factor.nullish(),
  max_seq_len: size(1 << 24).nullish(),
  max_batch_size: size(1 << 24).nullish(),
});
type Params = z.infer<typeof schema>;

/** Width of the feed-forward network: two thirds of 4·dim, times the multiplier, rounded up to `multiple_of`. */
function feedForward({ dim, multiple_of: multiple, ffn_dim_multiplier: multiplier }: Params): number {
  const width = Math.trunc((8 * dim) / 3);
  return Math.ceil(Math.trunc(width * (multiplier ?? 1)) / multiple) * multiple;
}

/**
 * Context that the model was made for, which the file does not name: LLaMA 3.1 and later scale their rotary embedding,
 * LLaMA 3 has a base of 500,000, and LLaMA 1 an ε below that of LLaMA 2.
 */
function maxPositions(params: Params): number {
  if (isGiven(params.max_seq_len)) return params.max_seq_len;
  if (params.use_scaled_rope === true) return 131_072;
  if ((params.rope_theta ?? 1e4) > 1e5) return 8192;
  return params.norm_eps < 5e-6 ? 2048 : 4096;
}

/** LLaMA 3's tokenizer has this many tokens, and its special tokens at the end. */
const LLAMA_3_TOKENS = 128_256;

/** LLaMA 3.1 scales by 8; models of later versions, the smallest of which have fewer dimensions, by other factors. */
const SCALED_BY_8 = 4096;

function scaling(params: Params, where: string): Json {
  if (params.use_scaled_rope !== true) return {};
  if (!isGiven(params.rope_scaling_factor) && params.dim < SCALED_BY_8)
    throw new UserError(`${where}: use_scaled_rope is true, and rope_scaling_factor does not say by how much`, HINT);
  return {
    rope_scaling: {
      rope_type: 'llama3',
      factor: params.rope_scaling_factor ?? 8,
      low_freq_factor: 1,
      high_freq_factor: params.rope_high_freq_factor ?? 4,
      original_max_position_embeddings: 8192,
    },
  };
}

/** True if a JSON object has the keys of Meta's params.json, and not those of config.json. */
export const isMetaParams = (json: Json): boolean =>
  'dim' in json && 'n_layers' in json && !('architectures' in json) && !('model_type' in json);

const SAID: Readonly<Record<string, string>> = {
  hidden_size: 'dim',
  num_hidden_layers: 'n_layers',
  num_attention_heads: 'n_heads',
  num_key_value_heads: 'n_kv_heads',
  rms_norm_eps: 'norm_eps',
  max_position_embeddings: 'max_seq_len',
};

/** A message about settings of config.json in the words of params.json. */
export const inParamsWords = (message: string): string => message.replaceAll(/\b\w+\b/g, (word) => SAID[word] ?? word);

/**
 * The settings of `params` under the names of config.json. `rows`: those of the embedding table, for files whose
 * vocab_size is −1, as it is where the tokenizer decides. Throws UserError, one line.
 */
export function configOfParams(params: Json, where: string, rows: number | undefined): Json {
  const parsed = schema.safeParse(params);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const key = issue?.code === 'unrecognized_keys' ? issue.keys[0]! : String(issue?.path[0] ?? '');
    const problem = issue?.code === 'unrecognized_keys' ? 'unknown setting' : issue?.message;
    throw new UserError(`${where}: ${key}: ${problem}, got ${key in params ? quote(params[key]) : 'nothing'}`, HINT);
  }
  const raw = parsed.data;
  const vocabSize = raw.vocab_size === -1 ? rows : raw.vocab_size;
  if (vocabSize === undefined)
    throw new UserError(`${where}: vocab_size is -1, and no weights say how many tokens there are`, HINT);
  return {
    architectures: [META_ARCHITECTURE],
    hidden_size: raw.dim,
    intermediate_size: feedForward(raw),
    num_hidden_layers: raw.n_layers,
    num_attention_heads: raw.n_heads,
    num_key_value_heads: raw.n_kv_heads ?? raw.n_heads,
    vocab_size: vocabSize,
    max_position_embeddings: maxPositions(raw),
    rms_norm_eps: raw.norm_eps,
    rope_theta: raw.rope_theta ?? 1e4,
    ...(vocabSize >= LLAMA_3_TOKENS
      ? { bos_token_id: 128_000, eos_token_id: [128_001, 128_008, 128_009] }
      : { bos_token_id: 1, eos_token_id: 2 }),
    ...scaling(raw, where),
  };
}
