/** Which matrices stay in MXFP4: those of experts that are stored so, where a GPU of Hopper computes in bf16. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { modelFunctions } from '../../driver/functions.js';
import { cudaNumerics } from '../../driver/targets/cudaDevice.js';
import type { Json } from '../../models/model/model.js';
import { describeRandomCheckpoint } from '../../models/randomCheckpoint.js';
import { lower } from '../../passes/runPasses.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-mx-'));
afterAll(() => rmSync(folder, { recursive: true }));
const CONFIG = {
  architectures: ['GptOssForCausalLM'],
  model_type: 'gpt_oss',
  torch_dtype: 'bfloat16',
  hidden_size: 128,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  num_local_experts: 3,
  num_experts_per_tok: 2,
  vocab_size: 100,
  max_position_embeddings: 64,
  quantization_config: { quant_method: 'mxfp4' },
};

/** Formats of the matrices that products read, and of how many experts each is. */
function formatsOf(changes: Json, isKept: boolean): readonly string[] {
  const path = join(folder, 'config.json');
  writeFileSync(path, JSON.stringify({ ...CONFIG, ...changes }));
  const numerics = cudaNumerics('bf16', undefined, isKept);
  const [score] = modelFunctions(describeRandomCheckpoint(path, 1), numerics, {}).functions;
  return lower(score!, numerics)
    .weights.filter(({ layout }) => layout !== 'rows')
    .map(({ layout, format, experts = 1 }) => `${layout} ${format} ${experts}`);
}

describe('keepMicroscaledWeights', () => {
  it('keeps the matrices of experts alone', () => {
    const formats = formatsOf({}, true);
    expect(new Set(formats.filter((each) => each.endsWith(' 3')))).toEqual(new Set(['microscaled mxfp4 3']));
    expect(new Set(formats.filter((each) => each.endsWith(' 1')))).toEqual(new Set(['kmajor bf16 1']));
  });
  it('keeps none where kernels read bf16, or the checkpoint stores it', () => {
    const all = [formatsOf({}, false), formatsOf({ quantization_config: null }, true)];
    for (const formats of all) expect(formats.filter((each) => !each.startsWith('kmajor bf16'))).toEqual([]);
  });
  it('decodes matrices whose rows are no whole blocks', () => {
    const formats = formatsOf({ intermediate_size: 96 }, true);
    const [first, ...others] = formats.filter((each) => each.endsWith(' 3'));
    expect(first).toBe('microscaled mxfp4 3');
    expect(others.at(-1)).toBe('kmajor bf16 3');
  });
});
