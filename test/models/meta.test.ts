/** Checkpoints as Meta publishes them: their settings, names and order of rows. */
import { copyFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import type { DecoderConfig } from '../../models/decoder/config.js';
import { readTorchFile } from '../../models/weights/stateDict.js';
import { temporaryFolder, userError, writeJson } from './support.js';
import { torchFile, type WrittenTensor } from './torch/writeTorchFile.js';

const PARAMS = { dim: 4096, multiple_of: 256, n_heads: 32, n_layers: 32, norm_eps: 1e-6, vocab_size: -1 };
const LLAMA_3 = {
  dim: 4096,
  ffn_dim_multiplier: 1.3,
  multiple_of: 1024,
  n_heads: 32,
  n_kv_heads: 8,
  n_layers: 32,
  norm_eps: 1e-5,
  rope_theta: 500_000,
  vocab_size: 128_256,
};
const configOf = (params: object, rows?: number): DecoderConfig =>
  describeModel(params, 'params.json', 'bf16', rows).config as DecoderConfig;
const refusal = (params: object, rows?: number): string => userError(() => configOf(params, rows)).message;

describe('params.json', () => {
  it('says what published models are', () => {
    expect(configOf(PARAMS, 32_000)).toMatchObject({
      hiddenSize: 4096,
      intermediateSize: 11_008,
      kvHeads: 32,
      vocabSize: 32_000,
      maxPositions: 2048,
      rotary: { rotated: 128, interleaved: true },
      rope: { theta: 10_000, scaling: { type: 'none' } },
      dtype: 'bf16',
    });
    expect(configOf({ ...PARAMS, norm_eps: 1e-5 }, 32_000).maxPositions).toBe(4096);
    expect(configOf(LLAMA_3)).toMatchObject({ intermediateSize: 14_336, kvHeads: 8, maxPositions: 8192 });
    expect(configOf({ ...LLAMA_3, use_scaled_rope: true })).toMatchObject({
      maxPositions: 131_072,
      rope: { theta: 500_000, scaling: { type: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4 } },
    });
  });

  it.each<[object, string]>([
    [{ dim: 0 }, 'params.json: dim: expected a whole number from 1 to 65536, got 0'],
    [{ n_layers: 'x' }, 'params.json: n_layers: expected a whole number from 1 to 1024, got "x"'],
    [{ moe: { num_experts: 8 } }, 'params.json: moe: unknown setting, got {"num_experts":8}'],
    [{ n_kv_heads: 5 }, 'n_heads 32 is not a multiple of n_kv_heads 5'],
    [{ vocab_size: -1 }, 'params.json: vocab_size is -1, and no weights say how many tokens there are'],
    [{ dim: 2048, use_scaled_rope: true }, 'rope_scaling_factor does not say by how much'],
    [{ ffn_dim_multiplier: 'x' }, 'params.json: ffn_dim_multiplier: expected a number'],
  ])('is refused with %j', (change, wanted) => {
    const message = refusal({ ...LLAMA_3, ...change });
    expect(message).toContain(wanted);
    expect(message).not.toContain('\n');
  });
});

const TINY = { dim: 8, multiple_of: 4, n_heads: 2, n_layers: 1, norm_eps: 1e-5, vocab_size: -1 };
/** Rows and columns of the tiny model's tensors; the feed-forward network has 24. */
const SHAPES: Readonly<Record<string, readonly number[]>> = {
  'tok_embeddings.weight': [10, 8],
  'norm.weight': [8],
  'output.weight': [10, 8],
  'rope.freqs': [2],
  'layers.0.attention_norm.weight': [8],
  'layers.0.attention.wq.weight': [8, 8],
  'layers.0.attention.wk.weight': [8, 8],
  'layers.0.attention.wv.weight': [8, 8],
  'layers.0.attention.wo.weight': [8, 8],
  'layers.0.ffn_norm.weight': [8],
  'layers.0.feed_forward.w1.weight': [24, 8],
  'layers.0.feed_forward.w2.weight': [8, 24],
  'layers.0.feed_forward.w3.weight': [24, 8],
};

function folder(without?: string): string {
  const dir = temporaryFolder();
  writeJson(dir, 'params.json', TINY);
  const tensors = Object.entries(SHAPES)
    .filter(([name]) => name !== without)
    .map(([name, shape]): [string, WrittenTensor] => [name, { storage: name, type: 'BFloat16Storage', shape }]);
  const storages = tensors.map(([name, { shape }]) => [name, Buffer.alloc(2 * shape.reduce((a, b) => a * b))] as const);
  writeFileSync(join(dir, 'consolidated.00.pth'), torchFile(tensors, Object.fromEntries(storages)));
  return dir;
}

describe('a folder as Meta publishes it', () => {
  it('is a checkpoint, and its weights say how large the vocabulary is', () => {
    const dir = folder();
    const { config, tensors, configPath, files } = openCheckpoint(dir);
    expect(config).toMatchObject({ vocabSize: 10, layers: 1, dtype: 'bf16' });
    expect(tensors.size).toBe(Object.keys(SHAPES).length - 1);
    expect([configPath, ...files]).toEqual([join(dir, 'params.json'), join(dir, 'consolidated.00.pth')]);
    expect(existsSync(configPath) && readFileSync(configPath, 'utf8')).toContain('"dim"');
  });

  it('is refused with one line for what is missing', () => {
    expect(userError(() => openCheckpoint(folder('layers.0.ffn_norm.weight'))).message).toContain(
      'layers.0.ffn_norm.weight: missing',
    );
  });

  it('says that a part may be missing where the weights are smaller than the model', () => {
    const dir = inParts(2);
    rmSync(join(dir, 'consolidated.01.pth'));
    const { message, hint } = userError(() => openCheckpoint(dir));
    expect(message).toContain('the weights are not the model that params.json describes');
    expect(message).not.toContain('config.json');
    expect(hint).toContain('if the model is published in more parts, download consolidated.01.pth');
  });
});

/** How parts divide a tensor, by its name. */
const COLUMNS = /(?:tok_embeddings|wo|w2)\.weight$/;
type Change = (part: number, name: string, shape: readonly number[]) => readonly number[] | undefined;

/** The tiny model in `count` parts. `change` may leave out tensors of a part, or give them another shape. */
function inParts(count: number, change: Change = (_, __, shape) => shape): string {
  const dir = temporaryFolder();
  writeJson(dir, 'params.json', TINY);
  for (let part = 0; part < count; part++) {
    const tensors = Object.entries(SHAPES).flatMap(([name, [rows = 1, columns]]): [string, WrittenTensor][] => {
      const own =
        columns === undefined ? [rows] : COLUMNS.test(name) ? [rows, columns / count] : [rows / count, columns];
      const shape = change(part, name, own);
      return shape === undefined ? [] : [[name, { storage: name, type: 'BFloat16Storage', shape }]];
    });
    const storages = tensors.map(
      ([name, { shape }]) => [name, Buffer.alloc(2 * shape.reduce((a, b) => a * b))] as const,
    );
    writeFileSync(join(dir, `consolidated.0${part}.pth`), torchFile(tensors, Object.fromEntries(storages)));
  }
  return dir;
}

describe('a folder with a model in several parts', () => {
  it('is a checkpoint whose matrices lie in all of them', () => {
    const { config, tensors, files } = openCheckpoint(inParts(2));
    expect(config).toMatchObject({ vocabSize: 10, layers: 1, dtype: 'bf16' });
    expect(files).toHaveLength(2);
    const tilesOf = (name: string) => {
      const place = tensors.get(name);
      if (place?.kind !== 'assembled') throw new Error(`${name} lies in one place`);
      return place.tiles.map(({ file, offset: _, ...tile }) => ({ ...tile, file: files.indexOf(file) }));
    };
    expect(tilesOf('layers.0.attention.wo.weight')).toEqual(
      [0, 1].map((part) => ({
        ...{ file: part, row: 0, rows: 8, column: 4 * part, columns: 4 },
        ...{ isTransposed: false, stride: 4 },
      })),
    );
    expect(tilesOf('layers.0.feed_forward.w1.weight')).toMatchObject([
      { file: 0, row: 0, rows: 12, column: 0, columns: 8 },
      { file: 1, row: 12, rows: 12, column: 0, columns: 8 },
    ]);
    expect(tensors.get('norm.weight')).toMatchObject({ kind: 'file', file: files[0] });
  });

  it('has all rows of an embedding table that is divided by rows', () => {
    const change: Change = (_, name, shape) => (name.startsWith('tok') ? [5, 8] : shape);
    expect(openCheckpoint(inParts(2, change)).config.vocabSize).toBe(10);
  });

  it.each<[string, () => string]>([
    [
      'tensor "layers.0.attention.wk.weight" of ',
      () => inParts(2, (p, n, s) => (p === 1 && /wk/.test(n) ? undefined : s)),
    ],
    ['which ', () => inParts(2, (p, n, s) => (p === 0 && /wk/.test(n) ? undefined : s))],
    ['is BF16 [4, 8], and BF16 [8, 4] in ', () => inParts(2, (p, n, s) => (p === 1 && /wk/.test(n) ? [8, 4] : s))],
    ['in each of 2 parts, which do not make up [8, 8]', () => inParts(2, (_, n, s) => (/wk/.test(n) ? [2, 8] : s))],
    [
      'the model is in 4 parts, and consolidated.01.pth is missing',
      () => {
        const dir = inParts(1);
        for (const part of ['02', '03'])
          copyFileSync(join(dir, 'consolidated.00.pth'), join(dir, `consolidated.${part}.pth`));
        return dir;
      },
    ],
    [
      'has other values in ',
      () => {
        const dir = inParts(2);
        const file = join(dir, 'consolidated.01.pth');
        const bytes = readFileSync(file);
        const { offset } = readTorchFile(file).entries.find(({ name }) => name === 'norm.weight')!;
        bytes[offset + 1] = 0x3f;
        writeFileSync(file, bytes);
        return dir;
      },
    ],
  ])('is refused: %s', (message, make) => {
    const error = userError(() => openCheckpoint(make())).message;
    expect(error).toContain(message);
  });
});
