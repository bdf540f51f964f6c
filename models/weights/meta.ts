/**
 * LLaMA as Meta publishes it: params.json and consolidated.00.pth, or several parts. It differs from the Hugging Face
 * copies in names, and in the order of the rows of q and k, whose rotary pairs are neighbours.
 */
import { at } from '../../system/at.js';
import { readdirSync } from 'node:fs';
import { z } from 'zod';
import { UserError } from '../../errors.js';
import type { FileTile } from '../../ir/storage.js';
import { isGiven, quote } from '../../system/json.js';
import { readRange, withFile } from '../../system/read.js';
import { decoderFamily } from '../decoder/family.js';
import { LLAMA_NAMES } from '../decoder/tensors.js';
import type { Json } from '../model/model.js';
import type { ShapeOf, StoredTensor, WeightEntry, WeightFile } from '../model/tensors.js';

export const META_ARCHITECTURE = 'Transformer';

export const meta = decoderFamily({
  name: META_ARCHITECTURE,
  modelType: 'params.json',
  covers: 'LLaMA 1, 2 and 3 as Meta publishes them',
  maxPositions: 2048,
  hasInterleavedPairs: true,
  publishedNames: LLAMA_NAMES,
  names: {
    ...LLAMA_NAMES,
    embedding: 'tok_embeddings',
    head: 'output',
    finalNorm: 'norm',
    layers: 'layers',
    projections: {
      q: 'attention.wq',
      k: 'attention.wk',
      v: 'attention.wv',
      o: 'attention.wo',
      gate: 'feed_forward.w1',
      up: 'feed_forward.w3',
      down: 'feed_forward.w2',
    },
    norms: { attention: { before: 'attention_norm' }, ffn: { before: 'ffn_norm' } },
  },
  differences: () => ({ biased: [] }),
});

// params.json of Meta's checkpoints in the words of config.json.

const USE_HF_COPY = 'use the Hugging Face copy of the model (config.json and *.safetensors)';

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
    throw new UserError(
      `${where}: use_scaled_rope is true, and rope_scaling_factor does not say by how much`,
      USE_HF_COPY,
    );
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
    const key = issue?.code === 'unrecognized_keys' ? at(issue.keys, 0) : String(issue?.path[0] ?? '');
    const problem = issue?.code === 'unrecognized_keys' ? 'unknown setting' : issue?.message;
    throw new UserError(
      `${where}: ${key}: ${problem}, got ${key in params ? quote(params[key]) : 'nothing'}`,
      USE_HF_COPY,
    );
  }
  const raw = parsed.data;
  const vocabSize = raw.vocab_size === -1 ? rows : raw.vocab_size;
  if (vocabSize === undefined)
    throw new UserError(`${where}: vocab_size is -1, and no weights say how many tokens there are`, USE_HF_COPY);
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

// Names of the files of a model as Meta publishes it: one, or parts with some rows or columns of every matrix each.

const PART = /^consolidated\.(\d{2})\.pth$/;

export const partName = (part: number): string => `consolidated.${String(part).padStart(2, '0')}.pth`;

/** The only file of a model in one, the first one of a model in several parts. */
export const FIRST_PART = partName(0);

/** The number of parts in `dir`. Throws UserError where one is missing. */
export function countParts(dir: string): number {
  const parts = new Set(
    readdirSync(dir)
      .flatMap((name) => PART.exec(name)?.[1] ?? [])
      .map(Number),
  );
  const count = Math.max(-1, ...parts) + 1;
  for (let part = 0; part < count; part++)
    if (!parts.has(part))
      throw new UserError(
        `${dir}: the model is in ${count} parts, and ${partName(part)} is missing`,
        'download all parts again from one revision',
      );
  return count;
}

// Models that Meta publishes in several files, each with a part of every matrix: of the rows of those whose results the
// devices keep apart, of the columns of those whose results they add up.

