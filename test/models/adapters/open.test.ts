/** The adapters that PEFT wrote, opened for their bases. Needs the data folder beside the repository. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openAdapter } from '../../../models/adapters/open.js';
import { openCheckpoint } from '../../../models/checkpoint.js';

const CHECKPOINTS = join(import.meta.dirname, '..', '..', '..', '..', 'shared', 'checkpoints');

/** Kinds of matrices in all layers. */
const kinds = (names: Iterable<string>): string =>
  [...new Set([...names].map((name) => name.replace(/^(?:model|gpt_neox)\.layers\.\d+\.|\.weight$/g, '')))]
    .sort()
    .join(' ');

const ATTENTION = 'self_attn.k_proj self_attn.o_proj self_attn.q_proj self_attn.v_proj';
const ALL = `mlp.down_proj mlp.gate_proj mlp.up_proj ${ATTENTION}`;

const CASES: readonly (readonly [name: string, products: number, rides: string, replaced: string, scales: number[]])[] =
  [
    ['gemma2-all', 28, ALL, '', [2]],
    [
      'gpt-neox-bias',
      16,
      'attention.dense attention.k_proj attention.q_proj attention.v_proj',
      'attention.dense.bias attention.k_proj.bias attention.q_proj.bias attention.v_proj.bias',
      [2],
    ],
    ['mistral-all-rs', 28, ALL, '', [4]],
    ['mistral-embed', 4, 'self_attn.q_proj', 'lm_head model.embed_tokens', [2]],
    ['mistral-layers', 6, 'mlp.gate_proj mlp.up_proj self_attn.k_proj', '', [2]],
    ['mistral-qv', 8, 'self_attn.q_proj self_attn.v_proj', '', [2]],
    ['mistral-regex-layers', 4, 'mlp.down_proj self_attn.o_proj', '', [1]],
    ['mistral-save', 8, 'self_attn.o_proj self_attn.q_proj', 'lm_head model.embed_tokens', [2]],
    ['mixtral-attention', 16, ATTENTION, '', [2]],
    ['phi3-fused', 28, ALL, '', [2]],
    ['qwen2-dora', 0, '', 'mlp.down_proj self_attn.q_proj self_attn.v_proj', []],
    ['qwen2-patterns', 28, ALL, '', [2, 5, 8]],
  ];

describe.skipIf(!existsSync(join(CHECKPOINTS, 'adapters')))('adapters of PEFT', () => {
  it.each(CASES)('%s', (name, count, rides, replaced, scales) => {
    const dir = join(CHECKPOINTS, 'adapters', name);
    const { base_model_name_or_path: base } = JSON.parse(readFileSync(join(dir, 'adapter_config.json'), 'utf8')) as {
      base_model_name_or_path: string;
    };
    const adapter = openAdapter(dir, openCheckpoint(join(CHECKPOINTS, base)));
    expect(adapter.products.size).toBe(count);
    expect(kinds(adapter.products.keys())).toBe(rides);
    expect(kinds(adapter.replaced)).toBe(replaced);
    expect([...new Set([...adapter.products.values()].map(({ scale }) => scale))].sort((a, b) => a - b)).toEqual(
      scales,
    );
    for (const { rank, inputs, outputs, read } of adapter.products.values()) {
      const { a, b } = read();
      expect([a.length, b.length]).toEqual([rank * inputs, outputs * rank]);
    }
    expect(adapter.hash).toMatch(/^[0-9a-f]{64}$/);
  });
});
