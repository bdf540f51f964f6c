/** The model in a GGUF file: settings and tensors in the words of Hugging Face checkpoints. */
import { UserError } from '../../errors.js';
import { defined } from '../../system/defined.js';
import { quote } from '../../system/json.js';
import type { Json, StoredWays } from '../model/model.js';
import type { ExpectedTensor, StoredTensor, WholeTensor } from '../model/tensors.js';
import { partShape } from '../model/tensors.js';
import { GGUF_ARCHITECTURES } from './architectures.js';
import { type GgufArchitecture, GgufFacts, type GgufHeads, type Shape } from './facts.js';
import { blockOf, type GgufHeader } from './file.js';
import { EACH, type GgufModuleNames } from './modules.js';

// Rotary settings of a GGUF file in the words of config.json.

const FACTOR: readonly [number, number] = [1e-6, 1e6];

/** The tensors with a factor for each frequency, by what they are for. */
const FACTORS = { all: 'rope_freqs.weight', short: 'rope_factors_short.weight', long: 'rope_factors_long.weight' };

/** Tensors that hold settings. */
export const SETTING_TENSORS: readonly string[] = Object.values(FACTORS);

/** The factor by which positions are divided, or frequencies blended. */
function factorOf(facts: GgufFacts, type: string): number {
  const factor = facts.number('rope.scaling.factor', 1, 1e6) ?? facts.number('rope.scale_linear', 1, 1e6);
  return factor ?? facts.refuse(`${facts.key('rope.scaling.type')} is ${type}, and no factor is given`);
}

/** The factors in a tensor, one for each frequency; undefined if there is no such tensor. */
function factorsIn(facts: GgufFacts, tensor: string, frequencies: number): readonly number[] | undefined {
  const factors = facts.values(tensor);
  if (factors === undefined) return undefined;
  if (factors.length !== frequencies)
    facts.refuse(`tensor ${tensor} has ${factors.length} numbers, and rotary embedding turns ${frequencies} pairs`);
  const stray = factors.findIndex((factor) => !(factor >= FACTOR[0] && factor <= FACTOR[1]));
  if (stray !== -1)
    facts.refuse(`tensor ${tensor}: number ${stray} is ${factors[stray]}; expected ${FACTOR[0]} to ${FACTOR[1]}`);
  return factors;
}

/** Frequencies divided by the numbers of a tensor, for texts of up to `positions` tokens. */
const divided = (factors: readonly number[], positions: number, attention: number): Json => ({
  rope_type: 'longrope',
  short_factor: factors,
  original_max_position_embeddings: positions,
  attention_factor: attention,
});

function readYarn(facts: GgufFacts, own: GgufArchitecture['yarn']): Json {
  const more = own?.(facts) ?? {};
  const extrapolation = facts.number('rope.scaling.yarn_ext_factor', 0, 1e6) ?? 1;
  const logMultiplier = (own === undefined && facts.number('rope.scaling.yarn_log_multiplier', 0, 1e6)) || 0;
  const attention = facts.number('rope.scaling.yarn_attn_factor', ...FACTOR) ?? 1;
  const [fast, slow] = ['yarn_beta_fast', 'yarn_beta_slow'].map((key) =>
    facts.number(`rope.scaling.${key}`, ...FACTOR),
  );
  const factor = factorOf(facts, 'yarn');
  // What YaRN multiplies by anyway may be said.
  const isUsual = attention === 1 || Math.abs(attention - (0.1 * Math.log(factor) + 1)) < 1e-5;
  if (extrapolation !== 1 || logMultiplier !== 0 || !isUsual)
    facts.refuse('YaRN with factors of its own (yarn_ext_factor, yarn_log_multiplier, yarn_attn_factor)');
  return {
    rope_type: 'yarn',
    factor,
    original_max_position_embeddings: facts.required('rope.scaling.original_context_length', 1, MAX_POSITIONS),
    ...defined({ beta_fast: fast, beta_slow: slow }),
    ...more,
  };
}

