/** Quantized checkpoints: the values of all that is supported, bit for bit, and what is refused. */
import { describe, expect, it } from 'vitest';
import { type Checkpoint, openCheckpoint } from '../../models/checkpoint.js';
import type { Json } from '../../models/model/model.js';
import { loadAll } from '../support/loadTensors.js';
import {
  FORMATS,
  type QuantizedFormat,
  quantizedTensors,
  safetensorsOf,
  writeQuantized,
} from '../support/quantizedCheckpoints.js';
import { float, i32, plainWriter, type StoredBytes } from '../support/quantizeMatrix.js';
import { temporaryFolder, userError, writeJson } from './support.js';
import { casesHere, isThorough } from '../support/thorough.js';

const SCALAR = float('F32', [], Float64Array.of(0.5));
const LLAMA: Json = {
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  vocab_size: 40,
  max_position_embeddings: 64,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
};
const PHI: Json = { ...LLAMA, model_type: 'phi3', tie_word_embeddings: false };
const MIXTRAL: Json = { ...LLAMA, model_type: 'mixtral', num_local_experts: 2, num_experts_per_tok: 1 };
const NEOX: Json = {
  ...LLAMA,
  model_type: 'gpt_neox',
  hidden_act: 'gelu',
  num_key_value_heads: 2,
  rotary_pct: 0.5,
  tie_word_embeddings: false,
};

/** Blocks of scales begin in the middle of a head, whose matrices are read turned. */
const DEEPSEEK: Json = {
  ...{ architectures: ['DeepseekV3ForCausalLM'], model_type: 'deepseek_v3', torch_dtype: 'bfloat16', vocab_size: 40 },
  ...{ hidden_size: 64, intermediate_size: 96, num_hidden_layers: 2, num_attention_heads: 3, q_lora_rank: 32 },
  ...{ kv_lora_rank: 160, qk_nope_head_dim: 24, qk_rope_head_dim: 8, v_head_dim: 32, first_k_dense_replace: 1 },
  ...{ n_routed_experts: 4, num_experts_per_tok: 2, n_group: 2, topk_group: 1, moe_intermediate_size: 32 },
};

function write(config: Json, format: QuantizedFormat, change: (tensors: Map<string, StoredBytes>) => void = () => {}) {
  const { tensors, meant } = quantizedTensors(config, format.write, 7);
  const dir = temporaryFolder();
  const changed = new Map(tensors);
  change(changed);
  writeQuantized(dir, config, format, safetensorsOf(changed));
  writeJson(dir, 'tokenizer.json', {});
  return { dir, meant };
}

async function expectMeant(config: Json, format: QuantizedFormat): Promise<Checkpoint> {
  const { dir, meant } = write(config, format);
  const checkpoint = openCheckpoint(dir);
  const loaded = await loadAll(checkpoint);
  expect([...loaded.keys()].length).toBeGreaterThan(5);
  for (const [name, values] of loaded) expect(values, name).toEqual(meant.get(name)!.values);
  return checkpoint;
}

