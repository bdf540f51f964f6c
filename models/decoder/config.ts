/** config.json of LLaMA-like decoders: the keys that they share, checked and frozen. */
import { z } from 'zod';
import { UserError } from '../../errors.js';
import type { RotaryOrder } from '../../ir/rotaryOrder.js';
import type { FormatName } from '../../ir/storage.js';
import { isGiven, quote } from '../../system/json.js';
import { defined } from '../../system/defined.js';
import type { ClassHead, Json, ModelConfig } from '../model/model.js';
import type { Activation, NormKind } from './ops.js';
import type { ExpertsConfig } from './experts.js';
import type { LatentConfig } from './latent.js';
import type { RecurrentConfig } from './recurrentConfig.js';
import type { ConfigReader, Projection, Windows } from './reader.js';
import { parseRopes, type RopeConfig } from './rope.js';
import type { Temperature } from './temperature.js';

/** The properties in which these models differ. */
export interface DecoderConfig extends ModelConfig {
  readonly intermediateSize: number;
  readonly heads: number;
  /** Number of key and value heads. It divides `heads`, and equals it without grouped-query attention. */
  readonly kvHeads: number;
  /** Even. heads·headDim need not be hiddenSize. */
  readonly headDim: number;
  /** The ε of norms, also of LayerNorm. */
  readonly rmsNormEps: number;
  /** True if the head is the embedding table and there is no lm_head. */
  readonly tieWordEmbeddings: boolean;
  /** Whether the head of the vocabulary adds a bias. Default: it does not. */
  readonly hasHeadBias?: true;
  /** Projections that add a bias to their product. */
  readonly biased: readonly Projection[];
  readonly rope: RopeConfig;
  /** Of layers with a window, where it is another. */
  readonly windowRope?: RopeConfig;
  /** Default: RMSNorm. */
  readonly norm?: NormKind;
  /** Default: SiLU. */
  readonly activation?: Exclude<Activation, 'silu'>;
  /** Default: feed-forward is one block. */
  readonly experts?: ExpertsConfig;
  /** Latent attention, where headDim is what rotary embedding turns of a head. Default: none. */
  readonly latent?: LatentConfig;
  /** False if feed-forward is f(x·up)·down, without a gate. Default: true. */
  readonly isGated?: boolean;
  /** Attention and feed-forward read the same stream, through one norm or each through its own. Default: in turn. */
  readonly parallel?: 'one norm' | 'two norms';
  /** What rotary embedding turns. Default: whole heads, whose pairs are half a head apart. */
  readonly rotary?: Omit<RotaryOrder, 'headDim'>;
  /**
   * Norm of q and k before rotary embedding: of each head, with one weight for all heads or one of its own, or of the
   * whole row. `own head`: without biases, whatever other norms have. `turned head`: RMSNorm of heads, behind rotary
   * embedding. `unit head`: the same without weights, of layers that turn. Default: none.
   */
  readonly qkNorm?: 'head' | 'own head' | 'row' | 'turned head' | 'unit head';
  /** Columns of the embedding table and of the head, where they are another number than hiddenSize. */
  readonly embeddingWidth?: number;
  /** Rows of a table of positions, whose vectors are added to embeddings: the context. Default: there is none. */
  readonly positionRows?: number;
  /** Layers whose queries and keys are not rotated, in ascending order. Default: none. */
  readonly unrotated?: readonly number[];
  /**
   * For each layer, how many keys a query sees: itself and those right before it on its path. null: all. Default: all
   * in every layer.
   */
  readonly windows?: Windows;
  /** Layers that keep a state in place of keys and values. Default: none. */
  readonly recurrent?: RecurrentConfig;
  /** True if what attention gives is multiplied by σ(x·gate), whose rows follow those of q for each head. */
  readonly isOutputGated?: boolean;
  /** Whether each head has a logit in the softmax of attention that has no value. Default: none has. */
  readonly sinks?: true;
  /** For each layer, of how many positions the pieces are that a query's keys lie in; null: none. Default: none. */
  readonly chunks?: Windows;
  /**
   * Queries are multiplied by 1 + by·ln(1 + ⌊(position + from) / every⌋), in all layers or in those that do not rotate.
   * Default: by 1.
   */
  readonly temperature?: Temperature;
  /** Inner width of layers without experts, where it is another. */
  readonly denseWidth?: number;
  /** ALiBi: of each head, what is added to a score for every position that a key is further on. Default: none. */
  readonly slopes?: readonly number[];
  /**
   * Slopes are multiplied by positions of keys in bf16, and scores by this behind them. Default: by distances, exactly.
   */
  readonly slopeFactor?: number;
  /** Largest magnitude of what q, k and v are projected to. Default: any. */
  readonly clip?: number;
  /** Whether scores are divided by the number of the layer, which counts from 1. Default: they are not. */
  readonly dividesScores?: true;
  /** Whether a branch is added to what its norm gives, in place of the stream before. Default: it is not. */
  readonly keepsNormed?: true;
  /** Whether a norm stands before the head. Default: it does. */
  readonly hasFinalNorm?: false;
  /** Soft caps: scores or logits x become cap·tanh(x / cap). Default: none. */
  readonly caps?: Caps;
  /** Literal factors. Default of each: that of LLaMA. */
  readonly factors?: Partial<Factors>;
}