/** rope_scaling of config.json; undefined if positions are not stretched. Throws UserError for what is not known. */
function readScaling(facts: GgufFacts, frequencies: number, yarn: GgufArchitecture['yarn']): Json | undefined {
  const { metadata } = facts;
  const type = metadata.text(facts.key('rope.scaling.type')) ?? 'none';
  const positions = facts.required('context_length', 1, MAX_POSITIONS);
  // Whether the model was trained with it, which changes nothing.
  metadata.flag(facts.key('rope.scaling.finetuned'));
  const original = facts.whole('rope.scaling.original_context_length', 1, MAX_POSITIONS);
  const attention = facts.number('rope.scaling.attn_factor', ...FACTOR) ?? 1;
  const [all, short] = [FACTORS.all, FACTORS.short].map((tensor) => factorsIn(facts, tensor, frequencies));
  if (all !== undefined) {
    if (type !== 'none' || short !== undefined) facts.refuse(`${FACTORS.all} beside scaling of type ${type}`);
    return divided(all, positions, 1);
  }
  if (short !== undefined) {
    if (type !== 'none' && type !== 'longrope') facts.refuse(`${FACTORS.short} beside scaling of type ${type}`);
    return divided(short, original ?? positions, attention);
  }
  if (facts.has(FACTORS.long) || type === 'longrope') facts.refuse(`LongRoPE without ${FACTORS.short}`);
  if (attention !== 1) facts.refuse(`${facts.key('rope.scaling.attn_factor')} is ${attention} without LongRoPE`);
  switch (type) {
    case 'none': {
      const linear = facts.number('rope.scale_linear', 1, 1e6) ?? facts.number('rope.scaling.factor', 0, 1e6) ?? 1;
      return linear === 1 || linear === 0 ? undefined : { rope_type: 'linear', factor: linear };
    }
    case 'linear':
      return { rope_type: 'linear', factor: factorOf(facts, type) };
    case 'yarn':
      return readYarn(facts, yarn);
    default:
      return facts.refuse(`${facts.key('rope.scaling.type')} is ${JSON.stringify(type)}, which is not known`);
  }
}

/**
 * Rotary settings: the same for all layers, or others for those with a window. `frequencies`: pairs of dimensions that
 * are turned.
 */
export function readRotary(
  facts: GgufFacts,
  { hasWindowTheta = false, yarn }: Pick<GgufArchitecture, 'hasWindowTheta' | 'yarn'>,
  frequencies: number,
): Json {
  const theta = facts.number('rope.freq_base', 1, 1e12) ?? 10_000;
  const scaling = readScaling(facts, frequencies, yarn);
  // Families may have a value of their own for files that do not say it outside of the scaling.
  const original = scaling?.['original_max_position_embeddings'];
  const context = original === undefined ? {} : { original_max_position_embeddings: original };
  if (!hasWindowTheta) return { rope_theta: theta, ...context, ...defined({ rope_scaling: scaling }) };
  return {
    rope_parameters: {
      full_attention: { rope_theta: theta, ...scaling },
      sliding_attention: { rope_theta: facts.number('rope.freq_base_swa', 1, 1e12) ?? 10_000 },
    },
  };
}

// A GGUF file's description of its model in the words of config.json. Unknown keys are refused by name.

/** How blocks are laid out: the version of ggml since May 2023. */
const QUANTIZATION_VERSION = 2;
const CONVERT_AGAIN = 'convert the model again with a current converter, or use its Hugging Face checkpoint';
const MAX_WIDTH = 1 << 19;
const MAX_POSITIONS = 1 << 24;
const MAX_IDS = 1 << 22;

/** What the files of a GGUF model say of it. */
export interface GgufDescription extends Pick<GgufArchitecture, 'apart' | 'lists'> {
  readonly layers: number;
  /** As config.json would have it. */
  readonly json: Json;
  readonly modules: GgufModuleNames;
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
  const facts = new GgufFacts(headers, architecture.name);
  const json = readSettings(facts, architecture);
  const modules = architecture.modules(facts);
  const [unknown] = metadata.unasked(facts.key(''));
  if (unknown !== undefined) facts.refuse(`${quote(unknown, 80)} is not known, and may change what is computed`);
  return { ...architecture, json, modules, layers: facts.layers };
}

