/** A small model and meaningless questions, written to temporary folders, for end-to-end tests. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { temporaryFolder } from './support.js';

/** Small numbers from a seed: mulberry32. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32;
  };
}

export const CONTEXT = 160;
export const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'float32',
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  vocab_size: 320,
  max_position_embeddings: CONTEXT,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  tie_word_embeddings: true,
} as const;

/** Name and shape of every tensor of CONFIG. */
export const SHAPES: ReadonlyMap<string, readonly number[]> = new Map([
  ['model.embed_tokens.weight', [320, 64]],
  ...[0, 1].flatMap((layer): [string, number[]][] =>
    (
      [
        ['input_layernorm', [64]],
        ['self_attn.q_proj', [64, 64]],
        ['self_attn.k_proj', [32, 64]],
        ['self_attn.v_proj', [32, 64]],
        ['self_attn.o_proj', [64, 64]],
        ['post_attention_layernorm', [64]],
        ['mlp.gate_proj', [96, 64]],
        ['mlp.up_proj', [96, 64]],
        ['mlp.down_proj', [64, 96]],
      ] as [string, number[]][]
    ).map(([name, shape]): [string, number[]] => [`model.layers.${layer}.${name}.weight`, shape]),
  ),
  ['model.norm.weight', [64]],
]);

export interface StoredTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** The weights of CONFIG, scaled so that earlier tokens matter to later ones. */
export function tensorsOf(seed = 1): StoredTensor[] {
  const next = random(seed);
  return [...SHAPES].map(([name, shape]) => ({
    name,
    shape,
    values: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () =>
      shape.length === 1 ? 0.5 + next() : (next() - 0.5) * 0.6,
    ),
  }));
}

/** The bytes of a safetensors file. `header` replaces the JSON that describes the tensors. */
export function safetensorsFile(
  tensors: readonly StoredTensor[],
  header?: (
    real: Record<string, { dtype: string; shape: readonly number[]; data_offsets: [number, number] }>,
  ) => object,
): Buffer {
  const described: Record<string, { dtype: string; shape: readonly number[]; data_offsets: [number, number] }> = {};
  let at = 0;
  for (const { name, shape, values } of tensors) {
    described[name] = { dtype: 'F32', shape, data_offsets: [at, at + values.byteLength] };
    at += values.byteLength;
  }
  const text = JSON.stringify(header === undefined ? described : header(described));
  const json = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([
    length,
    json,
    ...tensors.map(({ values }) => Buffer.from(values.buffer, values.byteOffset, values.byteLength)),
  ]);
}

/** A byte-level BPE tokenizer: BOS, every byte, and pairs that turn common pairs of letters into one token. */
function tokenizerJson(): string {
  // GPT-2's mapping of bytes to printable characters: printable Latin-1 stands for itself, the rest starts at 256.
  let beyond = 256;
  const bytes = Array.from({ length: 256 }, (_, byte) => {
    const isPrintable =
      (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
    return String.fromCodePoint(isPrintable ? byte : beyond++);
  });
  const space = bytes[0x20] ?? '';
  const merges = [
    'th',
    'he',
    'an',
    'in',
    'er',
    're',
    'on',
    'at',
    'en',
    'ed',
    `${space}t`,
    `${space}a`,
    `${space}s`,
    `${space}w`,
    `${space}o`,
  ].map((pair) => {
    const [a = '', b = ''] = [...pair];
    return `${a} ${b}`;
  });
  const words = ['<s>', ...bytes, ...merges.map((merge) => merge.replace(' ', ''))];
  return JSON.stringify({
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [
      { id: 0, content: '<s>', single_word: false, lstrip: false, rstrip: false, normalized: false, special: true },
    ],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [0], tokens: ['<s>'] } },
    },
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
      merges,
    },
  });
}

export interface CheckpointChange {
  readonly config?: Readonly<Record<string, unknown>>;
  /** The whole weight file, in place of the right one; null leaves it out. */
  readonly weights?: Buffer | null;
}

/** Writes a small checkpoint, sound except for what `change` names. Returns its folder. */
export function writeCheckpoint(change: CheckpointChange = {}, name = 'small'): string {
  const dir = join(temporaryFolder(), name);
  mkdirSync(dir);
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ ...CONFIG, ...change.config }));
  writeFileSync(join(dir, 'tokenizer.json'), tokenizerJson());
  if (change.weights !== null)
    writeFileSync(join(dir, 'model.safetensors'), change.weights ?? safetensorsFile(tensorsOf()));
  return dir;
}

const NOUNS = [
  'the cat',
  'the train',
  'a teacher',
  'the river',
  'an old man',
  'the window',
  'her brother',
  'the garden',
];
const VERBS = ['waits', 'turns', 'opens', 'falls', 'sings', 'runs', 'rests', 'grows'];
const PLACES = ['near the station', 'in the rain', 'on the hill', 'at noon', 'without a sound', 'behind the house'];

export interface WrittenQuestion {
  readonly context: string;
  readonly choices: readonly string[];
  readonly label: number;
}

/** Questions whose contexts often start alike, with two to five choices, some of which start alike. */
export function questions(count: number, seed = 7): WrittenQuestion[] {
  const next = random(seed);
  const pick = (list: readonly string[]): string => list[Math.floor(next() * list.length)] ?? '';
  return Array.from({ length: count }, () => {
    const context = `${pick(NOUNS)} ${pick(VERBS)} ${pick(PLACES)}. Then ${pick(NOUNS)}`;
    const first = pick(VERBS);
    const choices = Array.from(
      { length: 2 + Math.floor(next() * 4) },
      (_, i) => `${i % 2 === 0 ? first : pick(VERBS)} ${pick(PLACES)} ${i}.`,
    );
    return { context, choices, label: Math.floor(next() * choices.length) };
  });
}

/** Writes a question set as JSON lines; returns its path. */
export function writeData(lines: readonly (WrittenQuestion | string)[], name = 'questions.jsonl'): string {
  const path = join(temporaryFolder(), name);
  writeFileSync(path, lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''));
  return path;
}

/** An EAGLE head for the model: the embedding, of the size of what is behind a norm, and a little of its layer. */
export function headTensors(): StoredTensor[] {
  const { hidden_size: hidden } = CONFIG;
  const layer = tensorsOf(3).flatMap(({ name, shape, values }) => {
    if (!name.startsWith('model.layers.0.') || name.includes('input_layernorm')) return [];
    return [
      {
        shape,
        name: name.replace('model.', ''),
        values: values.map((value) => (shape.length === 1 ? value : value / 4)),
      },
    ];
  });
  const fc = new Float32Array(2 * hidden * hidden);
  for (let i = 0; i < hidden; i++) [fc[i * 2 * hidden + i], fc[i * 2 * hidden + hidden + i]] = [5.8, 0.1];
  return [{ name: 'fc.weight', shape: [hidden, 2 * hidden], values: fc }, ...layer];
}
