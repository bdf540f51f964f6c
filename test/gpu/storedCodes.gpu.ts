/**
 * Checkpoints of 4 bits and of FP8 on a real device: codes that stay as they are stored give nearly the scores of
 * decoded matrices, and the same bits alone, in company, and where a text is written token by token.
 */
import assert from 'node:assert/strict';
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Engine } from '../../engine/engine.js';
import { awqWriter, gptqWriter, plainWriter } from '../support/quantizeMatrix.js';
import {
  quantizedTensors,
  safetensorsOf,
  writeQuantized,
  type QuantizedFormat,
} from '../support/quantizedCheckpoints.js';
import { DEMO } from './command.js';
import { deviceHere } from './device.js';
import { temporaryFolder } from './support.js';
import { loadOnDevice, randomTokens, scoresOf, stepperFor, write } from './sequences.js';

const { arch, skip } = await deviceHere();

const CONFIG = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  torch_dtype: 'bfloat16',
  hidden_size: 512,
  intermediate_size: 1024,
  num_hidden_layers: 3,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 64,
  vocab_size: 2000,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  tie_word_embeddings: false,
};

interface Stored extends QuantizedFormat {
  readonly precision: 'int4' | 'auto';
  readonly codes: 'u4' | 'e4m3';
  /** Of log-probabilities: mean and largest distance from decoded matrices. */
  readonly mean: number;
  readonly largest: number;
}

const FORMATS: Readonly<Record<string, Stored>> = {
  'GPTQ, groups of 128': {
    config: { quant_method: 'gptq', bits: 4, group_size: 128, desc_act: false, sym: false },
    write: gptqWriter({ bits: 4, size: 128, isSymmetric: false, dtype: 'F16', version: 1 }),
    ...{ precision: 'int4', codes: 'u4', mean: 0.05, largest: 0.5 },
  },
  'AWQ, groups of 64': {
    config: { quant_method: 'awq', bits: 4, group_size: 64, zero_point: true, version: 'gemm' },
    write: awqWriter({ bits: 4, size: 64, isSymmetric: false, dtype: 'F16' }),
    ...{ precision: 'int4', codes: 'u4', mean: 0.05, largest: 0.5 },
  },
  // Rows of activations are rounded to FP8 as well.
  'FP8 with scales of rows': {
    config: { quant_method: 'fbgemm_fp8' },
    write: plainWriter({
      code: 'F8_E4M3',
      block: 'row',
      dtype: 'F32',
      scale: 'weight_scale',
      shape: (rows) => [rows, 1],
    }),
    ...{ precision: 'auto', codes: 'e4m3', mean: 0.2, largest: 2 },
  },
};

describe('matrices in codes', { skip: arch === 'sm_90a' ? skip : 'they are decoded before Hopper' }, () => {
  for (const [name, format] of Object.entries(FORMATS))
    it(`${name}: as decoded, within the rounding of 16 bits; the same bits in any company`, async () => {
      const model = temporaryFolder();
      writeQuantized(model, CONFIG, format, safetensorsOf(quantizedTensors(CONFIG, format.write, 5).tensors));
      copyFileSync(join(DEMO, 'tokenizer.json'), join(model, 'tokenizer.json'));
      const request = { model, init: { kind: 'checkpoint' }, threads: 2 } as const;
      const texts = [3, 40, 130, 300].map((length, i) => randomTokens(77 + i, length));
      const kept = await loadOnDevice(request, { precision: format.precision });
      const formats = new Set(kept.model.plan.weights.map((weight) => weight.format));
      assert(formats.has(format.codes), `weights are ${[...formats].join(', ')}`);
      const generator = (): Engine => Engine.of(stepperFor(kept, {}));
      const together = await scoresOf(generator(), texts);
      for (const [i, text] of texts.entries()) assert.deepEqual(await scoresOf(generator(), [text]), [together[i]]);
      const written = await write(generator(), [{ prompt: texts[1]!, maxNewTokens: 20 }]);
      const { tokens, logProbs } = written[0]!;
      const whole = await scoresOf(generator(), [[...texts[1]!, ...tokens]], () => texts[1]!.length);
      assert.deepEqual(whole, [logProbs]);
      await kept.close();
      const decoded = await loadOnDevice(request, { precision: 'bf16' });
      const others = await scoresOf(Engine.of(stepperFor(decoded, {})), texts);
      await decoded.close();
      const errors = together.flatMap((own, i) => own.map((x, t) => Math.abs(x - others[i]![t]!)));
      const mean = errors.reduce((a, b) => a + b, 0) / errors.length;
      console.log(`${name}: ${errors.length} log-probabilities, mean distance ${mean.toFixed(4)} from decoded`);
      assert(mean < format.mean && Math.max(...errors) < format.largest, `largest distance ${Math.max(...errors)}`);
    });
});