/** Bounds of attention scores and of logits. */
export interface Caps {
  readonly scores?: number;
  readonly logits?: number;
}

/** Literals that multiply values of the graph. */
export interface Factors {
  /** Of embeddings. LLaMA: 1. */
  readonly embedding: number;
  /** Of what attention and feed-forward add to the residual stream. LLaMA: 1. */
  readonly residual: number;
  /** Of attention scores. LLaMA: 1/√headDim. */
  readonly scores: number;
  /** Of logits. LLaMA: 1. */
  readonly logits: number;
}

/** What a family reads from its own keys. Fields that are absent leave the decoder as LLaMA has it. */
export type Differences = Pick<
  DecoderConfig,
  | 'biased'
  | 'norm'
  | 'experts'
  | 'latent'
  | 'isGated'
  | 'parallel'
  | 'qkNorm'
  | 'positionRows'
  | 'unrotated'
  | 'windows'
  | 'sinks'
  | 'chunks'
  | 'temperature'
  | 'denseWidth'
  | 'slopes'
  | 'slopeFactor'
  | 'clip'
  | 'caps'
  | 'factors'
  | 'recurrent'
  | 'isOutputGated'
  | 'hasHeadBias'
  | 'dividesScores'
  | 'keepsNormed'
  | 'hasFinalNorm'
  | 'embeddingWidth'
>;

/** What each family specifies. */
export interface FamilyConfig {
  readonly architecture: string;
  /** max_position_embeddings if the file names none. */
  readonly maxPositions: number;
  /** head_dim if the file names none. Default: hidden_size / num_attention_heads. */
  readonly headDim?: number;
  /** num_key_value_heads if the file has no such key; null means num_attention_heads. Default: num_attention_heads. */
  readonly kvHeads?: number;
  /** rope_theta if the file names none. Default: 10,000. */
  readonly theta?: number;
  /** True if layers with a window turn by unscaled frequencies. Default: false. */
  readonly scalesFullLayersOnly?: boolean;
  /** Other names of types of rotary scaling. */
  readonly ropeTypes?: Readonly<Record<string, string>>;
  /** original_max_position_embeddings if the file names none. Default: none. */
  readonly originalMaxPositions?: number;
  /** The key of the ε of norms. Default: rms_norm_eps. */
  readonly epsilonKey?: string;
  /** The ε if the file names none. Default: 1e-6. */
  readonly epsilon?: number;
  /** The activation if the file names none. Default: SiLU. */
  readonly activation?: Activation;
  /** The key of the activation. Default: hidden_act. */
  readonly activationKey?: string;
  /** Whether rotary embedding turns pairs of neighbours. Default: false. */
  readonly hasInterleavedPairs?: boolean;
  /** The part of each head that is turned if the file names none, where the family has such a setting. */
  readonly rotaryPart?: number;
  /** Another key of theta. Default: none. */
  readonly thetaKey?: string;
  /** tie_word_embeddings if the file names none. Default: false. */
  readonly isTied?: boolean;
  readonly differences: Differences;
  readonly head?: ClassHead;
}

const whole = (min: number, max: number): z.ZodNumber => {
  const error = `expected a whole number from ${min} to ${max}`;
  return z.int({ error }).min(min, { error }).max(max, { error });
};
const tokenId = z.int({ error: 'expected a token id or a list of them' });

/** Bounds are several times those of the largest published model. Within them, no product of two sizes can overflow. */
const schema = z.looseObject({
  hidden_size: whole(1, 1 << 16),
  intermediate_size: whole(1, 1 << 19),
  num_hidden_layers: whole(1, 1024),
  num_attention_heads: whole(1, 1024),
  num_key_value_heads: whole(1, 1024).nullish(),
  head_dim: whole(2, 1024).nullish(),
  vocab_size: whole(2, 1 << 21),
  max_position_embeddings: whole(1, 1 << 24).nullish(),
  tie_word_embeddings: z.boolean({ error: 'expected true or false' }).nullish(),
  bos_token_id: tokenId.nullish(),
  eos_token_id: z
    .union([tokenId, z.array(tokenId).max(64)], { error: 'expected a token id or a list of them' })
    .nullish(),
});

const DTYPES: Readonly<Record<string, FormatName>> = { float32: 'f32', float16: 'f16', bfloat16: 'bf16' };

/** The element type that a file claims for its weights, or `fallback`. Throws UserError. */
function parseDType(config: Json, where: string, fallback: FormatName): FormatName {
  const key = isGiven(config['dtype']) ? 'dtype' : 'torch_dtype';
  const stated = config[key];
  if (!isGiven(stated) || stated === 'auto') return fallback;
  const name = typeof stated === 'string' ? stated.replace(/^torch\./, '') : '';
  const dtype = Object.hasOwn(DTYPES, name) ? DTYPES[name] : undefined;
  if (dtype === undefined)
    throw new UserError(
      `${where}: ${key} ${quote(stated)} is not supported; supported: ${Object.keys(DTYPES).join(', ')}`,
    );
  return dtype;
}

