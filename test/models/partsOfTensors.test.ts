/** Checkpoints whose tensors are not those of the graph one by one: parts of tensors. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';

const { architectures: _, ...PLAIN } = SMALL_CONFIG as Json;
const SIZES = { ...PLAIN, num_key_value_heads: null, num_attention_heads: 2, hidden_size: 8, head_dim: 8 };
const NEOX = { ...SIZES, model_type: 'gpt_neox', rotary_pct: 0.5 };
const GEMMA = { ...SIZES, model_type: 'gemma', num_key_value_heads: 1, tie_word_embeddings: true };

/** A checkpoint of `config`, in f32. */
function folder(config: Json): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', config);
  const tensors = describeModel(config, 'config.json').tensors.map(({ name, shape }) => [name, shape] as const);
  const { header, size } = layOut(tensors);
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, size));
  return dir;
}

describe('parts of a tensor', () => {
  it('are places in its file: for each head its rows', () => {
    const { tensors } = openCheckpoint(folder(NEOX));
    const at = (name: string) => tensors.get(`gpt_neox.layers.1.attention.${name}`);
    const [q, k, v] = ['q_proj.weight', 'k_proj.weight', 'v_proj.weight'].map(at);
    if (q?.kind !== 'file' || k?.kind !== 'file' || v?.kind !== 'file') throw new Error('parts are in no file');
    const rowBytes = q.byteLength / q.shape[0]!;
    expect(q.shape).toEqual([16, 8]);
    expect([k.offset - q.offset, v.offset - q.offset]).toEqual([8 * rowBytes, 16 * rowBytes]);
    for (const part of [q, k, v]) expect(part).toMatchObject({ blocks: { rows: 8, stride: 24 }, shape: [16, 8] });
    expect(at('k_proj.bias')).toMatchObject({ shape: [16], blocks: { rows: 8, stride: 24 } });
    expect(at('query_key_value.weight')).toBeUndefined();
  });

  it('are made up one by one where weights are', () => {
    const { tensors } = describeRandomCheckpoint(folder(NEOX), 3);
    const parts = [...tensors.values()].filter(({ name }) => /layers\.0\.attention\.._proj\.weight/.test(name));
    expect(parts.map(({ shape }) => shape)).toEqual([
      [16, 8],
      [16, 8],
      [16, 8],
    ]);
    expect(new Set(parts.map((part) => (part.kind === 'random' ? part.seed : 0n))).size).toBe(3);
  });

  it('are of a tensor that is missing or has another shape', () => {
    const dir = folder(NEOX);
    writeJson(dir, 'config.json', { ...NEOX, num_attention_heads: 4 });
    expect(userError(() => openCheckpoint(dir)).message).toContain(
      'gpt_neox.layers.{0–2}.attention.query_key_value.weight: shape [48, 8], but config.json requires [96, 8]',
    );
  });
});

it('norm weights that are kept as differences from 1 are 0 where weights are made up', () => {
  const norm = describeRandomCheckpoint(folder(GEMMA), 1).tensors.get('model.norm.weight');
  expect(norm).toMatchObject({ kind: 'constant', value: 0 });
});
