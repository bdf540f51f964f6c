/**
 * The architectures of GGUF files, in the words of config.json and with the names of Hugging Face checkpoints. What a
 * key means, and what stands for an absent one, is what the converters of llama.cpp write and what it computes.
 */
import { UserError } from '../../errors.js';
import { readRange, withFile } from '../../system/read.js';
import type { Json, StoredWays } from '../model/model.js';
import type { WeightEntry } from '../model/tensors.js';
import type { GgufHeader } from './file.js';
import type { Metadata } from './metadata.js';
import {
  EACH,
  FOUR_NORMS,
  HEAD_NORMS,
  LLAMA_MODULES,
  MIXTRAL_MODULES,
  type GgufModuleNames,
  NEOX_MODULES,
  OLMO_MODULES,
  PHI_MODULES,
  QWEN_EXPERTS,
  withModules,
} from './modules.js';

export interface GgufArchitecture {
  /** general.architecture */
  readonly name: string;
  /** Settings of its own. `model_type` names the family. Throws UserError for what is not known. */
  readonly settings: (facts: GgufFacts, shape: Shape) => Json;
  readonly modules: (facts: GgufFacts) => GgufModuleNames;
  /** How its files hold weights in another way than Hugging Face checkpoints do. */
  readonly ways: StoredWays;
  /** The key of config.json for the part of a head that is turned. Default: whole heads are turned. */
  readonly partKey?: 'partial_rotary_factor' | 'rotary_pct';
  /** True if layers with a window have a theta of their own. */
  readonly hasWindowTheta?: boolean;
}

/** Sizes that settings depend on. */
export interface Shape {
  readonly hidden: number;
  readonly heads: number;
  readonly headDim: number;
  readonly layers: number;
}

const MOST = 1 << 24;
const FACTOR: readonly [number, number] = [1e-6, 1e6];
const INTERLEAVED: StoredWays = { hasInterleavedPairs: true };
/** Norm weights are stored with the 1 that these models add; published checkpoints are in bf16. */
const GEMMA: StoredWays = { hasWholeNormWeights: true };

const biases = (facts: GgufFacts): Json => ({
  attention_bias: facts.has('blk.0.attn_q.bias'),
  mlp_bias: facts.has('blk.0.ffn_up.bias'),
});

/** layer_types: of a list of flags, or of an interval of which each last layer sees all keys. */
function layerTypes(facts: GgufFacts, layers: number, interval: number): readonly string[] {
  const key = facts.key('attention.sliding_window_pattern');
  const stated = facts.metadata.isList(key) ? facts.metadata.flags(key) : undefined;
  if (stated !== undefined && stated.length !== layers) facts.refuse(`${key} is not a list of ${layers} layers`);
  const every = stated === undefined ? (facts.metadata.whole(key, 1, layers) ?? interval) : interval;
  return Array.from({ length: layers }, (_, layer) =>
    (stated === undefined ? (layer + 1) % every !== 0 : stated[layer]) ? 'sliding_attention' : 'full_attention',
  );
}

/** Settings of experts. Routers whose probabilities are no softmax, or that scale them, are refused. */
function experts(facts: GgufFacts, isNormalized: boolean): { readonly count: number; readonly settings: Json } {
  const count = facts.whole('expert_count', 0, MOST) ?? 0;
  const chosen = facts.whole('expert_used_count', 0, MOST);
  const gating = facts.whole('expert_gating_func', 0, 255) ?? 0;
  const scale = facts.number('expert_weights_scale', 0, 1e6) ?? 0;
  const norm = facts.metadata.flag(facts.key('expert_weights_norm')) ?? isNormalized;
  if (gating > 1) facts.refuse(`${facts.key('expert_gating_func')} is ${gating}: routers take a softmax (1)`);
  if (scale !== 0 && scale !== 1) facts.refuse(`${facts.key('expert_weights_scale')} is ${scale}, which is not known`);
  if (norm !== isNormalized) facts.refuse(`${facts.key('expert_weights_norm')} is ${norm}, which is not known here`);
  return { count, settings: count === 0 ? {} : { num_local_experts: count, num_experts_per_tok: chosen } };
}