/** Sizes, rotary settings, ends of texts, and what the architecture has of its own. */
function readSettings(facts: GgufFacts, architecture: GgufArchitecture): Json {
  const { settings, partKey } = architecture;
  const { metadata, layers } = facts;
  const hidden = facts.required('embedding_length', 1, 1 << 16);
  const { json: heads, headDim, turned } = (architecture.heads ?? plainHeads)(facts);
  if (metadata.flag(facts.key('attention.causal')) === false)
    facts.refuse(`${facts.key('attention.causal')} is false: tokens see only those before them`);
  const vocabSize = facts.shape('token_embd.weight')?.[0] ?? facts.refuse('tensor token_embd.weight is missing');
  const stated = facts.whole('vocab_size', 1, MAX_IDS) ?? vocabSize;
  if (stated !== vocabSize) facts.refuse(`vocab_size is ${stated}, and token_embd.weight has ${vocabSize} rows`);
  const epsilons = ['layer_norm_rms_epsilon', 'layer_norm_epsilon'].map((key) =>
    facts.number(`attention.${key}`, 0, 0.1),
  );
  const shape: Shape = { hidden, heads: Number(heads['num_attention_heads'] ?? 1), headDim, layers };
  return {
    hidden_size: hidden,
    intermediate_size: facts.alike('feed_forward_length', 0, MAX_WIDTH),
    num_hidden_layers: layers,
    ...heads,
    vocab_size: vocabSize,
    max_position_embeddings: facts.required('context_length', 1, MAX_POSITIONS),
    rms_norm_eps: epsilons[0],
    layer_norm_eps: epsilons[1],
    tie_word_embeddings: !facts.has('output.weight'),
    ...endsOfTexts(facts),
    ...readRotary(facts, architecture, turned / 2),
    ...turnedPart(facts, headDim, turned, partKey),
    ...settings(facts, shape),
  };
}

/** Heads that are all alike, in keys and in values. */
function plainHeads(facts: GgufFacts): GgufHeads {
  const hidden = facts.required('embedding_length', 1, 1 << 16);
  const heads = facts.alike('attention.head_count', 1, 1024) ?? facts.refuse('attention.head_count is missing');
  const kvHeads = facts.alike('attention.head_count_kv', 1, 1024) ?? heads;
  const headDim = facts.whole('attention.key_length', 2, 1024) ?? hidden / heads;
  const valueDim = facts.whole('attention.value_length', 1, 1024) ?? headDim;
  if (valueDim !== headDim) facts.refuse(`heads of ${headDim} elements, and values of ${valueDim}`);
  return {
    json: { num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headDim },
    headDim,
    turned: facts.whole('rope.dimension_count', 2, 1024) ?? headDim,
  };
}

/** The part of each head that is turned. */
function turnedPart(facts: GgufFacts, headDim: number, turned: number, partKey: GgufArchitecture['partKey']): Json {
  if (partKey !== undefined && turned <= headDim) return { [partKey]: turned / headDim };
  if (turned !== headDim) facts.refuse(`${facts.key('rope.dimension_count')} is ${turned}, and heads have ${headDim}`);
  return {};
}

/** Tokens that begin and end texts. */
function endsOfTexts({ metadata }: GgufFacts): Json {
  const id = (name: string): number | undefined => metadata.whole(`tokenizer.ggml.${name}_token_id`, 0, 2 ** 32);
  const ends = [...new Set(['eos', 'eot', 'eom'].flatMap((name) => id(name) ?? []))];
  return { bos_token_id: id('bos'), ...(ends.length === 0 ? {} : { eos_token_id: ends }) };
}

/** Tensors that hold settings and no weights. */
export const isSetting = (tensor: string): boolean => SETTING_TENSORS.includes(tensor);

// The tensors of GGUF files by the names that families have for them.

const LAYER = /^blk\.(\d{1,4})\.([\w.]+)\.(weight|bias)$/;
const IN_LAYER = /^blk\.(\d{1,4})\.([\w.]+)$/;
/** One expert, as files of Mixtral from 2023 have it. */
const EXPERT = /^blk\.(\d{1,4})\.(ffn_(?:gate|up|down))\.(\d{1,4})\.weight$/;
const TOP = /^(\w+)\.(weight|bias)$/;
/** Matrices in one tensor: experts, or heads with norms of their own. */
const MAX_EACH = 1024;