/** The file with the length of context that it leaves to its family. */
const withContext = (json: Json, { maxPositions }: FamilyConfig): Json => ({
  ...json,
  max_position_embeddings: json['max_position_embeddings'] ?? maxPositions,
});

/** Plain data, frozen to the last field. */
function frozen<T extends object>(value: T): T {
  for (const part of Object.values(value) as unknown[])
    if (typeof part === 'object' && part !== null && !Object.isFrozen(part)) frozen(part);
  return Object.freeze(value);
}

/**
 * Reads the keys that these families share. Token ids outside the vocabulary (some files use −1) count as absent.
 * Defaults of absent keys are those of transformers. Throws UserError, one line.
 */
export function parseDecoderConfig(
  reader: ConfigReader,
  fallbackDType: FormatName,
  family: FamilyConfig,
): DecoderConfig {
  const { json, where } = reader;
  const parsed = schema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const key = String(issue?.path[0] ?? '');
    throw new UserError(`${where}: ${key}: ${issue?.message}, got ${key in json ? quote(json[key]) : 'nothing'}`);
  }
  const raw = parsed.data;
  const heads = raw.num_attention_heads;
  const kvHeads = (raw.num_key_value_heads === undefined ? family.kvHeads : raw.num_key_value_heads) ?? heads;
  if (heads % kvHeads !== 0) {
    throw new UserError(`${where}: num_attention_heads ${heads} is not a multiple of num_key_value_heads ${kvHeads}`);
  }
  const givenHeadDim = raw.head_dim ?? family.headDim;
  if (givenHeadDim === undefined && raw.hidden_size % heads !== 0) {
    throw new UserError(
      `${where}: hidden_size ${raw.hidden_size} is not a multiple of num_attention_heads ${heads}, ` +
        'and head_dim is absent',
    );
  }
  const headDim = givenHeadDim ?? raw.hidden_size / heads;
  if (headDim % 2 !== 0) throw new UserError(`${where}: head_dim ${headDim} is odd; rotary embedding turns pairs`);
  if (headDim > 1024)
    throw new UserError(`${where}: head_dim ${headDim} (hidden_size / num_attention_heads) is more than 1024`);
  const rotated = reader.rotated(headDim, family.rotaryPart);
  const interleaved = family.hasInterleavedPairs === true;
  const activation = reader.activation(family.activation ?? 'silu', family.activationKey);
  const { theta, thetaKey, scalesFullLayersOnly, ropeTypes } = family;
  const ropes = parseRopes(withContext(json, family), where, {
    theta,
    thetaKey,
    scalesFullLayersOnly,
    originalContext: family.originalMaxPositions,
    types: ropeTypes,
  });
  const { scaling } = ropes.rope;
  if (scaling.type === 'longrope' && scaling.factors.length !== rotated / 2)
    throw new UserError(
      `${where}: short_factor has ${scaling.factors.length} numbers, but rotary embedding turns ${rotated / 2} pairs`,
    );
  const stated = raw.max_position_embeddings ?? family.maxPositions;
  const maxPositions = scaling.type === 'longrope' ? Math.min(stated, scaling.originalMaxPositions) : stated;
  const { windows, ...differences } = family.differences;
  // A window as long as the longest context hides nothing, but its layers may have angles of their own.
  const widest = ropes.windowRope === undefined ? maxPositions : Infinity;
  const narrow = windows?.map((width) => (width === null || width >= widest ? null : width)) ?? [];
  const inVocabulary = (id: number): boolean => id >= 0 && id < raw.vocab_size;
  const bos = raw.bos_token_id;
  return frozen({
    architecture: family.architecture,
    hiddenSize: raw.hidden_size,
    intermediateSize: raw.intermediate_size,
    layers: raw.num_hidden_layers,
    heads,
    kvHeads,
    headDim,
    vocabSize: raw.vocab_size,
    maxPositions,
    rmsNormEps: reader.number(family.epsilonKey ?? 'rms_norm_eps', family.epsilon ?? 1e-6, [0, 0.1]),
    tieWordEmbeddings: raw.tie_word_embeddings ?? family.isTied ?? false,
    ...differences,
    ...defined({ head: family.head }),
    ...(narrow.every((width) => width === null) ? {} : { windows: narrow }),
    ...(activation === 'silu' ? {} : { activation }),
    ...(rotated === headDim && !interleaved ? {} : { rotary: { rotated, interleaved } }),
    ...ropes,
    dtype: parseDType(json, where, fallbackDType),
    ...(isGiven(bos) && inVocabulary(bos) ? { bosTokenId: bos } : {}),
    eosTokenIds: [raw.eos_token_id ?? []].flat().filter(inVocabulary),
  });
}
