/**
 * DeepSeek as it is published, in FP8 with a scale for each block of 128 × 128, and in other codes: in f32 the answers
 * of the same numbers stored as f32, bit for bit, and those of float64 on the weights that the checkpoint means.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { openOrCompile } from '../../driver/compile/open.js';
import { buildGraph } from '../../driver/functions.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import type { MicroBatch, ScoredRows } from '../../evaluate/scorer.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { Json } from '../../models/model/model.js';
import { environment } from '../e2e/support.js';
import { temporaryFolder, writeJson } from '../models/support.js';
import { randomTrees } from '../support/familyTrees.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { float } from '../support/quantizeMatrix.js';
import { SILENT } from '../support/silent.js';

const VOCAB = 300;
/** 416 rows of kv_b_proj are three blocks and a part, of which heads have no whole ones. */
const CONFIG: Json = {
  ...{ architectures: ['DeepseekV3ForCausalLM'], model_type: 'deepseek_v3', torch_dtype: 'bfloat16' },
  ...{ hidden_size: 160, intermediate_size: 192, num_hidden_layers: 2, num_attention_heads: 4, vocab_size: VOCAB },
  ...{ q_lora_rank: 64, kv_lora_rank: 160, qk_nope_head_dim: 64, qk_rope_head_dim: 16, v_head_dim: 40 },
  ...{ first_k_dense_replace: 1, n_routed_experts: 4, num_experts_per_tok: 2, n_group: 2, topk_group: 1 },
  ...{ moe_intermediate_size: 64, max_position_embeddings: 256, tie_word_embeddings: false },
};
const TOKENS = 48;
const trees = randomTrees(5, TOKENS, VOCAB);
const batch: MicroBatch = {
  tokens: Int32Array.from(trees.tokens),
  position: Int32Array.from(trees.position),
  subtreeEnd: Int32Array.from(trees.subtreeEnd),
  row: Int32Array.from(trees.row),
  target: Int32Array.from(trees.target),
};

async function score(model: string): Promise<{ readonly checkpoint: Checkpoint; readonly rows: ScoredRows }> {
  const request = { model, init: { kind: 'checkpoint' }, precision: 'f32', target: 'cpu', batchTokens: 96 } as const;
  const { checkpoint, model: compiled } = await openOrCompile(request, detectMachine(), SILENT);
  const options = { threads: 1, devices: [0], rebuild: String };
  const executor = await compiled.target.devices.open(checkpoint, compiled, options, SILENT);
  const rows = scoredRows(await executor.call('score', scoreInputs(batch, executor)));
  await executor.close();
  return { checkpoint, rows };
}

describe('latent attention of a quantized checkpoint', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it.each(['FP8 in blocks of 128', 'compressed int4', 'FP8, static'])('%s', async (name) => {
    const format = FORMATS[name]!;
    const { tensors, meant } = quantizedTensors(CONFIG, format.write, 3);
    const [dir, plain] = [temporaryFolder(), temporaryFolder()];
    writeQuantized(dir, CONFIG, format, safetensorsOf(tensors));
    const wide = [...meant].map(
      ([tensor, { shape, values }]) => [tensor, float('F32', shape, Float64Array.from(values))] as const,
    );
    writeJson(plain, 'config.json', CONFIG);
    const own = new Set([...tensors.keys()].map((tensor) => tensor.replace(/\.weight_[a-z_]+$|\.qweight$/, '.weight')));
    writeFileSync(join(plain, 'model.safetensors'), safetensorsOf(new Map(wide.filter(([tensor]) => own.has(tensor)))));
    const [{ checkpoint, rows }, wanted] = [await score(dir), await score(plain)];
    expect(rows).toEqual(wanted.rows);

    const weights = new Map([...meant].map(([tensor, { values }]) => [tensor, Float64Array.from(values)]));
    const params = new Map(Object.entries(trees).map(([input, list]) => [input, Float64Array.from(list)]));
    const sizes = { T: TOKENS, R: trees.row.length };
    const [logProb] = interpretGraph(buildGraph(checkpoint), { sizes, weights, params });
    rows.logProb.forEach((x, i) =>
      expect(Math.abs(x - logProb!.data[i]!)).toBeLessThan(0.01 + 1e-4 * Math.abs(logProb!.data[i]!)),
    );

    // On Hopper matrices of FP8 may stay so, but for those of heads.
    const hopper = { model: dir, init: { kind: 'checkpoint' }, precision: 'auto', target: 'cuda:sm_90a' } as const;
    const { model } = await openOrCompile({ ...hopper, batchTokens: 64 }, detectMachine(), SILENT);
    const ofHeads = model.plan.weights.filter(({ sources }) => sources.some(({ tensor }) => /kv_b_proj/.test(tensor)));
    expect(ofHeads).toHaveLength(4);
    expect(new Set(ofHeads.map((weight) => weight.format))).toEqual(new Set(['bf16']));
  });
});
