/**
 * Draft heads of tiny shapes as published files hold them, the model that they draft for, and what both compute, in
 * plain float64 loops that share nothing with the compiler.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Draw, drawScore } from '../../ir/gumbel.js';
import { temporaryFolder } from '../models/support.js';
import { torchFile, type WrittenTensor } from '../models/torch/writeTorchFile.js';
import { randomNumbers } from './numbers.js';

/** A tensor as a file holds it: floats, or whole numbers of 64 bits. */
export interface Written {
  readonly shape: readonly number[];
  readonly values: Float32Array | BigInt64Array;
}
export type Tensors = Readonly<Record<string, Written>>;

const CONTEXT = 64;
export const TARGET = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'float32',
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 8,
  vocab_size: 320,
  max_position_embeddings: CONTEXT,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: false,
} as const;
export const DRAFT_VOCAB = 40;

const numbers = (seed: number, shape: readonly number[], width = 0.6): Written => {
  const next = randomNumbers(seed);
  const isNorm = shape.length === 1;
  const count = shape.reduce((a, b) => a * b, 1);
  return { shape, values: Float32Array.from({ length: count }, () => (isNorm ? 1 + next() : next() * width)) };
};

type Shapes = Readonly<Record<string, readonly number[]>>;
const filled = (seed: number, shapes: Shapes): Tensors =>
  Object.fromEntries(Object.entries(shapes).map(([name, shape], i) => [name, numbers(seed + 17 * i, shape)]));

/** A layer's matrices below `layer`, whose queries, keys and values read `inputs` columns. */
const layerShapes = (layer: string, { hidden = 32, inner = 48, inputs = 32 } = {}): Shapes => ({
  [`${layer}.self_attn.q_proj.weight`]: [32, inputs],
  [`${layer}.self_attn.k_proj.weight`]: [16, inputs],
  [`${layer}.self_attn.v_proj.weight`]: [16, inputs],
  [`${layer}.self_attn.o_proj.weight`]: [hidden, 32],
  [`${layer}.mlp.gate_proj.weight`]: [inner, hidden],
  [`${layer}.mlp.up_proj.weight`]: [inner, hidden],
  [`${layer}.mlp.down_proj.weight`]: [hidden, inner],
  [`${layer}.post_attention_layernorm.weight`]: [hidden],
});

export const TARGET_TENSORS: Tensors = filled(11, {
  'model.embed_tokens.weight': [320, 32],
  ...Object.assign(
    {},
    ...[0, 1, 2, 3].map((i) => ({
      ...layerShapes(`model.layers.${i}`),
      [`model.layers.${i}.input_layernorm.weight`]: [32],
    })),
  ),
  'model.norm.weight': [32],
  'lm_head.weight': [320, 32],
});

/** Token of row i: i + d2t[i], in ascending order as published files have them. */
const D2T: Written = {
  shape: [DRAFT_VOCAB],
  values: BigInt64Array.from({ length: DRAFT_VOCAB }, (_, i) => BigInt(Math.floor((i * 320) / 40) + (i % 2) - i)),
};

export interface HeadCase {
  readonly name: string;
  readonly kind: 'eagle' | 'eagle3' | 'mtp';
  readonly config: Readonly<Record<string, unknown>>;
  readonly tensors: Tensors;
  /** What its tensors are called here, by their names in the file. */
  readonly named: (name: string) => string;
  /** Layers whose inputs it reads; EAGLE 1: none. */
  readonly of?: readonly number[];
  readonly isNormedFirst?: boolean;
  /** Of layers in the files of the model: their modules, and what they compute otherwise. */
  readonly mtp?: {
    readonly norms: readonly [embedding: string, stream: string, last: string];
    readonly projection: string;
    readonly isStreamFirst?: boolean;
    readonly goesOnNormed?: boolean;
    readonly hidesFirst?: boolean;
  };
}

const HEAD = { ...TARGET, num_hidden_layers: 1, intermediate_size: 24, max_position_embeddings: 2048 };
const EAGLE3_CONFIG = { ...HEAD, architectures: ['LlamaForCausalLMEagle3'], draft_vocab_size: DRAFT_VOCAB };