/** The inner width of an expert by its key, or by the shape of its tensors. */
const widthOf = (facts: GgufFacts, key: string, tensor: string): number | undefined => {
  const stated = facts.whole(key, 1, MOST);
  if (stated !== undefined) return stated;
  const layer = Array.from({ length: facts.layers }, (_, i) => i).find((i) => facts.has(`blk.${i}.${tensor}.weight`));
  return layer === undefined ? undefined : facts.shape(`blk.${layer}.${tensor}.weight`)?.at(-2);
};

/** Qwen's settings of experts. Layers without a router have one feed-forward block. */
function qwenExperts(facts: GgufFacts, isNormalized: boolean, layers: number): Json {
  const { settings } = experts(facts, isNormalized);
  const dense = Array.from({ length: layers }, (_, i) => i).filter((i) => !facts.has(`blk.${i}.ffn_gate_inp.weight`));
  return {
    ...settings,
    norm_topk_prob: isNormalized,
    moe_intermediate_size: widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps'),
    mlp_only_layers: dense,
  };
}

/** The window in every layer; null if there is none. */
const window = (facts: GgufFacts): number | null => {
  const width = facts.whole('attention.sliding_window', 0, MOST) ?? 0;
  return width === 0 ? null : width;
};

/** What scores are divided by the root of. Files do not say: the largest model of a version has a value of its own. */
const gemmaScalar = ({ hidden, heads, headDim, layers }: Shape, largest: number): number =>
  layers === largest ? Math.trunc(hidden / heads) : headDim;

const isOlmo3 = (facts: GgufFacts): boolean => window(facts) !== null;

function llamaSettings(facts: GgufFacts): Json {
  const { count, settings } = experts(facts, true);
  const width = window(facts);
  const layout = facts.metadata.text(facts.key('tensor_data_layout')) ?? 'Meta AI original pth';
  if (layout !== 'Meta AI original pth') facts.refuse(`${facts.key('tensor_data_layout')} is not known`);
  if (count > 0) {
    const inner = widthOf(facts, 'expert_feed_forward_length', 'ffn_gate_exps');
    // Where experts have a tensor each, feed_forward_length is their width.
    const own = inner === undefined ? {} : { intermediate_size: inner };
    return { model_type: 'mixtral', ...settings, sliding_window: width, ...own };
  }
  if (width !== null) return { model_type: 'mistral', sliding_window: width };
  return { model_type: 'llama', ...biases(facts) };
}

