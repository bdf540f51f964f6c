/** What rounding costs inside of a small model, and the values that its interpreter reads. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type ErrorReport, type ErrorRequest, inspectError } from '../../commands/inspectError.js';
import { tensorValues } from '../../driver/tensorValues.js';
import type { TensorLocation } from '../../models/model/tensors.js';
import { ENCODINGS, sampleSource } from '../support/encodedSamples.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import type { StoredBytes } from '../support/quantizeMatrix.js';
import { CONFIG, safetensorsFile, type StoredTensor, tensorsOf, writeCheckpoint } from './smallModel.js';
import { ROOT, temporaryFolder } from './support.js';
import { thorough } from '../support/thorough.js';

const DEMO = join(ROOT, 'models', 'demo');
const SMALL = writeCheckpoint();
const folder = temporaryFolder();
const CONFIG_APART = { ...CONFIG, tie_word_embeddings: false };

/** A checkpoint of a quantized format, with `change` applied to its tensors. */
function stored(format: string, change: (tensors: ReadonlyMap<string, StoredBytes>) => void = () => undefined): string {
  const dir = writeCheckpoint({ weights: null });
  const { tensors } = quantizedTensors(CONFIG_APART, FORMATS[format]!.write, 3);
  change(tensors);
  writeQuantized(dir, CONFIG_APART, FORMATS[format]!, safetensorsOf(tensors));
  return dir;
}

/** A weight of the norm that is no number. */
const withNan = (tensor: StoredTensor): StoredTensor =>
  tensor.name === 'model.norm.weight'
    ? { ...tensor, values: tensor.values.map((x, i) => (i === 3 ? NaN : x)) }
    : tensor;

const errors = (more: Partial<ErrorRequest>): Promise<ErrorReport> =>
  inspectError({
    ...{ model: SMALL, init: { kind: 'checkpoint' }, precision: 'f32', tokens: 16 },
    ...{ prompts: ['The sky is blue and the sea is green.'], ...more },
  });
const outputsOf = ({ kernels }: ErrorReport): readonly number[] =>
  kernels.flatMap(({ outputs }) => outputs.map(({ error }) => error));

