/** The same small model as a Hugging Face folder and as a GGUF file: the same log-probabilities, to the bit. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { BLOCKS } from '../../../ir/blocks.js';
import { openCheckpoint } from '../../../models/checkpoint.js';
import type { Json } from '../../../models/model/model.js';
import { randomOf } from '../../fuzz/mutate.js';
import { type Encode, ggufFile, ggufPairs, ggufTensors, type GgufType, type PlainTensor } from '../../support/gguf.js';
import { BLOCK_TYPES, type BlockType, BlockWriter, randomBlock } from '../../support/ggufBlocks.js';
import { folder, scores, SIZES, tensorsOf } from '../../support/ggufModels.js';
import { expectSame } from '../../support/numbers.js';
import { casesHere } from '../../support/thorough.js';
import { temporaryFolder } from '../support.js';

const EXPERTS = { num_experts_per_tok: 2, moe_intermediate_size: 24 };
const YARN = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16 };

const MODELS: Readonly<Record<string, Json>> = {
  llama: { model_type: 'llama' },
  'llama with biases, tied': {
    model_type: 'llama',
    attention_bias: true,
    mlp_bias: true,
    head_dim: 16,
    tie_word_embeddings: true,
  },
  'llama with YaRN': { model_type: 'llama', rope_scaling: YARN },
  'llama with stretched positions': { model_type: 'llama', rope_scaling: { rope_type: 'linear', factor: 2.5 } },
  mistral: { model_type: 'mistral', sliding_window: 5 },
  mixtral: { model_type: 'mixtral', num_local_experts: 4, num_experts_per_tok: 2 },
  qwen2: { model_type: 'qwen2', tie_word_embeddings: true },
  'qwen2 with experts': {
    ...{ model_type: 'qwen2_moe', num_experts: 6, ...EXPERTS },
    shared_expert_intermediate_size: 40,
  },
  qwen3: { model_type: 'qwen3', head_dim: 16 },
  'qwen3 with experts': { model_type: 'qwen3_moe', num_experts: 6, ...EXPERTS, norm_topk_prob: true, head_dim: 16 },
  gemma: { model_type: 'gemma', head_dim: 16 },
  gemma2: {
    ...{ model_type: 'gemma2', head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 4 },
    ...{ attn_logit_softcapping: 7, final_logit_softcapping: 5 },
  },
  gemma3: {
    ...{ model_type: 'gemma3_text', head_dim: 16, query_pre_attn_scalar: 16, sliding_window: 4 },
    ...{ num_hidden_layers: 7, rope_theta: 1_000_000, rope_scaling: { rope_type: 'linear', factor: 8 } },
  },
  phi3: { model_type: 'phi3', partial_rotary_factor: 0.5, sliding_window: null },
  'phi3 with a window': { model_type: 'phi3', sliding_window: 6 },
  stablelm: { model_type: 'stablelm', use_qkv_bias: true, partial_rotary_factor: 0.25, layer_norm_eps: 1e-5 },
  'stablelm with norms of heads': {
    ...{ model_type: 'stablelm', qk_layernorm: true, use_parallel_residual: true },
    ...{ partial_rotary_factor: 0.5, layer_norm_eps: 1e-6 },
  },
  olmo2: { model_type: 'olmo2' },
  olmo3: { model_type: 'olmo3', sliding_window: 5, num_hidden_layers: 5 },
  granite: {
    ...{ model_type: 'granite', embedding_multiplier: 12, residual_multiplier: 0.22 },
    ...{ attention_multiplier: 0.1, logits_scaling: 8 },
  },
  smollm3: { model_type: 'smollm3', num_hidden_layers: 5, tie_word_embeddings: true },
  cohere2: { model_type: 'cohere2', sliding_window: 4, num_hidden_layers: 5, logit_scale: 0.25, layer_norm_eps: 1e-5 },
  gptneox: {
    ...{ model_type: 'gpt_neox', num_key_value_heads: 4, rotary_pct: 0.5, layer_norm_eps: 1e-5 },
    use_parallel_residual: true,
  },
};

function gguf(json: Json, tensors: readonly PlainTensor[], type: GgufType, encode?: Encode): string {
  const path = join(temporaryFolder(), 'model.gguf');
  writeFileSync(path, ggufFile({ pairs: ggufPairs(json), tensors: ggufTensors(tensors, json, () => type, encode) }));
  return path;
}

describe('a GGUF file', () => {
  it.each(casesHere(Object.keys(MODELS), 0, 5, 12, 15, 18, 22))(
    'computes what the Hugging Face folder does: %s',
    (name) => {
      const json: Json = { ...SIZES, ...MODELS[name] };
      const tensors = tensorsOf(json, 3);
      const plain = openCheckpoint(folder(json, tensors));
      const want = scores(plain);
      expect(new Set(want).size).toBeGreaterThan(5);
      for (const type of name === 'llama' ? (['F32', 'F16', 'BF16'] as const) : (['BF16'] as const)) {
        const copy = openCheckpoint(gguf(json, tensors, type));
        expect(new Set(copy.tensors.keys())).toEqual(new Set(plain.tensors.keys()));
        const { architecture, layers, vocabSize, maxPositions } = plain.config;
        expect(copy.config).toMatchObject({ architecture, layers, vocabSize, maxPositions });
        const got = scores(copy);
        // Layers that do not turn q and k add up their products in the order in which the file has them.
        if (name !== 'smollm3') expectSame(got, want, `${name} in ${type}`);
        got.forEach((value, i) => {
          expect(Math.abs(value - want[i]!)).toBeLessThan(1e-12);
        });
      }
    },
  );
});

describe('a GGUF file of Mixtral from 2023', () => {
  it('has a tensor for each expert', () => {
    const json: Json = { ...SIZES, ...MODELS['mixtral'] };
    const tensors = tensorsOf(json, 3);
    const apart = ggufTensors(tensors, json, () => 'BF16').flatMap((tensor) => {
      const { name, shape, bytes } = tensor;
      if (!name.includes('_exps')) return [tensor];
      const [count = 1, ...own] = shape;
      const size = bytes.length / count;
      return Array.from({ length: count }, (_, i) => ({
        ...tensor,
        name: name.replace('_exps', `.${i}`),
        shape: own,
        bytes: bytes.subarray(i * size, (i + 1) * size),
      }));
    });
    const path = join(temporaryFolder(), 'model.gguf');
    writeFileSync(path, ggufFile({ pairs: ggufPairs(json), tensors: apart }));
    expectSame(scores(openCheckpoint(path)), scores(openCheckpoint(gguf(json, tensors, 'BF16'))));
  });
});

describe('a GGUF model in several files', () => {
  it('computes what it does in one', () => {
    const json: Json = { ...SIZES, ...MODELS['llama'] };
    const tensors = tensorsOf(json, 3);
    const all = ggufTensors(tensors, json, () => 'F16');
    const dir = temporaryFolder();
    for (let part = 0; part < 3; part++) {
      const split = {
        'split.no': { u32: part },
        'split.count': { u32: 3 },
        'split.tensors.count': { u32: all.length },
      };
      const pairs = part === 0 ? { ...ggufPairs(json), ...split } : split;
      const file = ggufFile({ pairs, tensors: all.filter((_, i) => i % 3 === part) });
      writeFileSync(join(dir, `small-0000${part + 1}-of-00003.gguf`), file);
    }
    const { files, path, ...whole } = openCheckpoint(dir);
    expect([files.length, path]).toEqual([3, join(dir, 'small-00001-of-00003.gguf')]);
    expectSame(scores({ files, path, ...whole }), scores(openCheckpoint(gguf(json, tensors, 'F16'))));
    // A copy elsewhere is the same checkpoint.
    expect(whole.fingerprint()).toBe(openCheckpoint(join(dir, 'small-00002-of-00003.gguf')).fingerprint());
  });
});

const WIDE: Json = { ...SIZES, hidden_size: 256, intermediate_size: 256, num_hidden_layers: 1, head_dim: 64 };
/** The model with widths of whole blocks of 32. */
const inBlocks = (json: Json): Json =>
  Object.fromEntries(
    Object.entries({ ...SIZES, ...json }).map(([key, value]) => [key, key.endsWith('intermediate_size') ? 32 : value]),
  );

