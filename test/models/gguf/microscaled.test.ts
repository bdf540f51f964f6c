/** gpt-oss with experts in MXFP4, as a Hugging Face folder and as a GGUF file of the same codes. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openCheckpoint } from '../../../models/checkpoint.js';
import type { Json } from '../../../models/model/model.js';
import { microscaledIn } from '../../../models/quantized/mxfp4.js';
import { randomOf } from '../../fuzz/mutate.js';
import { GGUF_TYPES, ggufFile, type GgufTensor, type PlainTensor } from '../../support/gguf.js';
import { BlockWriter } from '../../support/ggufBlocks.js';
import { scores, SIZES, tensorsOf } from '../../support/ggufModels.js';
import { newerPairs, newerTensors } from '../../support/ggufNewer.js';
import { loadAll } from '../../support/loadTensors.js';
import { expectSame } from '../../support/numbers.js';
import { safetensorsOf } from '../../support/quantizedCheckpoints.js';
import { float, type StoredBytes } from '../../support/quantizeMatrix.js';
import { temporaryFolder, writeJson } from '../support.js';

const [EXPERTS, WIDTH] = [3, 64];
const JSON_OF_MODEL: Json = {
  ...{ ...SIZES, model_type: 'gpt_oss', hidden_size: WIDTH, intermediate_size: WIDTH, num_hidden_layers: 2 },
  ...{ num_local_experts: EXPERTS, num_experts_per_tok: 2, head_dim: 16, sliding_window: 4 },
  rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 16, truncate: false },
};
const PART = /^(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight$/;
const BIAS = /\.experts\.(gate|up|down)_proj\.bias$/;

const writer = new BlockWriter('MXFP4', randomOf(17));
const TENSORS = tensorsOf(JSON_OF_MODEL, 3, (rows, columns) => writer.draw(rows, columns));

/** Codes of a block of GGUF in their order. */
const codesOf = (block: Buffer): readonly number[] => [
  ...block.subarray(1).map((byte) => byte & 15),
  ...block.subarray(1).map((byte) => byte >> 4),
];

/** All matrices of a layer, gates and ups in turns, as the published folders have them. */
function folderOf(tensors: readonly PlainTensor[]): string {
  const stored = new Map<string, StoredBytes>();
  const find = (name: string): PlainTensor => tensors.find((tensor) => tensor.name === name)!;
  const put = (stack: string, values: readonly Float64Array[]): void => {
    const rows = values.map((row) => writer.encode(row, 'MXFP4'));
    const blocks = rows.flatMap((row) =>
      Array.from({ length: WIDTH / 32 }, (_, i) => row.subarray(17 * i, 17 * i + 17)),
    );
    const shape = [EXPERTS, rows.length / EXPERTS, WIDTH / 32];
    const pairs = blocks.flatMap((block) => {
      const codes = codesOf(block);
      return Array.from({ length: 16 }, (_, i) => codes[2 * i]! + 16 * codes[2 * i + 1]!);
    });
    stored.set(`${stack}_blocks`, { dtype: 'U8', shape: [...shape, 16], bytes: Uint8Array.from(pairs) });
    stored.set(`${stack}_scales`, { dtype: 'U8', shape, bytes: Uint8Array.from(blocks, (block) => block[0]!) });
  };
  const inTurns = (a: Float64Array, b: Float64Array, length: number): readonly Float64Array[] =>
    Array.from({ length: a.length / length }, (_, i) =>
      [a, b].map((x) => x.slice(i * length, (i + 1) * length)),
    ).flat();
  const rowsOf = (values: Float64Array): readonly Float64Array[] =>
    Array.from({ length: values.length / WIDTH }, (_, i) => values.slice(i * WIDTH, (i + 1) * WIDTH));
  for (const { name, shape, values } of tensors) {
    const [, layer] = PART.exec(name) ?? [];
    const [, bias] = BIAS.exec(name) ?? [];
    if (layer === undefined && bias === undefined) stored.set(name, float('F32', shape, values));
    else if (bias === 'down') stored.set(name.replace(/\.bias$/, '_bias'), float('F32', shape, values));
    else if (bias === 'gate') {
      const pairs = inTurns(values, find(name.replace('gate', 'up')).values, 1).flatMap((each) => [...each]);
      const whole = name.replace('gate_proj.bias', 'gate_up_proj_bias');
      stored.set(whole, float('F32', [EXPERTS, 2 * WIDTH], Float64Array.from(pairs)));
    } else if (name.includes('.experts.0.gate_proj')) {
      const all = Array.from({ length: EXPERTS }, (_, i) => i);
      const valuesOf = (i: number, matrix: string) => find(`${layer}.${i}.${matrix}_proj.weight`).values;
      const inner = all.flatMap((i) => inTurns(valuesOf(i, 'gate'), valuesOf(i, 'up'), WIDTH));
      put(`${layer}.gate_up_proj`, inner);
      put(
        `${layer}.down_proj`,
        all.flatMap((i) => rowsOf(valuesOf(i, 'down'))),
      );
    }
  }
  const dir = temporaryFolder();
  const quantization = { quant_method: 'mxfp4', modules_to_not_convert: ['model.layers.*.self_attn', 'lm_head'] };
  writeJson(dir, 'config.json', { ...JSON_OF_MODEL, quantization_config: quantization });
  writeJson(dir, 'tokenizer.json', {});
  writeFileSync(join(dir, 'model.safetensors'), safetensorsOf(stored));
  return dir;
}

