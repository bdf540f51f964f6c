/** A GGUF file's description of its model in the words of config.json. Unknown keys are refused by name. */
import { UserError } from '../../errors.js';
import { quote } from '../../system/json.js';
import type { Json, StoredWays } from '../family/model.js';
import { GGUF_ARCHITECTURES, type GgufArchitecture, type Shape } from './architectures.js';
import { Facts } from './facts.js';
import type { GgufHeader } from './header.js';
import type { ModuleNames } from './modules.js';
import { readRotary, SETTING_TENSORS } from './rotary.js';

/** How blocks are laid out: the version of ggml since May 2023. */
const QUANTIZATION_VERSION = 2;
const CONVERT_AGAIN = 'convert the model again with a current converter, or use its Hugging Face checkpoint';
const MAX_WIDTH = 1 << 19;
const MAX_POSITIONS = 1 << 24;
const MAX_IDS = 1 << 22;

/** What the files of a GGUF model say of it. */
export interface GgufDescription {
  /** As config.json would have it. */
  readonly json: Json;
  readonly modules: ModuleNames;
  readonly ways: StoredWays;
}

/** Reads the keys of the first of a model's files. Throws UserError, one line. */
export function describeGguf(headers: readonly [GgufHeader, ...GgufHeader[]]): GgufDescription {
  const { metadata, file } = headers[0];
  const kind = metadata.text('general.type') ?? 'model';
  if (kind !== 'model')
    throw new UserError(`${file}: general.type is ${quote(kind)}: not a model`, 'give the file of the model itself');
  const version = metadata.whole('general.quantization_version', 0, 2 ** 32) ?? QUANTIZATION_VERSION;
  if (version !== QUANTIZATION_VERSION)
    throw new UserError(
      `${file}: general.quantization_version is ${version}, which is not supported; supported: 2`,
      CONVERT_AGAIN,
    );
  const name = metadata.text('general.architecture');
  const architecture = GGUF_ARCHITECTURES.find((each) => each.name === name);
  if (architecture === undefined) {
    const known = GGUF_ARCHITECTURES.map((each) => each.name).join(', ');
    throw new UserError(
      `${file}: general.architecture ${name === undefined ? 'is missing' : `${quote(name)} is not supported`}; ` +
        `supported: ${known}`,
      'use the Hugging Face checkpoint of the model, if its family is supported: see docs/families.md',
    );
  }
  const facts = new Facts(headers, architecture.name);
  const json = readSettings(facts, architecture);
  const modules = architecture.modules(facts);
  const [unknown] = metadata.unasked(facts.key(''));
  if (unknown !== undefined) facts.refuse(`${quote(unknown, 80)} is not known, and may change what is computed`);
  return { json, modules, ways: architecture.ways };
}

/** Sizes, rotary settings, ends of texts, and what the architecture has of its own. */
function readSettings(facts: Facts, { settings, partKey, hasWindowTheta = false }: GgufArchitecture): Json {
  const { metadata, layers } = facts;
  const hidden = facts.required('embedding_length', 1, 1 << 16);
  const heads = facts.alike('attention.head_count', 1, 1024) ?? facts.refuse('attention.head_count is missing');
  const kvHeads = facts.alike('attention.head_count_kv', 1, 1024) ?? heads;
  const headDim = facts.whole('attention.key_length', 2, 1024) ?? hidden / heads;
  const valueDim = facts.whole('attention.value_length', 1, 1024) ?? headDim;
  if (valueDim !== headDim) facts.refuse(`heads of ${headDim} elements, and values of ${valueDim}`);
  if (metadata.flag(facts.key('attention.causal')) === false)
    facts.refuse(`${facts.key('attention.causal')} is false: tokens see only those before them`);
  const vocabSize = facts.shape('token_embd.weight')?.[0] ?? facts.refuse('tensor token_embd.weight is missing');
  const stated = facts.whole('vocab_size', 1, MAX_IDS) ?? vocabSize;
  if (stated !== vocabSize) facts.refuse(`vocab_size is ${stated}, and token_embd.weight has ${vocabSize} rows`);
  const epsilons = ['layer_norm_rms_epsilon', 'layer_norm_epsilon'].map((key) =>
    facts.number(`attention.${key}`, 0, 0.1),
  );
  const turned = facts.whole('rope.dimension_count', 2, 1024) ?? headDim;
  const shape: Shape = { hidden, heads, headDim, layers };
  return {
    hidden_size: hidden,
    intermediate_size: facts.alike('feed_forward_length', 1, MAX_WIDTH),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    head_dim: headDim,
    vocab_size: vocabSize,
    max_position_embeddings: facts.required('context_length', 1, MAX_POSITIONS),
    rms_norm_eps: epsilons[0],
    layer_norm_eps: epsilons[1],
    tie_word_embeddings: !facts.has('output.weight'),
    ...endsOfTexts(facts),
    ...readRotary(facts, hasWindowTheta, turned / 2),
    ...turnedPart(facts, headDim, turned, partKey),
    ...settings(facts, shape),
  };
}

/** The part of each head that is turned. */
function turnedPart(facts: Facts, headDim: number, turned: number, partKey: GgufArchitecture['partKey']): Json {
  if (partKey !== undefined && turned <= headDim) return { [partKey]: turned / headDim };
  if (turned !== headDim) facts.refuse(`${facts.key('rope.dimension_count')} is ${turned}, and heads have ${headDim}`);
  return {};
}

/** Tokens that begin and end texts. */
function endsOfTexts({ metadata }: Facts): Json {
  const id = (name: string): number | undefined => metadata.whole(`tokenizer.ggml.${name}_token_id`, 0, 2 ** 32);
  const ends = [...new Set(['eos', 'eot', 'eom'].flatMap((name) => id(name) ?? []))];
  return { bos_token_id: id('bos'), ...(ends.length === 0 ? {} : { eos_token_id: ends }) };
}

/** Tensors that hold settings and no weights. */
export const isSetting = (tensor: string): boolean => SETTING_TENSORS.includes(tensor);