/** The name of a tensor in Hugging Face checkpoints, with EACH in it where it holds several; undefined if unknown. */
function foreignName(name: string, { model, layers, layer, whole = {} }: GgufModuleNames): string | undefined {
  const [, index, rest = ''] = IN_LAYER.exec(name) ?? [];
  if (Object.hasOwn(whole, rest)) return `${layers}.${index}.${whole[rest]}`;
  const [, at, matrix, expert] = EXPERT.exec(name) ?? [];
  const all = layer[`${matrix}_exps`];
  if (expert !== undefined && all !== undefined) return `${layers}.${at}.${all.replace(EACH, expert)}.weight`;
  const inLayer = LAYER.exec(name);
  const [, number, module = '', kind] = inLayer ?? [undefined, undefined, ...(TOP.exec(name) ?? []).slice(1)];
  const names = inLayer === null ? model : layer;
  if (!Object.hasOwn(names, module)) return undefined;
  // Biases of all experts are rows of one tensor there too.
  const own = kind === 'bias' ? names[module]?.replace(`.${EACH}`, '') : names[module];
  return inLayer === null ? `${own}.${kind}` : `${layers}.${number}.${own}.${kind}`;
}

/** The tensors of several modules in one tensor, if it has their rows: by their names, with what they have of it. */
function joinedTensors(entry: WholeTensor, { layers, joined = {} }: GgufModuleNames): readonly WholeTensor[] {
  const [, number, module = '', kind] = LAYER.exec(entry.name) ?? [];
  const parts = Object.hasOwn(joined, module) ? joined[module]! : [];
  const [count = 0, ...columns] = entry.shape;
  if (count === 0 || parts.reduce((sum, { rows }) => sum + rows, 0) !== count) return [];
  const bytes = entry.byteLength / count;
  let first = 0;
  return parts.map(({ module: own, rows }) => {
    const offset = entry.offset + first * bytes;
    first += rows;
    const name = `${layers}.${number}.${own}.${kind}`;
    return { ...entry, name, shape: [rows, ...columns], offset, byteLength: rows * bytes };
  });
}

/**
 * The tensors of `headers` by the names of a family; those that it does not know keep their own. A tensor with several
 * matrices, or the rows of several, becomes one for each.
 */
export function namedTensors(
  headers: readonly [GgufHeader, ...GgufHeader[]],
  { modules: names, lists = {}, layers }: Pick<GgufDescription, 'modules' | 'lists' | 'layers'>,
): ReadonlyMap<string, StoredTensor> {
  const found = new Map<string, StoredTensor>();
  for (const [key, tensor] of Object.entries(lists))
    for (const each of listedTensors(headers[0], key, layers)) {
      const name = `${names.layers}.${each.name}.${tensor}`;
      found.set(name, { ...each, name });
    }
  for (const { file, entries } of headers)
    for (const entry of entries) {
      const isFurther = Number(IN_LAYER.exec(entry.name)?.[1] ?? 0) >= layers;
      if (isSetting(entry.name) || isFurther) continue;
      const { offset, byteLength } = entry;
      const joined = joinedTensors({ ...entry, file }, names);
      for (const each of joined) found.set(each.name, stored(each, entry.name));
      if (joined.length > 0) continue;
      const name = foreignName(entry.name, names) ?? entry.name;
      const [count = 1, ...shape] = entry.shape;
      if (!name.includes(EACH) || count > MAX_EACH || shape.length === 0) {
        found.set(name, stored({ ...entry, name, file }, entry.name));
        continue;
      }
      const bytes = byteLength / count;
      for (let i = 0; i < count; i++) {
        const each = name.replace(EACH, String(i));
        const own = { ...entry, name: each, file, shape, offset: offset + i * bytes, byteLength: bytes };
        found.set(each, stored(own, entry.name));
      }
    }
  return found;
}

/**
 * Matrices of blocks are decoded as F32. Vectors are never stored so: they keep the name of their type. `inFile`: the
 * tensor's name there.
 */
function stored(tensor: WholeTensor, inFile: string): StoredTensor {
  const { name, dtype, shape, file, offset, byteLength } = tensor;
  const block = blockOf(dtype);
  if (block === undefined || shape.length !== 2) return tensor;
  const places = { blocks: { file, offset, byteLength, tensor: inFile } };
  return { name, dtype: 'F32', shape, encoding: { kind: 'blocks', block }, places, hasScalePerPart: false };
}

