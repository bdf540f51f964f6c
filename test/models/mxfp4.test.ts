/** MXFP4 experts as gpt-oss is published: every number of them, and what is refused. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import type { Json } from '../../models/model/model.js';
import { seeded } from '../support/encodedSamples.js';
import { loadAll } from '../support/loadTensors.js';
import { safetensorsOf } from '../support/quantizedCheckpoints.js';
import { float, type StoredBytes } from '../support/quantizeMatrix.js';
import { temporaryFolder, userError, writeJson } from './support.js';

const [EXPERTS, HIDDEN, WIDTH] = [3, 64, 96];
const CONFIG: Json = {
  model_type: 'gpt_oss',
  hidden_size: HIDDEN,
  intermediate_size: WIDTH,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 32,
  vocab_size: 40,
  max_position_embeddings: 64,
  num_local_experts: EXPERTS,
  num_experts_per_tok: 2,
  rope_parameters: { rope_type: 'default', rope_theta: 10_000 },
  quantization_config: { quant_method: 'mxfp4', modules_to_not_convert: ['model.layers.*.self_attn', 'lm_head'] },
};
const LAYER = 'model.layers.0.mlp.experts';
const NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

interface Stack {
  readonly blocks: StoredBytes;
  readonly scales: StoredBytes;
  /** Of row `row` of an expert. */
  readonly rowOf: (expert: number, row: number) => readonly number[];
}

function stack(rows: number, k: number, seed: number): Stack {
  const next = seeded(seed);
  const bytes = Uint8Array.from({ length: (EXPERTS * rows * k) / 2 }, () => next(256));
  const scales = Uint8Array.from({ length: (EXPERTS * rows * k) / 32 }, () => 120 + next(8));
  const at = (i: number): number => {
    const byte = bytes[i >> 1]!;
    return NUMBERS[i % 2 === 0 ? byte % 16 : byte >> 4]! * 2 ** (scales[Math.floor(i / 32)]! - 127);
  };
  return {
    blocks: { dtype: 'U8', shape: [EXPERTS, rows, k / 32, 16], bytes },
    scales: { dtype: 'U8', shape: [EXPERTS, rows, k / 32], bytes: scales },
    rowOf: (expert, row) => Array.from({ length: k }, (_, i) => at((expert * rows + row) * k + i)),
  };
}

const [INNER, OUTER] = [stack(2 * WIDTH, HIDDEN, 1), stack(HIDDEN, WIDTH, 2)];

function write(change: (tensors: Map<string, StoredBytes>) => void = () => {}, config = CONFIG): string {
  const zeros = (shape: readonly number[]): StoredBytes =>
    float('BF16', shape, new Float64Array(shape.reduce((product, extent) => product * extent, 1)));
  const tensors = new Map<string, StoredBytes>([
    ...describeModel(CONFIG, 'config.json')
      .tensors.filter(({ name }) => !name.startsWith(LAYER))
      .map(({ name, shape }) => [name, zeros(shape)] as const),
    [`${LAYER}.gate_up_proj_blocks`, INNER.blocks],
    [`${LAYER}.gate_up_proj_scales`, INNER.scales],
    [`${LAYER}.gate_up_proj_bias`, zeros([EXPERTS, 2 * WIDTH])],
    [`${LAYER}.down_proj_blocks`, OUTER.blocks],
    [`${LAYER}.down_proj_scales`, OUTER.scales],
    [`${LAYER}.down_proj_bias`, zeros([EXPERTS, HIDDEN])],
  ]);
  change(tensors);
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', config);
  writeJson(dir, 'tokenizer.json', {});
  writeFileSync(join(dir, 'model.safetensors'), safetensorsOf(tensors));
  return dir;
}

const refusal = (change: (tensors: Map<string, StoredBytes>) => void, config?: Json): string =>
  userError(() => openCheckpoint(write(change, config))).message;

describe('experts in MXFP4', () => {
  it('are those of their blocks: gates and ups in turns', async () => {
    const checkpoint = openCheckpoint(write());
    expect([...checkpoint.quantized!.schemes]).toEqual([
      ['MXFP4, blocks of 32', { matrices: 2, elements: 3 * EXPERTS * WIDTH * HIDDEN }],
    ]);
    const loaded = await loadAll(checkpoint);
    const rows = (count: number, rowOf: (row: number) => readonly number[]): Float32Array =>
      Float32Array.from(Array.from({ length: count }, (_, row) => rowOf(row)).flat());
    for (let e = 0; e < EXPERTS; e++) {
      const got = (matrix: string): Float32Array | undefined => loaded.get(`${LAYER}.${e}.${matrix}.weight`);
      expect(got('gate_proj')).toEqual(rows(WIDTH, (row) => INNER.rowOf(e, 2 * row)));
      expect(got('up_proj')).toEqual(rows(WIDTH, (row) => INNER.rowOf(e, 2 * row + 1)));
      expect(got('down_proj')).toEqual(rows(HIDDEN, (row) => OUTER.rowOf(e, row)));
    }
  });

  it('have a scale that is a number, or the tensor is named', async () => {
    const scales = `${LAYER}.down_proj_scales`;
    const dir = write((all) => all.set(scales, { ...OUTER.scales, bytes: OUTER.scales.bytes.map(() => 255) }));
    await expect(loadAll(openCheckpoint(dir))).rejects.toThrow(
      /model\.safetensors: tensor ".*down_proj_scales": the scale of row \d+, column \d+ is no number$/,
    );
  });

  const told = 'model.layers.{0}.mlp.experts';
  const shaped = (tensor: StoredBytes, shape: readonly number[]): StoredBytes => ({ ...tensor, shape });
  it.each<[string, (tensors: Map<string, StoredBytes>) => void, string]>([
    ['scales', (all) => all.delete(`${LAYER}.down_proj_scales`), `${told}.down_proj_scales: missing`],
    ['codes', (all) => all.delete(`${LAYER}.gate_up_proj_blocks`), `${told}.gate_up_proj_blocks: missing`],
    [
      'the experts of config.json',
      (all) => all.set(`${LAYER}.down_proj_blocks`, shaped(OUTER.blocks, [1, 3 * HIDDEN, WIDTH / 32, 16])),
      `${told}.down_proj_blocks: shape [1, 192, 3, 16], but its configuration requires [3, 64, 3, 16]`,
    ],
    [
      'rows before blocks',
      (all) => all.set(`${LAYER}.gate_up_proj_blocks`, shaped(INNER.blocks, [EXPERTS, 2, 2 * WIDTH, 16])),
      'requires [3, 192, 2, 16]',
    ],
    [
      'a scale for each block',
      (all) => all.set(`${LAYER}.gate_up_proj_scales`, shaped(INNER.scales, [EXPERTS, 2, 2 * WIDTH])),
      'requires [3, 192, 2]',
    ],
    [
      'bytes',
      (all) => all.set(`${LAYER}.down_proj_blocks`, { ...OUTER.blocks, dtype: 'I8' }),
      'element type I8 is not supported; supported: U8',
    ],
    [
      'no second matrix',
      (all) => all.set(`${LAYER}.down_proj`, float('BF16', [3, WIDTH, HIDDEN], new Float64Array(3 * WIDTH * HIDDEN))),
      `${told}.down_proj: not a tensor of this model`,
    ],
  ])('need %s', (_what, change, message) => {
    expect(refusal(change)).toContain(message);
  });

  it('are refused where the configuration does not say so', () => {
    expect(refusal(() => {}, { ...CONFIG, quantization_config: undefined })).toContain('gate_up_proj');
  });
});