describe('a quantized GGUF file', () => {
  it.each(BLOCK_TYPES)('has blocks of %s as the reference decodes them', (type) => {
    const random = randomOf(11);
    const { bytes: size, elements, decode } = BLOCKS[type.toLowerCase() as Lowercase<BlockType>];
    for (let round = 0; round < 50; round++) {
      const { bytes, values } = randomBlock(type, random);
      expect([bytes.length, values.length]).toEqual([size, elements]);
      expect(Array.from(decode(bytes), Math.fround)).toEqual(values);
    }
  });

  const cases: readonly [string, BlockType, Json][] = [
    ...BLOCK_TYPES.map((type): [string, BlockType, Json] => ['llama', type, { ...WIDE, model_type: 'llama' }]),
    ...['qwen2', 'mixtral', 'qwen2 with experts', 'phi3', 'gptneox'].map((name): [string, BlockType, Json] => [
      name,
      'Q8_0',
      inBlocks(MODELS[name]!),
    ]),
  ];
  it.each(casesHere(cases, 2, 6, 8))('computes with its weights as they are stored: %s in %s', (name, type, json) => {
    const blocks = new BlockWriter(type, randomOf(13));
    const tensors = tensorsOf(json, 5, (rows, columns) => blocks.draw(rows, columns));
    const copy = openCheckpoint(gguf(json, tensors, type, blocks.encode));
    expect(new Set([...copy.tensors.values()].map(({ kind }) => kind))).toEqual(new Set(['encoded', 'file']));
    expect(copy.config.dtype).toBe('bf16');
    for (const each of copy.tensors.values())
      if (each.kind === 'encoded')
        expect(each.parts.blocks!.tensor).toMatch(/^(?:blk\.\d\.\w+|token_embd|output)\.weight$/);
    expect([...copy.quantized!.schemes.keys()]).toEqual([`GGUF ${type}`]);
    expectSame(scores(copy), scores(openCheckpoint(folder(json, tensors))), `${name} in ${type}`);
  });
});