/** `change`: of the tensors of the file. */
function fileOf(change: (tensor: GgufTensor) => GgufTensor = (tensor) => tensor): string {
  const tensors = newerTensors(TENSORS, JSON_OF_MODEL).map((tensor) => {
    const matrix = /^blk\.(\d+)\.ffn_(gate|up|down)_exps\.weight$/.exec(tensor.name);
    if (matrix === null) return tensor;
    const own = TENSORS.filter(({ name }) => {
      const [, layer, , kind] = PART.exec(name) ?? [];
      return layer?.includes(`.${matrix[1]}.`) === true && kind === matrix[2];
    });
    return {
      ...tensor,
      type: GGUF_TYPES.MXFP4,
      bytes: Buffer.concat(own.map(({ values }) => writer.encode(values, 'MXFP4'))),
    };
  });
  const path = join(temporaryFolder(), 'model.gguf');
  writeFileSync(path, ggufFile({ pairs: newerPairs(JSON_OF_MODEL, TENSORS), tensors: tensors.map(change) }));
  return path;
}

it('has the log-probabilities of the folder, to the bit, and every tensor', async () => {
  const [copy, plain] = [openCheckpoint(fileOf()), openCheckpoint(folderOf(TENSORS))];
  expect([...copy.quantized!.schemes]).toEqual([
    ['GGUF MXFP4', { matrices: 2 * EXPERTS * 3, elements: 2 * EXPERTS * 3 * WIDTH * WIDTH }],
  ]);
  const [got, want] = [await loadAll(copy), await loadAll(plain)];
  expect(new Set(got.keys())).toEqual(new Set(want.keys()));
  for (const [name, values] of got) expect(values, name).toEqual(want.get(name));
  // Kernels of Hopper read the same matrices in 4 bits.
  const inFour = microscaledIn(copy.tensors);
  expect(inFour.size).toBe(2 * EXPERTS * 3);
  expect(inFour).toEqual(microscaledIn(plain.tensors));
  const all = scores(copy);
  expect(new Set(all).size).toBeGreaterThan(5);
  expectSame(all, scores(plain));
});

it('is refused where rows are no whole blocks, and where bytes are missing', () => {
  const isDown = ({ name }: GgufTensor): boolean => name === 'blk.0.ffn_down_exps.weight';
  const narrow = fileOf((tensor) => (isDown(tensor) ? { ...tensor, shape: [EXPERTS, 128, 48] } : tensor));
  expect(() => openCheckpoint(narrow)).toThrow(/"blk.0.ffn_down_exps.weight" is MXFP4 with rows of 48: expected mult/);
  const wide = fileOf((tensor) => (isDown(tensor) ? { ...tensor, shape: [EXPERTS, WIDTH + 1, WIDTH] } : tensor));
  expect(() => openCheckpoint(wide)).toThrow(/overlaps tensor "blk.0.ffn_down_exps.weight"|truncated/);
});