describe('quantized checkpoints', () => {
  it.each(Object.entries(FORMATS).filter((_, i) => isThorough || i % 2 === 0))(
    '%s means what its writer meant',
    async (_name, format) => {
      await expectMeant(LLAMA, format);
    },
  );

  const PARTS = [
    ['Phi-3', PHI, 'gptq by activation'],
    ['Phi-3', PHI, 'FP8 of projections'],
    ['Phi-3', PHI, 'FP8 in blocks'],
    ['Mixtral', MIXTRAL, 'awq'],
    ['Mixtral', MIXTRAL, 'compressed FP8'],
    ['GPT-NeoX', NEOX, 'gptq, asymmetric'],
    ['DeepSeek V3', DEEPSEEK, 'FP8 in blocks of 128'],
    ['DeepSeek V3', DEEPSEEK, 'FP8 in blocks'],
    ['DeepSeek V3', DEEPSEEK, 'compressed int8 in bytes'],
    ['DeepSeek V3', DEEPSEEK, 'compressed int4'],
    ['DeepSeek V3', DEEPSEEK, 'gptq, asymmetric'],
    ['DeepSeek V3', DEEPSEEK, 'awq'],
    ['DeepSeek V3', DEEPSEEK, 'FP8, static'],
  ] as const;
  it.each(casesHere<(typeof PARTS)[number]>(PARTS, 0, 1, 3, 5, 7, 9))(
    '$0: matrices in parts and of experts, $2',
    async (_family, config, format) => {
      await expectMeant(config, FORMATS[format]!);
    },
  );

  it('name the tensor of the file whose bytes are damaged', async () => {
    const damaged = (part: string, bytes: (count: number) => Uint8Array): Promise<unknown> => {
      const name = `model.layers.0.self_attn.qkv_proj.${part}`;
      const { dir } = write(PHI, FORMATS['gptq by activation']!, (tensors) => {
        const tensor = tensors.get(name)!;
        tensors.set(name, { ...tensor, bytes: bytes(tensor.bytes.length) });
      });
      return loadAll(openCheckpoint(dir));
    };
    const file = String.raw`model\.safetensors: tensor "model\.layers\.0\.self_attn\.qkv_proj\.`;
    await expect(damaged('scales', (count) => new Uint8Array(count))).rejects.toThrow(
      new RegExp(`${file}scales": the scale of row \\d+, column \\d+ is 0$`),
    );
    await expect(damaged('g_idx', (count) => new Uint8Array(count).fill(0x7f))).rejects.toThrow(
      new RegExp(`${file}g_idx": column 0 is in group \\d+ of \\d+$`),
    );
  });

  it.each([
    ['Phi-3, qkv', PHI, 128],
    ['Phi-3, gate and up', PHI, 192],
    ['Phi-3, more rows than a matrix has', PHI, 256],
    ['GPT-NeoX, qkv of each head', NEOX, 192],
  ] as const)('$0: one row of several blocks, %d', async (_what, config, rows) => {
    const block = [rows, 40] as const;
    await expectMeant(config, {
      config: { quant_method: 'fp8', activation_scheme: 'dynamic', weight_block_size: block },
      write: plainWriter({
        ...{ code: 'F8_E4M3', block, dtype: 'F32', scale: 'weight_scale_inv' },
        shape: (down, across) => [down, across],
      }),
    });
  });

  it('say how they are stored, keep scales of activations, and differ where their configurations do', () => {
    const static8 = FORMATS['FP8, static']!;
    const layer = 'model.layers.0.self_attn';
    const cache = new Map(['k_proj.k_scale', 'v_proj.v_scale'].map((name) => [`${layer}.${name}`, SCALAR]));
    const { dir } = write(LLAMA, static8, (tensors) => cache.forEach((tensor, name) => tensors.set(name, tensor)));
    const { quantized, fingerprint } = openCheckpoint(dir);
    expect([...quantized!.schemes]).toEqual([
      ['FP8 (E4M3), a scale for each matrix', { matrices: 7, elements: 64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 96 }],
    ]);
    expect([...quantized!.scales.keys()].filter((name) => name.includes('self_attn'))).toEqual(
      ['q', 'k', 'v', 'o'].flatMap((name) => [`${layer}.${name}_proj.input_scale`]).concat([...cache.keys()]),
    );
    const gptq = FORMATS['gptq, asymmetric']!;
    const first = write(LLAMA, gptq).dir;
    const second = write(LLAMA, { ...gptq, config: { ...gptq.config, checkpoint_format: 'gptq_v2' } }).dir;
    expect(openCheckpoint(first).fingerprint()).not.toBe(openCheckpoint(second).fingerprint());
    expect(fingerprint()).toBe(openCheckpoint(dir).fingerprint());
  });
});

describe('a quantized head of a model that is tied by its configuration', () => {
  const UP = 'model.layers.0.mlp.up_proj';

  it.each(casesHere(['gptq, asymmetric', 'awq', 'compressed int4', 'FP8, static'], 1, 3))(
    '%s is read: it is not the embedding',
    async (name) => {
      const { dir, meant } = write({ ...LLAMA, vocab_size: 96 }, FORMATS[name]!, (tensors) => {
        for (const [tensor, bytes] of [...tensors])
          if (tensor.startsWith(`${UP}.`)) tensors.set(tensor.replace(UP, 'lm_head'), bytes);
      });
      const checkpoint = openCheckpoint(dir);
      expect(checkpoint.config).toMatchObject({ tieWordEmbeddings: false });
      expect(checkpoint.warnings).toHaveLength(1);
      const loaded = await loadAll(checkpoint);
      expect(loaded.get('lm_head.weight')).toEqual(meant.get(`${UP}.weight`)!.values);
      expect(loaded.get('model.embed_tokens.weight')).toEqual(meant.get('model.embed_tokens.weight')!.values);
    },
  );
});