describe('errors of activations', () => {
  it('are those of the element types: f32, f16 and bf16 differ by the bits they keep', async () => {
    const [f32, bf16, f16] = [
      await errors({}),
      await errors({ precision: 'bf16' }),
      await errors({ precision: 'f16', target: 'cuda:sm_90a' }),
    ];
    expect([f32, bf16, f16].map(({ activations, weights }) => [activations, weights])).toEqual([
      ['f32', 'stored'],
      ['bf16', 'bf16'],
      ['f16', 'f16'],
    ]);
    for (const { layers, tokens } of [f32, bf16, f16]) expect([layers.length, tokens]).toEqual([2, 16]);
    // 2⁻²⁴, 2⁻⁹ and 2⁻¹² are the largest errors of one rounding; a layer rounds a few times.
    const [first, half, sixteen] = [f32, bf16, f16].map(({ layers }) => layers[0]!.error) as [number, number, number];
    expect(first / 2 ** -24).toBeGreaterThan(0.2);
    expect(Math.max(...outputsOf(f32)) / 2 ** -24).toBeLessThan(20);
    expect(half / 2 ** -9).toBeGreaterThan(0.2);
    expect(Math.max(...outputsOf(bf16)) / 2 ** -9).toBeLessThan(20);
    expect(half / sixteen).toBeGreaterThan(4);
    expect(half / sixteen).toBeLessThan(12);
    expect(bf16.logProbability.worst).toBeGreaterThan(1000 * f32.logProbability.worst);
  });

  it('beside f32 are those beside float64, of kernels of another target', async () => {
    const request = { precision: 'bf16', target: 'cuda:sm_90a' } as const;
    const [exact, f32] = [await errors(request), await errors({ ...request, against: 'f32' })];
    const known = new Map(exact.layers.map(({ layer, error }) => [layer, error]));
    // The last layer's stream is another quantity where the next norm's weight is multiplied into it.
    expect(f32.layers.length).toBeGreaterThanOrEqual(1);
    for (const { layer, error } of f32.layers) expect(error / known.get(layer)!).toBeCloseTo(1, 3);
    expect(f32.against).toBe('f32');
  });

  thorough('are there for products and caches of 8 bits, beside floats', async () => {
    const [bytes, codes] = [stored('compressed int8 in bytes'), stored('compressed FP8')];
    const [f32, int8, fp8, cache8, cacheFp8] = [
      await errors({ model: bytes, isa: 'avx2' }),
      await errors({ model: bytes, precision: 'int8', isa: 'avx2' }),
      await errors({ model: codes, precision: 'fp8', target: 'cuda:sm_90a' }),
      await errors({ model: bytes, isa: 'avx2', kvCache: 'int8' }),
      await errors({ model: bytes, isa: 'avx2', kvCache: 'fp8' }),
    ];
    expect([f32, int8, fp8, cache8, cacheFp8].map(({ arithmetic }) => arithmetic)).toEqual([
      ...['f32', 'int8', 'fp8', 'f32, int8 cache', 'f32, FP8 cache'],
    ]);
    const worst = (report: ErrorReport): number => Math.max(...outputsOf(report));
    expect(worst(f32)).toBeLessThan(2 ** -18);
    // One rounding costs 2⁻⁸ of a row's maximum at most, or 2⁻⁴ of a value.
    for (const report of [int8, fp8, cache8, cacheFp8]) {
      expect(worst(report)).toBeGreaterThan(2 ** -12);
      expect(worst(report)).toBeLessThan(0.5);
      expect(report.layers.length).toBeGreaterThan(0);
    }
    expect(worst(cacheFp8)).toBeGreaterThan(worst(cache8));
  });

  it('name the tensor of a damaged checkpoint', async () => {
    const damaged = stored('compressed int8 in bytes', (tensors) => {
      const name = [...tensors.keys()].find((each) => each.endsWith('o_proj.weight_scale'))!;
      tensors.get(name)!.bytes.fill(0);
    });
    await expect(errors({ model: damaged })).rejects.toThrow(
      /model\.safetensors: tensor "model\.layers\.0\.self_attn\.o_proj\.weight_scale": the scale of row 0, .* is 0/,
    );
    const lost = writeCheckpoint({ weights: safetensorsFile(tensorsOf().map(withNan)) });
    await expect(errors({ model: lost })).rejects.toThrow(/^[\w.]+: a value is not finite$/);
  });

  it('are refused where they would take too long, or nothing is there', async () => {
    await expect(errors({ prompts: [''] })).rejects.toThrow(/no prompt has two tokens/);
    await expect(errors({ model: DEMO, prompts: Array<string>(2000).fill('one two three four') })).rejects.toThrow(
      /more than an/,
    );
    await expect(errors({ init: { kind: 'random', seed: 1 }, model: join(DEMO, 'config.json') })).rejects.toThrow();
  });
});

describe('values of tensors', () => {
  const of = (place: TensorLocation, k: number): number[] => [
    ...tensorValues(new Map([[place.name, place]]), place.name, k).data,
  ];
  const file = join(folder, 'values');
  writeFileSync(file, Buffer.from(Float32Array.from({ length: 24 }, (_, i) => i).buffer));
  const place = { name: 't', format: 'f32', file } as const;

  it('are those of rows in blocks', () => {
    const blocks = { rows: 1, stride: 2 };
    expect(of({ ...place, kind: 'file', shape: [2, 4], offset: 4, byteLength: 32, blocks }, 4)).toEqual([
      ...[1, 2, 3, 4],
      ...[9, 10, 11, 12],
    ]);
  });

  it('are those of rectangles, also turned ones', () => {
    const tile = { file, rows: 2, columns: 2, row: 0 };
    const tiles = [
      { ...tile, offset: 0, column: 0, isTransposed: false, stride: 6 },
      { ...tile, offset: 8, column: 2, isTransposed: true, stride: 6 },
    ];
    expect(of({ name: 't', format: 'f32', kind: 'assembled', shape: [2, 4], tiles }, 4)).toEqual([
      ...[0, 1, 2, 8],
      ...[6, 7, 3, 9],
    ]);
  });

  it.each(['gptq', 'fp8Blocks', 'q4_k'])('are those that %s encodes, of the rows that a tensor has', (name) => {
    const encoding = ENCODINGS[name] ?? ENCODINGS['int8']!;
    const { source, values } = sampleSource(folder, name, encoding, 64, 256, 3);
    const all = values();
    expect(of({ ...source, name }, 256)).toEqual([...all]);
    const view = { first: 2, rows: 1, stride: 3 };
    expect(of({ ...source, name, shape: [2, 256], view }, 256)).toEqual([
      ...all.subarray(2 * 256, 3 * 256),
      ...all.subarray(5 * 256, 6 * 256),
    ]);
  });
});