const midlayer = (name: string): string => name.replace(/^midlayer\./, 'layers.0.');

function eagle3Tensors(seed: number, layer: string, hidden: number, streams: number): Record<string, Written> {
  return {
    ...filled(seed, {
      'fc.weight': [hidden, 32 * streams],
      ...layerShapes(layer, { hidden, inner: 24, inputs: 2 * hidden }),
      [`${layer}.input_layernorm.weight`]: [hidden],
      [`${layer}.hidden_norm.weight`]: [hidden],
      'norm.weight': [hidden],
      'lm_head.weight': [DRAFT_VOCAB, hidden],
    }),
    d2t: D2T,
  };
}

const EAGLE_SHAPES: Shapes = {
  'fc.weight': [32, 64],
  ...layerShapes('layers.0', { inner: 24 }),
};

const { hidden_size: _, ...WITHOUT_HIDDEN } = HEAD;

export const HEADS: readonly HeadCase[] = [
  {
    name: 'EAGLE-3',
    kind: 'eagle3',
    config: EAGLE3_CONFIG,
    tensors: { ...eagle3Tensors(101, 'midlayer', 32, 3), t2d: { shape: [320], values: new BigInt64Array(320) } },
    named: midlayer,
    of: [2, 2, 1],
  },
  {
    name: 'EAGLE-3 of other columns, with embeddings and layers of its own choice',
    kind: 'eagle3',
    config: {
      ...EAGLE3_CONFIG,
      hidden_size: 24,
      head_dim: 8,
      target_hidden_size: 32,
      eagle_config: { use_aux_hidden_state: true, eagle_aux_hidden_state_layer_ids: [0, 3] },
    },
    tensors: { ...eagle3Tensors(202, 'midlayer', 24, 2), ...filled(203, { 'embed_tokens.weight': [320, 24] }) },
    named: midlayer,
    of: [1, 4],
  },
  {
    name: 'EAGLE-3 of speculators',
    kind: 'eagle3',
    config: {
      architectures: ['Eagle3Speculator'],
      speculators_model_type: 'eagle3',
      draft_vocab_size: DRAFT_VOCAB,
      norm_before_residual: true,
      target_hidden_size: null,
      eagle_aux_hidden_state_layer_ids: [1, 2, 4],
      transformer_layer_config: HEAD,
    },
    tensors: eagle3Tensors(303, 'layers.0', 32, 3),
    named: (name) => name,
    of: [1, 2, 4],
    isNormedFirst: true,
  },
  {
    name: 'EAGLE',
    kind: 'eagle',
    config: HEAD,
    tensors: { ...filled(404, EAGLE_SHAPES), ...filled(405, { 'embed_tokens.weight': [320, 32] }) },
    named: (name) => name,
  },
  {
    name: 'HASS of speculators, with a bias',
    kind: 'eagle',
    config: {
      speculators_model_type: 'eagle',
      layernorms: true,
      transformer_layer_config: { ...WITHOUT_HIDDEN, hidden_size: 32 },
    },
    tensors: Object.fromEntries(
      Object.entries({
        ...filled(505, EAGLE_SHAPES),
        ...filled(506, {
          'embedding_layernorm.weight': [32],
          'pre_lm_head_layernorm.weight': [32],
          'fc.bias': [32],
        }),
      }).map(([name, tensor]) => [name.replace('layers.0.', 'transformer.').replace(/^fc\./, 'fusion_fc.'), tensor]),
    ),
    named: (name) => name.replace('transformer.', 'layers.0.').replace('fusion_fc.', 'fc.'),
  },
];

const mtpTensors = (seed: number, layer: string, projection: string, norms: readonly string[]): Tensors =>
  filled(seed, {
    ...layerShapes(layer, { inner: 48 }),
    [`${layer}.input_layernorm.weight`]: [32],
    [`${projection}.weight`]: [32, 64],
    ...Object.fromEntries(norms.map((name) => [`${name}.weight`, [32]])),
  });