describe('a bias that the model does not have', () => {
  const withBias =
    (value: number) =>
    (tensors: Map<string, StoredBytes>): void => {
      const values = new Float64Array(64);
      values[63] = value;
      tensors.set('model.layers.0.self_attn.q_proj.bias', float('F16', [64], values));
    };

  it('is none where it is zero, and refused where it is not', () => {
    const format = FORMATS['gptq, asymmetric']!;
    const { dir } = write(LLAMA, format, withBias(0));
    expect(openCheckpoint(dir).tensors.has('model.layers.0.self_attn.q_proj.bias')).toBe(false);
    const other = write(LLAMA, format, withBias(0.5)).dir;
    expect(userError(() => openCheckpoint(other)).message).toContain('q_proj.bias: not a tensor of this model');
  });

  it('is read by a model that has it', async () => {
    await expectMeant({ ...LLAMA, attention_bias: true }, FORMATS['gptq, asymmetric']!);
  });
});

describe('settings for some modules', () => {
  it('may leave modules out, which are floats then', () => {
    const format = FORMATS['gptq, asymmetric']!;
    const { dir } = write(LLAMA, { ...format, config: { ...format.config, dynamic: { '-:.*lm_head': {} } } });
    expect(openCheckpoint(dir).tensors.size).toBeGreaterThan(5);
  });
});