/** Bytes of a tensor that all parts have: norms. */
const MAX_SHARED_BYTES = 1 << 20;
const REFETCH = 'download all parts again from one revision';

interface PartEntry extends WeightEntry {
  readonly file: string;
}

/**
 * The tensors of a model whose parts are `files`, in their order. `shapeOf`: what the model needs. Tensors that it does
 * not read are those of the first part. Throws UserError, one line, where parts contradict each other.
 */
export function mergeParts(files: readonly WeightFile[], shapeOf: ShapeOf): ReadonlyMap<string, StoredTensor> {
  const [first, ...others] = files.map(({ file, entries }) => ({
    file,
    entries: new Map(entries.map((entry): [string, PartEntry] => [entry.name, { ...entry, file }])),
  }));
  if (first === undefined) return new Map();
  for (const { file, entries } of others)
    for (const name of entries.keys())
      if (!first.entries.has(name))
        throw new UserError(`${file}: has tensor ${quote(name, 120)}, which ${first.file} lacks`, REFETCH);
  const merged = new Map<string, StoredTensor>();
  for (const [name, entry] of first.entries) {
    const all = others.map(({ file, entries }) => {
      const other = entries.get(name);
      if (other === undefined)
        throw new UserError(`${file}: lacks tensor ${quote(name, 120)} of ${first.file}`, REFETCH);
      return other;
    });
    merged.set(name, merge([entry, ...all], shapeOf(name)));
  }
  return merged;
}

const describe = ({ dtype, shape }: WeightEntry): string => `${dtype} [${shape.slice(0, 8).join(', ')}]`;

function merge(parts: readonly [PartEntry, ...PartEntry[]], wanted: readonly number[] | undefined): StoredTensor {
  const [first] = parts;
  const { name, dtype, shape } = first;
  const where = `${first.file}: tensor ${quote(name, 120)}`;
  const other = parts.find((part) => describe(part) !== describe(first));
  if (other !== undefined)
    throw new UserError(`${where} is ${describe(first)}, and ${describe(other)} in ${other.file}`, REFETCH);
  if (wanted === undefined || parts.length === 1) return first;
  if (shape.join() === wanted.join()) return shared(parts, where);
  const [rows = 1, columns = 1] = shape;
  const isMatrix = shape.length === 2 && wanted.length === 2;
  const isByRows = isMatrix && rows * parts.length === wanted[0] && columns === wanted[1];
  const isByColumns = isMatrix && rows === wanted[0] && columns * parts.length === wanted[1];
  if (!isByRows && !isByColumns)
    throw new UserError(
      `${where} has shape [${shape.slice(0, 8).join(', ')}] in each of ${parts.length} parts, ` +
        `which do not make up [${wanted.join(', ')}]`,
      'if it is published in more parts, download the missing ones; else download params.json and all parts again',
    );
  const tiles = parts.map(({ file, offset }, i): FileTile => ({
    file,
    offset,
    row: isByRows ? i * rows : 0,
    rows,
    column: isByRows ? 0 : i * columns,
    columns,
    isTransposed: false,
    stride: columns,
  }));
  return { name, dtype, shape: wanted, tiles };
}

/** A tensor that all parts have whole. Throws UserError if they differ. */
function shared(parts: readonly [PartEntry, ...PartEntry[]], where: string): StoredTensor {
  const [first, ...others] = parts;
  if (first.byteLength > MAX_SHARED_BYTES)
    throw new UserError(`${where} is whole in each of ${parts.length} parts, which have a part each`, REFETCH);
  const bytesOf = ({ file, offset, byteLength }: PartEntry): Buffer =>
    withFile(file, (fd) => readRange(fd, offset, byteLength));
  const own = bytesOf(first);
  const other = others.find((part) => !bytesOf(part).equals(own));
  if (other !== undefined) throw new UserError(`${where} has other values in ${other.file}`, REFETCH);
  return first;
}