/** Layers of the model's own files, whose names here are those of the file but for their layer. */
export const OWN_LAYERS: readonly HeadCase[] = [
  {
    name: "Qwen's",
    layer: 'mtp.layers.0',
    projection: 'mtp.fc',
    norms: ['mtp.pre_fc_norm_embedding', 'mtp.pre_fc_norm_hidden', 'mtp.norm'] as const,
    more: { goesOnNormed: true },
  },
  {
    name: "MiMo's",
    layer: 'model.mtp_layers.0',
    projection: 'model.mtp_layers.0.input_proj',
    norms: ['token_layernorm', 'hidden_layernorm', 'final_layernorm'].map((n) => `model.mtp_layers.0.${n}`),
    more: { isStreamFirst: true, goesOnNormed: true, hidesFirst: true },
  },
  {
    name: "DeepSeek's",
    layer: 'model.layers.4',
    projection: 'model.layers.4.eh_proj',
    norms: ['enorm', 'hnorm', 'shared_head.norm'].map((n) => `model.layers.4.${n}`),
    more: { hidesFirst: true },
    own: { 'model.layers.4.shared_head.head.weight': [320, 32], 'model.layers.4.embed_tokens.weight': [320, 32] },
  },
].map(({ name, layer, projection, norms, more, own = {} }, i) => ({
  name: `a layer by ${name} names`,
  kind: 'mtp',
  config: { ...TARGET, num_nextn_predict_layers: 1 },
  tensors: { ...mtpTensors(601 + 100 * i, layer, projection, norms), ...filled(650 + 100 * i, own) },
  named: (tensor) => tensor.replace(`${layer}.`, 'layers.0.'),
  mtp: {
    norms: norms.map((each) => each.replace(`${layer}.`, 'layers.0.')) as [string, string, string],
    projection: projection.replace(`${layer}.`, 'layers.0.'),
    ...more,
  },
}));

/** The folders of the model and of what drafts for it: `mtp`, where that is in its files. */
export function writeHead(head: HeadCase): { readonly model: string; readonly draft: string } {
  if (head.kind === 'mtp')
    return { model: writeFolder(head.config, { ...TARGET_TENSORS, ...head.tensors }), draft: 'mtp' };
  return {
    model: writeFolder(TARGET, TARGET_TENSORS),
    draft: writeFolder(head.config, head.tensors, head.kind === 'eagle' ? 'torch' : 'safetensors'),
  };
}

// Files.

const bytesOf = ({ values }: Written): Buffer => Buffer.from(values.buffer, values.byteOffset, values.byteLength);

export function safetensorsOf(tensors: Tensors): Buffer {
  const header: Record<string, object> = {};
  let at = 0;
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    const dtype = values instanceof Float32Array ? 'F32' : 'I64';
    header[name] = { dtype, shape, data_offsets: [at, (at += values.byteLength)] };
  }
  const text = JSON.stringify(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(Buffer.byteLength(text)));
  return Buffer.concat([length, Buffer.from(text), ...Object.values(tensors).map(bytesOf)]);
}

function torchFileOf(tensors: Tensors): Buffer {
  const all = Object.entries(tensors);
  const written = all.map(([name, { shape, values }], i): readonly [string, WrittenTensor] => [
    name,
    { storage: String(i), type: values instanceof Float32Array ? 'FloatStorage' : 'LongStorage', shape },
  ]);
  return torchFile(written, Object.fromEntries(all.map(([, tensor], i) => [String(i), bytesOf(tensor)])));
}

/** Writes a folder with a config.json and these tensors; gives its path. */
export function writeFolder(config: object, tensors: Tensors, layout: 'safetensors' | 'torch' = 'safetensors'): string {
  const dir = join(temporaryFolder(), 'model');
  mkdirSync(dir);
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config));
  const isSafe = layout === 'safetensors';
  writeFileSync(
    join(dir, isSafe ? 'model.safetensors' : 'pytorch_model.bin'),
    isSafe ? safetensorsOf(tensors) : torchFileOf(tensors),
  );
  return dir;
}

// What they compute.

type Row = readonly number[];
type Get = (name: string) => ArrayLike<number>;

const getIn =
  (tensors: Tensors): Get =>
  (name) => {
    const { values } = tensors[name]!;
    if (!(values instanceof Float32Array)) throw new Error(`${name} is no tensor of floats`);
    return values;
  };