describe('quantized checkpoints that are refused', () => {
  const refusal = (format: string, config: Json = {}, change?: (tensors: Map<string, StoredBytes>) => void): string => {
    const known = FORMATS[format]!;
    const { dir } = write(LLAMA, { ...known, config: { ...known.config, ...config } }, change);
    return userError(() => openCheckpoint(dir)).message;
  };
  const scheme = (weights: Json): Json => ({
    config_groups: { group_0: { targets: ['Linear'], weights: { num_bits: 4, type: 'int', ...weights } } },
  });

  it.each<[string, string, Json, string]>([
    [
      'a method',
      'gptq, asymmetric',
      { quant_method: 'aqlm' },
      'quantized by "aqlm" are not supported; supported: gptq',
    ],
    ['another', 'gptq, asymmetric', { quant_method: 'bitsandbytes' }, 'quantized by "bitsandbytes"'],
    ['none', 'gptq, asymmetric', { quant_method: null }, 'supported: gptq, awq, compressed-tensors, fp8, modelopt'],
    ['3 bits', 'gptq, asymmetric', { bits: 3 }, 'bits 3 is not supported; supported: 2, 4, 8'],
    ['text', 'gptq, asymmetric', { bits: '4' }, 'bits "4" is not supported'],
    ['Marlin', 'gptq, asymmetric', { checkpoint_format: 'marlin' }, 'checkpoint_format "marlin" is not supported'],
    ['Marlin', 'gptq, asymmetric', { is_marlin_format: true }, 'is_marlin_format true is not supported'],
    ['some modules otherwise', 'gptq, asymmetric', { dynamic: { '+:lm_head': { bits: 8 } } }, 'dynamic'],
    ['a group', 'gptq, asymmetric', { group_size: 0 }, 'group_size 0 is not supported'],
    ['a group', 'gptq, asymmetric', { group_size: 'all' }, 'group_size "all" is not supported'],
    ['GEMV', 'awq', { version: 'gemv' }, 'version "gemv" is not supported; supported: gemm'],
    ['another tool', 'awq', { backend: 'llm-awq' }, 'backend "llm-awq" is not supported'],
    ['no zero points', 'awq', { zero_point: false }, 'zero_point false is not supported'],
    ['a format', 'compressed int4', { format: 'nvfp4-pack-quantized' }, 'format "nvfp4-pack-quantized"'],
    ['sparse', 'compressed int4', { sparsity_config: { format: 'sparse-24-bitmask' } }, 'sparsity_config: format'],
    ['rotations', 'compressed int4', { transform_config: { config_groups: {} } }, 'transform_config'],
    ['an order', 'compressed int4', scheme({ strategy: 'group', group_size: 32, actorder: 'odd' }), 'actorder "odd"'],
    ['a strategy', 'compressed int4', scheme({ strategy: 'tensor_group' }), 'strategy "tensor_group"'],
    ['bits', 'compressed int4', scheme({ num_bits: 6 }), 'num_bits 6 is not supported; supported: 4, 8'],
    ['no groups', 'compressed int4', { config_groups: {} }, 'config_groups'],
    ['E5M2', 'FP8, static', { fmt: 'e5m2' }, 'fmt "e5m2" is not supported; supported: e4m3'],
    ['blocks', 'FP8, static', { weight_block_size: [0, 128] }, 'weight_block_size [0,128] is not supported'],
    ['ModelOpt', 'FP8, static', { quant_method: 'modelopt', quant_algo: 'NVFP4' }, 'quant_algo "NVFP4"'],
    ['huge blocks', 'FP8, static', { weight_block_size: [2 ** 40, 128] }, 'two sizes from 1 to 1048576'],
    ['two answers', 'gptq, asymmetric', { w_bit: 8 }, 'bits 4 and w_bit 8 contradict each other'],
    [
      'two answers',
      'gptq, asymmetric',
      { checkpoint_format: 'gptq', format: 'gptq_v2' },
      'checkpoint_format "gptq" and format "gptq_v2" contradict each other',
    ],
    ['another type', 'compressed int8 in bytes', scheme({ type: 'float' }), 'type "float" is not supported'],
  ])('%s: %s %j', (_what, format, config, message) => {
    const text = refusal(format, config);
    expect(text).toContain(message);
    expect(text.split('\n')).toHaveLength(1);
  });

  const Q = 'model.layers.0.self_attn.q_proj';
  const TOLD = 'model.layers.{0}.self_attn.q_proj';
  it.each<[string, string, Json, (tensors: Map<string, StoredBytes>) => void, string]>([
    [
      'a group that does not divide',
      'gptq, asymmetric',
      { group_size: 40 },
      () => {},
      'groups of 40 columns do not divide the 64',
    ],
    ['other groups', 'gptq, asymmetric', { group_size: 16 }, () => {}, 'requires [4, 8]'],
    [
      'no order',
      'gptq version 2, whole rows',
      { desc_act: true },
      () => {},
      'self_attn.q_proj.g_idx, self_attn.k_proj.g_idx',
    ],
    ['no zero points', 'gptq, asymmetric', {}, (all) => all.delete(`${Q}.qzeros`), `${TOLD}.qzeros: missing`],
    [
      'no zero points of bytes',
      'compressed int8 in bytes',
      scheme({ symmetric: false }),
      () => {},
      'self_attn.q_proj.weight_zero_point, self_attn.k_proj.weight_zero_point',
    ],
    [
      'codes of another type',
      'FP8, static',
      {},
      (all) => all.set(`${Q}.weight`, { ...all.get(`${Q}.weight`)!, dtype: 'I8' }),
      `${TOLD}.weight: int8, where the configuration says FP8 (E4M3)`,
    ],
    ['no scales', 'FP8, static', {}, (all) => all.delete(`${Q}.weight_scale`), `${TOLD}.weight_scale: missing`],
    ['no matrix', 'awq', {}, (all) => all.delete(`${Q}.qweight`), `${TOLD}.weight: missing`],
    [
      'a shape of its own',
      'compressed int4',
      {},
      (all) => all.set(`${Q}.weight_shape`, { dtype: 'I64', shape: [2], bytes: new Uint8Array(16) }),
      `${TOLD}.weight_shape: says [0, 0], but config.json requires [64, 64]`,
    ],
    [
      'scales that are whole numbers',
      'gptq, asymmetric',
      {},
      (all) => all.set(`${Q}.scales`, i32([2, 64], new Array<number>(128).fill(1))),
      'element type I32 is not supported',
    ],
    [
      'codes of another shape',
      'gptq, asymmetric',
      {},
      (all) => all.set(`${Q}.qweight`, i32([64, 8], new Array<number>(512).fill(0))),
      `${TOLD}.qweight: shape [64, 8], but its configuration requires [8, 64]`,
    ],
    [
      'tensors that nobody reads',
      'awq',
      {},
      (all) => all.set(`${Q}.outliers`, SCALAR),
      `${TOLD}.outliers: not a tensor of this model`,
    ],
    ...(['gptq, asymmetric', 'awq', 'compressed int4'] as const).map(
      (format): [string, string, Json, (tensors: Map<string, StoredBytes>) => void, string] => [
        'floats beside codes',
        format,
        {},
        (all) => all.set(`${Q}.weight`, float('BF16', [64, 64], new Float64Array(64 * 64))),
        `${TOLD}.weight: a second matrix of its module, which is stored quantized (`,
      ],
    ),
  ])('%s: %s', (_what, format, config, change, message) => {
    expect(refusal(format, config, change)).toContain(message);
  });

  it('a configuration that is none', () => {
    const dir = temporaryFolder();
    writeJson(dir, 'config.json', { ...LLAMA, quantization_config: 'int4' });
    expect(userError(() => openCheckpoint(dir)).message).toContain('quantization_config: expected an object');
  });
});
