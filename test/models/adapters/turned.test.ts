/** Adapters of matrices that lie, or are read, the other way round: against plain sums in float64. */
import { describe, expect, it } from 'vitest';
import { base, llama, merged, open, tensor, type Tensor, times } from './world.js';

const EIGHT = [0, 1, 2, 3, 4, 5, 6, 7];

function near(found: readonly number[], wanted: readonly number[]): void {
  expect(found).toHaveLength(wanted.length);
  for (const [i, value] of wanted.entries()) expect(Math.abs(found[i]! - value), `at ${i}`).toBeLessThan(1e-6);
}

/** The product of a module [outputs, inputs]: its tensors, and s·B·A by rows. */
function productOf(path: string, outputs: number, inputs: number) {
  const [a, b] = [tensor(2, inputs), tensor(outputs, 2)];
  const delta = times(b, a).map((row) => row.map((value) => 3 * value));
  return { tensors: { [`${path}.lora_A.weight`]: a, [`${path}.lora_B.weight`]: b }, delta };
}

const turnedOf = ({ shape: [rows = 0, columns = 0], data }: Tensor): Tensor => ({
  shape: [columns, rows],
  data: Float32Array.from({ length: data.length }, (_, i) => data[(i % rows) * columns + Math.floor(i / rows)]!),
});

describe('matrices that are stored as [in, out]', () => {
  const gpt2 = base('gpt2', 'GPT2LMHeadModel', { n_embd: 8, n_head: 2, n_layer: 1, n_positions: 16, vocab_size: 10 });
  const attention = 'transformer.h.0.attn';
  const { tensors, delta } = productOf(`${attention}.c_attn`, 24, 8);
  const stored = gpt2.values[`${attention}.c_attn.weight`]!.data;

  it('have products of their columns, which ride', () => {
    const adapter = open(gpt2, { target_modules: ['c_attn'], fan_in_fan_out: true }, tensors);
    expect([...adapter.products.keys()]).toEqual(['q', 'k', 'v'].map((name) => `${attention}.${name}.weight`));
    for (const [part, name] of ['q', 'k', 'v'].entries())
      near(
        merged(gpt2, adapter, `${attention}.${name}.weight`),
        EIGHT.flatMap((row) => EIGHT.map((i) => stored[i * 24 + 8 * part + row]! + delta[8 * part + row]![i]!)),
      );
  });

  it('have whole matrices in their own order, beside tables of positions', () => {
    const whole = tensor(8, 32);
    const [a, b] = [tensor(2, 16), tensor(8, 2)];
    const table = { 'transformer.wpe.lora_embedding_A': a, 'transformer.wpe.lora_embedding_B': b };
    const saved = { 'transformer.h.0.mlp.c_fc.weight': whole, 'transformer.h.0.mlp.c_fc.bias': tensor(32) };
    const config = { target_modules: ['wpe'], modules_to_save: ['c_fc'] };
    const adapter = open(gpt2, config, { ...table, ...saved });
    near(merged(gpt2, adapter, 'transformer.h.0.mlp.c_fc.weight'), [...turnedOf(whole).data]);
    const rows = times(b, a);
    const positions = gpt2.values['transformer.wpe.weight']!.data;
    near(
      merged(gpt2, adapter, 'transformer.wpe.weight'),
      [...positions].map((value, i) => value + 3 * rows[i % 8]![Math.floor(i / 8)]!),
    );
  });
});

describe('a class without ForCausalLM', () => {
  it('has a head of classes where an adapter was trained for one', () => {
    const gpt2 = base('gpt2', 'GPT2LMHeadModel', { n_embd: 8, n_head: 2, n_layer: 1, n_positions: 16, vocab_size: 10 });
    const { tensors } = productOf('transformer.h.0.attn.c_attn', 24, 8);
    const config = { task_type: 'SEQ_CLS', target_modules: ['c_attn'] };
    const adapter = open(gpt2, config, { ...tensors, 'score.weight': tensor(2, 8) });
    expect(adapter.replaced).toEqual(['score.weight']);
    expect(adapter.model.config.head?.kind).toBe('sequence classification');
  });
});