/** How matrices of blocks are stored, and how many are stored so, with how many elements. */
export function blockSchemes(
  found: ReadonlyMap<string, StoredTensor>,
): ReadonlyMap<string, { readonly matrices: number; readonly elements: number }> {
  const schemes = new Map<string, { matrices: number; elements: number }>();
  for (const tensor of found.values()) {
    if (!('encoding' in tensor) || tensor.encoding.kind !== 'blocks') continue;
    const scheme = `GGUF ${tensor.encoding.block.toUpperCase()}`;
    const { matrices, elements } = schemes.get(scheme) ?? { matrices: 0, elements: 0 };
    const own = tensor.shape.reduce((product, extent) => product * extent, 1);
    schemes.set(scheme, { matrices: matrices + 1, elements: elements + own });
  }
  return schemes;
}

/** The numbers of a list of metadata, each a tensor whose name is its place. Throws UserError. */
function listedTensors({ file, metadata }: GgufHeader, key: string, layers: number): readonly WholeTensor[] {
  const place = metadata.placeOfSingles(key);
  if (place?.count !== layers)
    throw new UserError(`${file}: ${key} is not a list of ${layers} numbers of type F32`, CONVERT_AGAIN);
  return Array.from({ length: layers }, (_, i) => ({
    ...{ name: String(i), dtype: 'F32', shape: [1], file, offset: place.start + 4 * i, byteLength: 4 },
  }));
}

/** Tensors that a model expects, where the file holds their parts in place of those that `apart` matches. */
export const inParts = (expected: readonly ExpectedTensor[], apart: RegExp | undefined): readonly ExpectedTensor[] =>
  apart === undefined
    ? expected
    : expected.flatMap((tensor) =>
        tensor.parts !== undefined && apart.test(tensor.name)
          ? tensor.parts.map((part) => ({ name: part.name, shape: partShape(part, tensor.shape), role: tensor.role }))
          : [tensor],
      );

/**
 * Tensors with the shapes that a model expects: converters leave out dimensions of 1, and may write vectors as
 * matrices.
 */
export function shapedTensors(
  expected: readonly ExpectedTensor[],
  found: ReadonlyMap<string, StoredTensor>,
): ReadonlyMap<string, StoredTensor> {
  const shaped = new Map(found);
  const without = (shape: readonly number[]): string => shape.filter((extent) => extent !== 1).join();
  const product = (shape: readonly number[]): number => shape.reduce((all, extent) => all * extent, 1);
  for (const { name, shape, role } of expected) {
    const tensor = found.get(name);
    if (tensor === undefined || !('file' in tensor)) continue;
    const isSame =
      without(tensor.shape) === without(shape) || (role !== 'matrix' && product(tensor.shape) === product(shape));
    if (isSame) shaped.set(name, { ...tensor, shape });
  }
  return shaped;
}

/** The name that a GGUF file has for a family's tensor, for messages. */
export function ggufName(name: string, { model, layers, layer, whole = {} }: GgufModuleNames): string {
  const [, index, rest] = name.startsWith(`${layers}.`)
    ? (/^(\d+)\.(.+)$/.exec(name.slice(layers.length + 1)) ?? [])
    : [];
  const [held] = Object.entries(whole).find(([, foreign]) => foreign === rest) ?? [];
  if (held !== undefined) return `blk.${index}.${held}`;
  const inLayer = name.startsWith(`${layers}.`)
    ? /^(\d+)\.(.+)\.(weight|bias)$/.exec(name.slice(layers.length + 1))
    : null;
  const [, number, module, kind] = inLayer ?? [
    undefined,
    undefined,
    ...(/^(.+)\.(weight|bias)$/.exec(name) ?? []).slice(1),
  ];
  const isOf = (foreign: string): boolean =>
    module !== undefined && (foreign === module || foreign === module.replace(/(?<=\.(?:experts|norms)\.)\d+/, EACH));
  const own = Object.entries(inLayer === null ? model : layer).find(([, foreign]) => isOf(foreign))?.[0];
  if (own === undefined) return name;
  return inLayer === null ? `${own}.${kind}` : `blk.${number}.${own}.${kind}`;
}
