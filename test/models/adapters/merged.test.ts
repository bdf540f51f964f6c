/** What each field of an adapter makes of the tensors of its base, against plain sums in float64. */
import { describe, expect, it } from 'vitest';
import { withAdapter } from '../../../models/adapters/overlay.js';
import { base, llama, merged, open, plus, tensor, type Tensor, times } from './world.js';

const Q = 'model.layers.0.self_attn.q_proj';
const layers = (make: (path: string) => Record<string, Tensor>, module: string): Record<string, Tensor> =>
  Object.assign({}, ...[0, 1].map((layer) => make(`model.layers.${layer}.${module}`))) as Record<string, Tensor>;
const product =
  (outputs: number, inputs: number, rank = 2) =>
  (path: string): Record<string, Tensor> => ({
    [`${path}.lora_A.weight`]: tensor(rank, inputs),
    [`${path}.lora_B.weight`]: tensor(outputs, rank),
  });

function near(found: readonly number[], wanted: readonly number[]): void {
  expect(found).toHaveLength(wanted.length);
  for (const [i, value] of wanted.entries()) expect(Math.abs(found[i]! - value), `at ${i}`).toBeLessThan(1e-6);
}

describe('what an adapter makes of its base', () => {
  const of = llama();
  const qs = layers(product(8, 8), 'self_attn.q_proj');
  const delta = times(qs[`${Q}.lora_B.weight`]!, qs[`${Q}.lora_A.weight`]!);

  it('adds products by alpha / r, alpha / √r and patterns', () => {
    const scales = [
      [{}, 3],
      [{ use_rslora: true }, 6 / Math.sqrt(2)],
      [{ alpha_pattern: { 'layers\\.[0-1]\\.self_attn\\.q_proj': 1 } }, 0.5],
      [{ r: 4, rank_pattern: { 'q.proj': 2 } }, 3],
      [{ alpha_pattern: { '^q_proj': 100 } }, 3],
    ] as const;
    for (const [config, scale] of scales) {
      const adapter = open(of, { target_modules: ['q_proj'], ...config }, qs);
      near(merged(of, adapter, `${Q}.weight`), plus(of.values[`${Q}.weight`]!, scale, delta));
    }
  });

  it('finds targets by pattern, by layer, by type of model and as all matrices', () => {
    const count = (config: object, tensors: Record<string, Tensor>): number =>
      open(of, { ...config }, tensors).products.size;
    const first = Object.fromEntries(Object.entries(qs).filter(([name]) => name.includes('.0.')));
    expect(count({ target_modules: '.*\\.0\\.self_attn\\.(?!k)q_proj' }, first)).toBe(1);
    expect(count({ target_modules: ['q_proj'], layers_to_transform: 0, layers_pattern: 'layers' }, first)).toBe(1);
    expect(count({ target_modules: ['q_proj'], exclude_modules: '.*\\.1\\..*' }, first)).toBe(1);
    expect(count({}, { ...qs, ...layers(product(4, 8), 'self_attn.v_proj') })).toBe(4);
    const all = { q: [8, 8], k: [4, 8], v: [4, 8], o: [8, 8] } as const;
    const rest = { gate: [12, 8], up: [12, 8], down: [8, 12] } as const;
    const every = Object.assign(
      {},
      ...Object.entries(all).map(([name, [o, i]]) => layers(product(o, i), `self_attn.${name}_proj`)),
      ...Object.entries(rest).map(([name, [o, i]]) => layers(product(o, i), `mlp.${name}_proj`)),
    ) as Record<string, Tensor>;
    expect(count({ target_modules: 'all-linear' }, every)).toBe(14);
  });

  it('gives rows their magnitudes', () => {
    const tensors = {
      ...qs,
      ...layers((path) => ({ [`${path}.lora_magnitude_vector`]: tensor(8) }), 'self_attn.q_proj'),
    };
    const adapter = open(of, { target_modules: ['q_proj'], use_dora: true }, tensors);
    const sums = plus(of.values[`${Q}.weight`]!, 3, delta);
    const wanted = sums.map((value, i) => {
      const row = sums.slice(i - (i % 8), i - (i % 8) + 8);
      return (value * tensors[`${Q}.lora_magnitude_vector`]!.data[Math.floor(i / 8)]!) / Math.hypot(...row);
    });
    expect(adapter.products.size).toBe(0);
    near(merged(of, adapter, `${Q}.weight`), wanted);
  });

  it('changes embeddings, heads, rows of tokens and whole modules', () => {
    const [a, b] = [tensor(2, 10), tensor(8, 2)];
    const table = of.values['model.embed_tokens.weight']!;
    const head = product(10, 8)('lm_head');
    const embed = { 'model.embed_tokens.lora_embedding_A': a, 'model.embed_tokens.lora_embedding_B': b };
    const adapter = open(of, { target_modules: ['embed_tokens', 'lm_head'] }, { ...embed, ...head });
    const turned = times(b, a);
    near(
      merged(of, adapter, 'model.embed_tokens.weight'),
      plus(
        table,
        3,
        Array.from({ length: 10 }, (_, t) => turned.map((row) => row[t]!)),
      ),
    );
    expect([...adapter.replaced].sort()).toEqual(['lm_head.weight', 'model.embed_tokens.weight']);
    const rows = tensor(2, 8);
    const tokens = { target_modules: ['q_proj'], trainable_token_indices: [7, 3] };
    const some = merged(
      of,
      open(of, tokens, { ...qs, 'model.embed_tokens.token_adapter.trainable_tokens_delta': rows }),
      'model.embed_tokens.weight',
    );
    near(some.slice(7 * 8, 8 * 8), [...rows.data.slice(0, 8)]);
    near(some.slice(3 * 8, 4 * 8), [...rows.data.slice(8)]);
    near(some.slice(0, 24), [...table.data.slice(0, 24)]);
    const whole = tensor(8);
    near(
      merged(
        of,
        open(
          of,
          { target_modules: ['q_proj'], modules_to_save: ['model.norm'] },
          { ...qs, 'model.norm.weight': whole },
        ),
        'model.norm.weight',
      ),
      [...whole.data],
    );
  });

  it('parts a tied head, unless it is told not to', () => {
    const tied = llama({ tie_word_embeddings: true });
    const embed = {
      'model.embed_tokens.lora_embedding_A': tensor(2, 10),
      'model.embed_tokens.lora_embedding_B': tensor(8, 2),
    };
    const parted = withAdapter(tied, open(tied, { target_modules: ['embed_tokens'] }, embed));
    expect(parted.tensors.get('lm_head.weight')).toMatchObject({ file: tied.files[0], name: 'lm_head.weight' });
    expect(parted.tensors.get('model.embed_tokens.weight')).not.toMatchObject({ file: tied.files[0] });
    const kept = withAdapter(tied, open(tied, { target_modules: ['embed_tokens'], ensure_weight_tying: true }, embed));
    expect(kept.tensors.has('lm_head.weight')).toBe(false);
    expect(new Set([parted.fingerprint(), kept.fingerprint(), tied.fingerprint()]).size).toBe(3);
    const head = open(tied, { target_modules: ['lm_head'] }, product(10, 8)('lm_head'));
    expect(head.replaced).toEqual(['lm_head.weight']);
  });

  it('gives biases to layers that have none', () => {
    const biases = layers((path) => ({ [`${path}.lora_B.bias`]: tensor(8) }), 'self_attn.q_proj');
    const only = { target_modules: ['q_proj'], lora_bias: true, layers_to_transform: [0] };
    const first = Object.fromEntries(Object.entries({ ...qs, ...biases }).filter(([name]) => name.includes('.0.')));
    const adapter = open(of, only, first);
    expect([...adapter.replaced].sort()).toEqual([
      'model.layers.0.self_attn.q_proj.bias',
      'model.layers.1.self_attn.q_proj.bias',
    ]);
    near(
      merged(of, adapter, `${Q}.bias`),
      [...biases[`${Q}.lora_B.bias`]!.data].map((value) => 3 * value),
    );
    near(
      merged(of, adapter, 'model.layers.1.self_attn.q_proj.bias'),
      Array.from({ length: 8 }, () => 0),
    );
    expect(withAdapter(of, adapter).tensors.has(`${Q}.bias`)).toBe(true);
  });

  it('makes a classifier of a language model', () => {
    const score = tensor(3, 8);
    const adapter = open(of, { target_modules: ['q_proj'], task_type: 'SEQ_CLS' }, { ...qs, 'score.weight': score });
    const adapted = withAdapter(of, adapter);
    expect(adapted.config).toMatchObject({
      architecture: 'LlamaForSequenceClassification',
      head: { layers: [{ rows: 3 }] },
    });
    expect([...adapted.tensors.keys()].filter((name) => !name.includes('layers'))).toEqual([
      'model.embed_tokens.weight',
      'model.norm.weight',
      'score.weight',
    ]);
    near(merged(of, adapter, 'score.weight'), [...score.data]);
  });

  it('sends experts of one parameter to their matrices, of both generations of files', () => {
    const moe = base('mixtral', 'MixtralForCausalLM', {
      num_local_experts: 3,
      num_experts_per_tok: 2,
      tie_word_embeddings: false,
    });
    const experts = 'mlp.experts';
    const both = layers(
      (path) => ({
        [`${path}.lora_A.weight`]: tensor(6, 12),
        [`${path}.lora_B.weight`]: tensor(8, 6),
        [`${path}.base_layer.lora_A.weight`]: tensor(12, 8),
        [`${path}.base_layer.lora_B.weight`]: tensor(24, 12),
      }),
      experts,
    );
    const config = {
      target_modules: [],
      target_parameters: ['gate_up_proj', 'down_proj'],
      rank_pattern: { '.*\\.gate_up_proj': 4 },
      alpha_pattern: { '.*\\.gate_up_proj': 12 },
    };
    const adapter = open(moe, config, both);
    expect(adapter.changes.size).toBe(2 * 3 * 3);
    const path = 'model.layers.1.mlp.experts';
    const [a, b] = [both[`${path}.base_layer.lora_A.weight`]!.data, both[`${path}.base_layer.lora_B.weight`]!.data];
    const name = 'model.layers.1.block_sparse_moe.experts.2.w3.weight';
    const up = Array.from({ length: 12 }, (_, o) =>
      Array.from({ length: 8 }, (__, i) =>
        [0, 1, 2, 3].reduce((sum, r) => sum + b[(12 + o) * 12 + r * 3 + 2]! * a[(2 * 4 + r) * 8 + i]!, 0),
      ),
    );
    near(merged(moe, adapter, name), plus(moe.values[name]!, 3, up));
    const old = Object.assign(
      {},
      ...[0, 1].flatMap((layer) =>
        [0, 1, 2].map((expert) => product(8, 12)(`model.layers.${layer}.block_sparse_moe.experts.${expert}.w2`)),
      ),
    ) as Record<string, Tensor>;
    expect(open(moe, { target_modules: ['w2'] }, old).changes.size).toBe(6);
  });
});
