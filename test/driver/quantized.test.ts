/**
 * Quantized checkpoints computed in f32: the answers of the same numbers stored as f32, bit for bit, and those of
 * float64 on the weights that the checkpoint means.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { describeDecoded, describeQuantized } from '../../cli/inspectText.js';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { buildGraph } from '../../driver/functions.js';
import { openOrCompile } from '../../driver/compile/open.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import type { MicroBatch, ScoredRows } from '../../evaluate/scorer.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { Checkpoint } from '../../models/checkpoint.js';
import type { Json } from '../../models/model/model.js';
import { CONFIG } from '../e2e/smallModel.js';
import { environment } from '../e2e/support.js';
import { temporaryFolder, writeJson } from '../models/support.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { float, gptqWriter } from '../support/quantizeMatrix.js';
import { randomTrees } from '../support/familyTrees.js';
import { SILENT } from '../support/silent.js';

/** The kernels of end-to-end tests, which are compiled once in a run of tests. */
const SMALL: Json = { ...CONFIG, tie_word_embeddings: false };
const TOKENS = 48;
const trees = randomTrees(5, TOKENS, CONFIG.vocab_size);
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

describe('a quantized checkpoint in f32', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  // All formats have their values checked in test/models/quantized.test.ts.
  it.each(['gptq by activation', 'awq', 'FP8 in blocks'])('%s', async (name) => {
    const format = FORMATS[name]!;
    const { tensors, meant } = quantizedTensors(SMALL, format.write, 3);
    const [dir, plain] = [temporaryFolder(), temporaryFolder()];
    writeQuantized(dir, SMALL, format, safetensorsOf(tensors));
    const wide = [...meant].map(([name, { shape, values }]) => [name, float('F32', shape, Float64Array.from(values))]);
    writeJson(plain, 'config.json', SMALL);
    writeFileSync(join(plain, 'model.safetensors'), safetensorsOf(new Map(wide as [string, never][])));
    const [{ checkpoint, rows }, wanted] = [await score(dir), await score(plain)];
    expect(rows).toEqual(wanted.rows);

    const weights = new Map([...meant].map(([name, { values }]) => [name, Float64Array.from(values)]));
    const params = new Map(Object.entries(trees).map(([name, list]) => [name, Float64Array.from(list)]));
    const sizes = { T: TOKENS, R: trees.row.length };
    const [logProb] = interpretGraph(buildGraph(checkpoint), { sizes, weights, params });
    rows.logProb.forEach((x, i) =>
      expect(Math.abs(x - logProb!.data[i]!)).toBeLessThan(0.01 + 1e-4 * Math.abs(logProb!.data[i]!)),
    );
    if (name === 'gptq by activation')
      expect(describeDecoded(checkpoint, 'int4').map(([, text]) => text)).toEqual([
        '12 matrices of 4 bits: groups of 32 columns of 64',
        '2 matrices of 4 bits: groups of 32 columns of 96',
      ]);
    const [first, second] = describeQuantized(checkpoint);
    expect(first![1]).toMatch(/^14 matrices: .* \(\d\d\.\d % of the parameters\)$/);
    expect(second![1]).toBe('matrices of floats: model.embed_tokens, lm_head');
  });
});

describe('a checkpoint of 4 bits on Hopper', () => {
  const compiled = (model: string, precision: 'auto' | 'int4') =>
    openOrCompile(
      { model, init: { kind: 'checkpoint' }, precision, target: 'cuda:sm_90a', batchTokens: 64 },
      detectMachine(),
      SILENT,
    );

  it('is decoded unless --quantize int4 keeps its matrices, and only such a checkpoint takes the flag', async () => {
    const model = temporaryFolder();
    const heads = { num_attention_heads: 2, num_key_value_heads: 2, head_dim: 64 };
    const config = { ...SMALL, ...heads, hidden_size: 128, intermediate_size: 128 };
    const write = gptqWriter({ bits: 4, size: 128, isSymmetric: true, dtype: 'F16', version: 1 });
    const format = {
      config: { quant_method: 'gptq', bits: 4, group_size: 128, desc_act: false, sym: true },
      write,
    };
    writeQuantized(model, config, format, safetensorsOf(quantizedTensors(config, write, 5).tensors));
    const [decoded, kept] = [await compiled(model, 'auto'), await compiled(model, 'int4')];
    expect(describeDecoded(decoded.checkpoint, 'bf16')).toEqual([
      ['decoded', '14 matrices of 4 bits: only --quantize int4 on Hopper (sm_90a) multiplies 4 bits'],
    ]);
    expect(describeDecoded(kept.checkpoint, 'int4')).toEqual([]);
    const formatsOf = ({ model: { plan } }: typeof kept): ReadonlySet<string> =>
      new Set(plan.weights.map((weight) => weight.format));
    expect(formatsOf(decoded).has('u4')).toBe(false);
    expect(formatsOf(kept).has('u4')).toBe(true);
    expect(kept.model.target.compiler.arithmetic(kept.model.device)).toBe('int4');
    await expect(compiled(join(import.meta.dirname, '../../models/demo'), 'int4')).rejects.toThrow(
      /this checkpoint has none that kernels read so/,
    );
  });
});
