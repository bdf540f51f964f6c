/**
 * A model as a GGUF file, with floats or with blocks, answers as the Hugging Face folder with the same numbers does, to
 * the bit; so does an artifact that holds the file.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { randomOf } from '../fuzz/mutate.js';
import {
  asByteLevel,
  byteLevelPairs,
  type Encode,
  ggufFile,
  ggufPairs,
  ggufTensors,
  type GgufType,
} from '../support/gguf.js';
import { BlockWriter } from '../support/ggufBlocks.js';
import { CONFIG, questions, safetensorsFile, tensorsOf, writeCheckpoint, writeData } from './smallModel.js';
import { CAPACITY, isBuilt, success, temporaryFolder, textOf, tilewright } from './support.js';

describe.skipIf(!isBuilt)('a GGUF file', () => {
  const blocks = new BlockWriter('Q8_0', randomOf(3));
  // Rows as long as those of blocks are drawn; all others stay F32.
  const tensors = tensorsOf().map((tensor) => {
    const [rows = 1, columns] = tensor.shape;
    return columns === 64 ? { ...tensor, values: Float32Array.from(blocks.draw(rows, columns)) } : tensor;
  });
  const folder = writeCheckpoint({ weights: safetensorsFile(tensors) });
  const pairs = {
    ...ggufPairs(CONFIG),
    ...byteLevelPairs(asByteLevel(JSON.parse(readFileSync(join(folder, 'tokenizer.json'), 'utf8'))), 'gpt-2', '<s>'),
  };
  const data = writeData(questions(60));

  function written(name: string, typeOf: (tensor: string) => GgufType, encode?: Encode): string {
    const dir = join(temporaryFolder(), name);
    mkdirSync(dir);
    const plain = tensors.map((tensor) => ({ ...tensor, values: Float64Array.from(tensor.values) }));
    const file = ggufFile({ pairs, tensors: ggufTensors(plain, CONFIG, typeOf, encode) });
    writeFileSync(join(dir, `${name}.gguf`), file);
    return dir;
  }
  const samples = async (model: string, ...more: string[]): Promise<string> => {
    const out = temporaryFolder();
    const flags = ['--task', 'multiple_choice', '--data', data, '--out', out, ...more];
    success(await tilewright(['run', model, ...flags]));
    return textOf(out, 'samples');
  };
  const F32 = [...CAPACITY, '--precision', 'f32'];

  test('answers as the folder does', async () => {
    const want = await samples(folder, ...F32);
    expect(want.split('\n')).toHaveLength(61);
    expect(
      await samples(
        join(
          written('floats', () => 'F32'),
          'floats.gguf',
        ),
        ...F32,
      ),
    ).toBe(want);

    const quantized = written(
      'blocks',
      (name) => (name.includes('ffn_down') ? 'F32' : 'Q8_0'),
      (values, type) => (type === 'F32' ? Buffer.from(Float32Array.from(values).buffer) : blocks.encode(values, type)),
    );
    const artifact = join(temporaryFolder(), 'model.tw');
    success(await tilewright(['compile', quantized, '-o', artifact, '--pack-weights', ...F32]));
    expect(await samples(artifact)).toBe(want);
  });
});