const add = (a: Row, b: ArrayLike<number>): Row => a.map((value, i) => value + b[i]!);
const times = (matrix: ArrayLike<number>, x: Row): Row =>
  Array.from({ length: matrix.length / x.length }, (_row, i) =>
    x.reduce((sum, value, j) => sum + value * matrix[i * x.length + j]!, 0),
  );
const norm = (x: Row, weight: ArrayLike<number>): Row => {
  const scale = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + TARGET.rms_norm_eps);
  return x.map((value, i) => value * scale * weight[i]!);
};
const silu = (x: number): number => x / (1 + Math.exp(-x));

/** Heads of 8: each pair of elements half a head apart is turned by position · 10000^(−2i/8), a factor in f32. */
const turned = (x: Row, position: number): Row =>
  x.map((value, at) => {
    const [start, i] = [at - (at % 8), at % 8];
    const angle = position * Math.fround(TARGET.rope_theta ** ((-2 * (i % 4)) / 8));
    const other = i < 4 ? -x[start + i + 4]! : x[start + i - 4]!;
    return value * Math.cos(angle) + other * Math.sin(angle);
  });

/** A layer with the keys and values of its path. */
class Layer {
  private readonly keys: Row[] = [];
  private readonly values: Row[] = [];
  private readonly get: Get;
  private readonly name: string;

  constructor(get: Get, name: string) {
    this.get = get;
    this.name = name;
  }

  tensor(module: string): ArrayLike<number> {
    return this.get(`${this.name}.${module}.weight`);
  }

  attention(x: Row, position: number): Row {
    const q = turned(times(this.tensor('self_attn.q_proj'), x), position);
    this.keys[position] = turned(times(this.tensor('self_attn.k_proj'), x), position);
    this.values[position] = times(this.tensor('self_attn.v_proj'), x);
    const mixed = Array.from({ length: 4 }, (_head, head) => {
      const own = q.slice(head * 8, head * 8 + 8);
      const group = Math.floor(head / 2) * 8;
      const scores = Array.from({ length: position + 1 }, (_key, at) =>
        own.reduce((sum, value, i) => sum + (value * this.keys[at]![group + i]!) / Math.sqrt(8), 0),
      );
      const weights = scores.map((score) => Math.exp(score - Math.max(...scores)));
      const total = weights.reduce((a, b) => a + b);
      return own.map((_value, i) =>
        weights.reduce((sum, weight, at) => sum + (weight / total) * this.values[at]![group + i]!, 0),
      );
    });
    return times(this.tensor('self_attn.o_proj'), mixed.flat());
  }

  feedForward(x: Row): Row {
    const [gate, up] = [times(this.tensor('mlp.gate_proj'), x), times(this.tensor('mlp.up_proj'), x)];
    return times(
      this.tensor('mlp.down_proj'),
      gate.map((value, i) => silu(value) * up[i]!),
    );
  }

  /** mid + f(norm(mid)) */
  rest(mid: Row): Row {
    return add(mid, this.feedForward(norm(mid, this.tensor('post_attention_layernorm'))));
  }
}

const embedded = (table: ArrayLike<number>, token: number, width: number): Row =>
  Array.from({ length: width }, (_, i) => table[token * width + i]!);

/** The streams of the target: what each layer reads, what the last one gives, and that behind the norm. */
export function targetStreams(
  tokens: readonly number[],
): readonly { readonly inputs: readonly Row[]; readonly normed: Row }[] {
  const get = getIn(TARGET_TENSORS);
  const layers = [0, 1, 2, 3].map((i) => new Layer(get, `model.layers.${i}`));
  return tokens.map((token, position) => {
    const inputs = [embedded(get('model.embed_tokens.weight'), token, 32)];
    for (const layer of layers) {
      const h = inputs.at(-1)!;
      inputs.push(layer.rest(add(h, layer.attention(norm(h, layer.tensor('input_layernorm')), position))));
    }
    return { inputs, normed: norm(inputs.at(-1)!, get('model.norm.weight')) };
  });
}

/** A head as it follows one path: what is computed of each position. */
export class HeadReference {
  private readonly get: Get;
  private readonly layer: Layer;
  private readonly tensors: Tensors;
  private readonly head: HeadCase;