describe('matrices of heads that the graph reads turned', () => {
  const latent = base('deepseek_v2', 'DeepseekV2ForCausalLM', {
    ...{ num_key_value_heads: 2, q_lora_rank: null, kv_lora_rank: 6, qk_nope_head_dim: 3, qk_rope_head_dim: 2 },
    ...{ v_head_dim: 4, first_k_dense_replace: 2, n_routed_experts: 2, num_experts_per_tok: 1, n_shared_experts: 1 },
    ...{ moe_intermediate_size: 4, tie_word_embeddings: false },
  });
  const path = 'model.layers.0.self_attn.kv_b_proj';
  const { tensors, delta } = productOf(path, 14, 6);
  const stored = latent.values[`${path}.weight`]!.data;
  const sum = (row: number, column: number): number => stored[row * 6 + column]! + delta[row]![column]!;

  it('take the place of those of the base, in both directions', () => {
    const adapter = open(latent, { target_modules: '.*\\.0\\..*kv_b_proj' }, tensors);
    expect(adapter.products.size).toBe(0);
    near(
      merged(latent, adapter, 'model.layers.0.self_attn.kv_b_proj.keys.1.weight'),
      [0, 1, 2, 3, 4, 5].flatMap((column) => [7, 8, 9].map((row) => sum(row, column))),
    );
    near(
      merged(latent, adapter, 'model.layers.0.self_attn.kv_b_proj.values.1.weight'),
      [10, 11, 12, 13].flatMap((row) => [0, 1, 2, 3, 4, 5].map((column) => sum(row, column))),
    );
  });

  it('are given the norms of their rows', () => {
    const norms = tensor(14);
    const config = { target_modules: '.*\\.0\\..*kv_b_proj', use_dora: true };
    const adapter = open(latent, config, { ...tensors, [`${path}.lora_magnitude_vector`]: norms });
    const normed = (row: number, column: number): number =>
      (norms.data[row]! * sum(row, column)) / Math.hypot(...[0, 1, 2, 3, 4, 5].map((each) => sum(row, each)));
    near(
      merged(latent, adapter, 'model.layers.0.self_attn.kv_b_proj.keys.1.weight'),
      [0, 1, 2, 3, 4, 5].flatMap((column) => [7, 8, 9].map((row) => normed(row, column))),
    );
  });
});

describe('ends of a model', () => {
  const tied = llama({ tie_word_embeddings: true });
  const [a, b] = [tensor(2, 10), tensor(8, 2)];
  const config = { target_modules: ['embed_tokens'], ensure_weight_tying: true };
  const embedding = { 'model.embed_tokens.lora_embedding_A': a, 'model.embed_tokens.lora_embedding_B': b };
  const head = { 'lm_head.lora_A.weight': turnedOf(b), 'lm_head.lora_B.weight': turnedOf(a) };

  it('stay tied where PEFT was told so, and wrote the product of both', () => {
    const adapter = open(tied, config, { ...embedding, ...head });
    expect(adapter.replaced).toEqual(['model.embed_tokens.weight']);
    const other = { ...head, 'lm_head.lora_A.weight': tensor(2, 8) };
    expect(() => open(tied, config, { ...embedding, ...other })).toThrow(/it is not the embedding’s/);
  });

  it('may be called lm_head, as in transformers 5', () => {
    const neox = base('gpt_neox', 'GPTNeoXForCausalLM', {
      num_key_value_heads: null,
      rotary_pct: 1,
      tie_word_embeddings: false,
    });
    const { tensors } = productOf('lm_head', 10, 8);
    expect(open(neox, { target_modules: ['lm_head'] }, tensors).replaced).toEqual(['embed_out.weight']);
    const whole = { 'lm_head.weight': tensor(10, 8) };
    const saved = { target_modules: [], modules_to_save: ['lm_head'] };
    expect(open(neox, saved, whole).replaced).toEqual(['embed_out.weight']);
  });

  it('names of modules that are all excluded match', () => {
    const { tensors } = productOf('model.layers.1.mlp.up_proj', 12, 8);
    const names = { target_modules: ['up_proj', 'q_proj'], exclude_modules: '.*(\\.0\\..*|q_proj)' };
    expect(open(llama(), names, tensors).products.size).toBe(1);
  });
});