export const GGUF_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'llama',
    settings: llamaSettings,
    modules: (facts) => ((facts.whole('expert_count', 0, MOST) ?? 0) > 0 ? MIXTRAL_MODULES : LLAMA_MODULES),
    ways: INTERLEAVED,
  },
  { name: 'qwen2', settings: () => ({ model_type: 'qwen2' }), modules: () => LLAMA_MODULES, ways: {} },
  {
    name: 'qwen3',
    settings: (facts) => ({ model_type: 'qwen3', attention_bias: facts.has('blk.0.attn_q.bias') }),
    modules: () => withModules(HEAD_NORMS),
    ways: {},
  },
  {
    name: 'qwen2moe',
    settings: (facts, { layers }) => ({
      model_type: 'qwen2_moe',
      ...qwenExperts(facts, false, layers),
      qkv_bias: facts.has('blk.0.attn_q.bias'),
      shared_expert_intermediate_size: widthOf(facts, 'expert_shared_feed_forward_length', 'ffn_gate_shexp'),
    }),
    modules: () => withModules(QWEN_EXPERTS),
    ways: {},
  },
  {
    name: 'qwen3moe',
    settings: (facts, { layers }) => ({
      model_type: 'qwen3_moe',
      ...qwenExperts(facts, true, layers),
      attention_bias: facts.has('blk.0.attn_q.bias'),
    }),
    modules: () => withModules({ ...HEAD_NORMS, ...QWEN_EXPERTS }),
    ways: {},
  },
  { name: 'gemma', settings: () => ({ model_type: 'gemma' }), modules: () => LLAMA_MODULES, ways: GEMMA },
  {
    name: 'gemma2',
    settings: (facts, shape) => ({
      model_type: 'gemma2',
      sliding_window: facts.whole('attention.sliding_window', 1, MOST) ?? 4096,
      layer_types: layerTypes(facts, shape.layers, 2),
      query_pre_attn_scalar: gemmaScalar(shape, 46),
      attn_logit_softcapping: facts.number('attn_logit_softcapping', ...FACTOR) ?? 50,
      final_logit_softcapping: facts.number('final_logit_softcapping', ...FACTOR) ?? 30,
    }),
    modules: () => withModules(FOUR_NORMS),
    ways: GEMMA,
  },
  {
    name: 'gemma3',
    settings: (facts, shape) => {
      const width = window(facts);
      const types = layerTypes(facts, shape.layers, 6);
      return {
        model_type: 'gemma3_text',
        sliding_window: width,
        layer_types: width === null ? types.map(() => 'full_attention') : types,
        query_pre_attn_scalar: gemmaScalar(shape, 62),
        final_logit_softcapping: facts.number('final_logit_softcapping', ...FACTOR) ?? null,
      };
    },
    modules: () => withModules({ ...FOUR_NORMS, ...HEAD_NORMS }),
    ways: GEMMA,
    hasWindowTheta: true,
  },
  {
    name: 'phi3',
    settings: (facts) => {
      if (facts.whole('attention.sliding_window', 0, MOST) === undefined)
        facts.refuse(`${facts.key('attention.sliding_window')} is missing: an old file, whose window is not known`);
      return { model_type: 'phi3', sliding_window: window(facts) };
    },
    modules: () => PHI_MODULES,
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'stablelm',
    settings: (facts) => {
      // Converters write true where config.json is silent, which means false: only the second norm tells.
      facts.metadata.flag(facts.key('use_parallel_residual'));
      return {
        model_type: 'stablelm',
        use_qkv_bias: facts.has('blk.0.attn_q.bias'),
        qk_layernorm: facts.has('blk.0.attn_q_norm.weight'),
        use_parallel_residual: !facts.has('blk.0.ffn_norm.weight'),
      };
    },
    modules: () =>
      withModules({
        attn_q_norm: `self_attn.q_layernorm.norms.${EACH}`,
        attn_k_norm: `self_attn.k_layernorm.norms.${EACH}`,
      }),
    ways: {},
    partKey: 'partial_rotary_factor',
  },
  {
    name: 'olmo2',
    settings: (facts, { layers }) =>
      isOlmo3(facts)
        ? { model_type: 'olmo3', sliding_window: window(facts), layer_types: layerTypes(facts, layers, 4) }
        : { model_type: 'olmo2' },
    modules: () => OLMO_MODULES,
    ways: {},
  },
  {
    name: 'granite',
    settings: (facts, { headDim }) => {
      const scale = facts.number('attention.scale', 0, 1e6) ?? 0;
      return {
        model_type: 'granite',
        ...biases(facts),
        embedding_multiplier: facts.number('embedding_scale', ...FACTOR) ?? 1,
        residual_multiplier: facts.number('residual_scale', ...FACTOR) ?? 1,
        attention_multiplier: scale === 0 ? 1 / Math.sqrt(headDim) : scale,
        logits_scaling: facts.number('logit_scale', ...FACTOR) ?? 1,
      };
    },
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    name: 'smollm3',
    settings: (facts) => ({ model_type: 'smollm3', ...biases(facts), no_rope_layer_interval: 4 }),
    modules: () => LLAMA_MODULES,
    ways: INTERLEAVED,
  },
  {
    name: 'cohere2',
    settings: (facts, { layers }) => ({
      model_type: 'cohere2',
      attention_bias: facts.has('blk.0.attn_q.bias'),
      sliding_window: facts.required('attention.sliding_window', 1, MOST),
      layer_types: layerTypes(facts, layers, 4),
      logit_scale: facts.number('logit_scale', ...FACTOR) ?? facts.refuse(`${facts.key('logit_scale')} is missing`),
    }),
    // Its Hugging Face checkpoints pair neighbours too.
    modules: () => LLAMA_MODULES,
    ways: {},
  },
  {
    name: 'gptneox',
    settings: (facts) => ({
      model_type: 'gpt_neox',
      use_parallel_residual: facts.metadata.flag(facts.key('use_parallel_residual')) ?? true,
      attention_bias: facts.has('blk.0.attn_qkv.bias'),
    }),
    modules: () => NEOX_MODULES,
    ways: { hasProjectionsInTurn: true },
    partKey: 'rotary_pct',
  },
];