  constructor(head: HeadCase) {
    this.head = head;
    this.tensors = Object.fromEntries(Object.entries(head.tensors).map(([name, tensor]) => [head.named(name), tensor]));
    this.get = getIn(this.tensors);
    this.layer = new Layer(this.get, 'layers.0');
  }

  /** What it goes on from, of a position of the target. */
  features({ inputs, normed }: ReturnType<typeof targetStreams>[number]): Row {
    return this.head.of === undefined
      ? normed
      : times(
          this.get('fc.weight'),
          this.head.of.flatMap((at) => inputs[at]!),
        );
  }

  /** Takes the token behind `position` beside features of that position: logits of its tokens, and its own features. */
  step(token: number, x: Row, position: number): { readonly logits: Row; readonly own: Row } {
    const { layer, get } = this;
    const target = getIn(TARGET_TENSORS);
    if (this.head.kind === 'eagle3') {
      const table =
        'embed_tokens.weight' in this.tensors ? get('embed_tokens.weight') : target('model.embed_tokens.weight');
      const e = norm(embedded(table, token, x.length), layer.tensor('input_layernorm'));
      const f = norm(x, layer.tensor('hidden_norm'));
      const mid = add(this.head.isNormedFirst === true ? f : x, layer.attention([...e, ...f], position));
      const own = layer.rest(mid);
      return { logits: times(get('lm_head.weight'), norm(own, get('norm.weight'))), own };
    }
    const has = (name: string): boolean => name in this.tensors;
    if (this.head.mtp !== undefined) return this.ownLayer(this.head.mtp, token, x, position);
    const e = embedded(target('model.embed_tokens.weight'), token, 32);
    const isNormed = has('embedding_layernorm.weight');
    const inputs = isNormed
      ? [...norm(e, get('embedding_layernorm.weight')), ...norm(x, get('pre_lm_head_layernorm.weight'))]
      : [...e, ...x];
    const product = times(get('fc.weight'), inputs);
    const first = has('fc.bias') ? add(product, get('fc.bias')) : product;
    const own = layer.rest(add(first, layer.attention(first, position)));
    return { logits: times(target('lm_head.weight'), own), own };
  }

  private ownLayer(mtp: NonNullable<HeadCase['mtp']>, token: number, x: Row, position: number) {
    const { layer, get, tensors } = this;
    const target = getIn(TARGET_TENSORS);
    const orTargets = (own: string, name: string): ArrayLike<number> => (own in tensors ? get(own) : target(name));
    const table = orTargets('layers.0.embed_tokens.weight', 'model.embed_tokens.weight');
    const shown = embedded(table, token, 32).map((value) => (mtp.hidesFirst === true && position === 0 ? 0 : value));
    const [e, s, last] = mtp.norms.map((name) => get(`${name}.weight`));
    const inputs = [norm(shown, e!), norm(x, s!)];
    if (mtp.isStreamFirst === true) inputs.reverse();
    const first = times(get(`${mtp.projection}.weight`), inputs.flat());
    const h = layer.rest(add(first, layer.attention(norm(first, layer.tensor('input_layernorm')), position)));
    const normed = norm(h, last!);
    const head = orTargets('layers.0.shared_head.head.weight', 'lm_head.weight');
    return { logits: times(head, normed), own: mtp.goesOnNormed === true ? normed : h };
  }

  /** The token that a row of logits draws, and its log-probability at temperature 1. */
  draw(logits: Row, { inverseTemperature, ...key }: Draw): { readonly token: number; readonly logProb: number } {
    const d2t = this.tensors['d2t']?.values as BigInt64Array | undefined;
    const tokenOf = (row: number): number => row + Number(d2t?.[row] ?? 0n);
    const scores = logits.map((z, row) => drawScore(z, inverseTemperature, key, tokenOf(row)));
    const drawn = scores.indexOf(Math.max(...scores));
    const top = Math.max(...logits);
    const total = logits.reduce((sum, z) => sum + Math.exp(z - top), 0);
    return { token: tokenOf(drawn), logProb: logits[drawn]! - top - Math.log(total) };
  }
}