// What a GGUF file says of its model: the keys of its architecture, and the shapes and values of tensors.

/** Numbers of a vector that settings are read from. */
const MAX_VALUES = 1024;
const MAX_LAYERS = 1024;

export class GgufFacts {
  /** Of the first file, which holds all keys. */
  readonly metadata: Metadata;
  readonly where: string;
  /** general.architecture */
  readonly architecture: string;
  private readonly tensors: ReadonlyMap<string, WeightEntry & { readonly file: string }>;

  constructor(headers: readonly [GgufHeader, ...GgufHeader[]], architecture: string) {
    this.metadata = headers[0].metadata;
    this.where = headers[0].file;
    this.architecture = architecture;
    this.tensors = new Map(
      headers.flatMap(({ file, entries }) => entries.map((entry) => [entry.name, { ...entry, file }])),
    );
  }

  /** The key of a setting of this architecture. */
  key(setting: string): string {
    return `${this.architecture}.${setting}`;
  }

  number(setting: string, least: number, most: number): number | undefined {
    return this.metadata.number(this.key(setting), least, most);
  }

  whole(setting: string, least: number, most: number): number | undefined {
    return this.metadata.whole(this.key(setting), least, most);
  }

  /** A whole number that every such file has. Throws UserError. */
  required(setting: string, least: number, most: number): number {
    return this.whole(setting, least, most) ?? this.refuse(`${this.key(setting)} is missing`);
  }

  /** A whole number, or a list of one for each layer, which must agree. Throws UserError. */
  alike(setting: string, least: number, most: number): number | undefined {
    const key = this.key(setting);
    if (!this.metadata.isList(key)) return this.whole(setting, least, most);
    const [first, ...others] = this.metadata.numbers(key) ?? [];
    if (first === undefined || others.some((other) => other !== first))
      return this.refuse(`${key} differs from layer to layer`);
    if (Number.isInteger(first) && first >= least && first <= most) return first;
    return this.refuse(`${key}: expected whole numbers from ${least} to ${most}, got ${first}`);
  }

  get layers(): number {
    return this.required('block_count', 1, MAX_LAYERS);
  }

  has(tensor: string): boolean {
    return this.tensors.has(tensor);
  }

  shape(tensor: string): readonly number[] | undefined {
    return this.tensors.get(tensor)?.shape;
  }

  /** The numbers of a short vector; undefined if there is no such tensor. Throws UserError. */
  values(tensor: string): readonly number[] | undefined {
    const entry = this.tensors.get(tensor);
    if (entry === undefined) return undefined;
    const [count = 0] = entry.shape;
    if (entry.dtype !== 'F32' || entry.shape.length !== 1 || count > MAX_VALUES)
      return this.refuse(`tensor ${tensor}: expected at most ${MAX_VALUES} numbers of type F32`);
    const bytes = withFile(entry.file, (fd) => readRange(fd, entry.offset, entry.byteLength));
    return Array.from({ length: count }, (_, i) => bytes.readFloatLE(4 * i));
  }

  /** Refuses a file whose meaning is not known. */
  refuse(what: string): never {
    throw new UserError(`${this.where}: ${what}`, 'use the Hugging Face checkpoint of the model');
  }
}
