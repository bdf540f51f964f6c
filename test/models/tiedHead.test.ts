import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { buildGraph } from '../../driver/functions.js';
import { printGraph } from '../../ir/graph/printer.js';
import { type Checkpoint, openCheckpoint } from '../../models/checkpoint.js';
import { describeModel } from '../../models/config.js';
import { layOut, safetensors, SMALL_CONFIG, temporaryFolder, userError, writeJson } from './support.js';
import { torchFile } from './torch/writeTorchFile.js';

const EMBEDDING = 'model.embed_tokens.weight';
const HEAD = 'lm_head.weight';
const shapes = (isTied: boolean, changes: Record<string, unknown> = {}): Map<string, readonly number[]> =>
  new Map(
    describeModel({ ...SMALL_CONFIG, ...changes, tie_word_embeddings: isTied }, 'config.json').tensors.map(
      ({ name, shape }) => [name, shape],
    ),
  );

/** A tied model with these tensors; the last byte of the head is `last`, every other byte 0. */
function folder(
  tensors: Map<string, readonly number[]> = shapes(false),
  last = 0,
  config: Record<string, unknown> = SMALL_CONFIG,
): string {
  const dir = temporaryFolder();
  writeJson(dir, 'config.json', config);
  const { header, size } = layOut(tensors);
  const data = new Uint8Array(size);
  const head = Object.entries(header).find(([name]) => name.endsWith(HEAD))?.[1];
  if (head !== undefined) data[head.data_offsets[1] - 1] = last;
  writeFileSync(join(dir, 'model.safetensors'), safetensors(header, data));
  return dir;
}

describe('a model that is tied by its configuration', () => {
  it('is tied if the head in the files is the embedding', () => {
    const checkpoint = openCheckpoint(folder());
    expect(checkpoint.tensors.has(HEAD)).toBe(false);
    expect(checkpoint.config).toMatchObject({ tieWordEmbeddings: true });
    expect(checkpoint.warnings).toEqual([]);
  });

  it('uses a head of the files that differs in its last byte, and says so in one line', () => {
    const dir = folder(shapes(false), 1);
    const checkpoint = openCheckpoint(dir);
    expect(checkpoint.tensors.get(HEAD)).toMatchObject({ kind: 'file', shape: [10, 8] });
    expect(checkpoint.config).toMatchObject({ tieWordEmbeddings: false, dtype: 'bf16' });
    expect(checkpoint.model.summary).not.toContain('tied');
    expect(printGraph(buildGraph(checkpoint))).toContain(HEAD);
    expect(printGraph(buildGraph(openCheckpoint(folder())))).not.toContain(HEAD);
    expect(checkpoint.warnings).toEqual([
      `${dir}: config.json ties the head to the embedding, but the weights hold both and they differ: ` +
        'the head of the weights is used (lm_head.weight)',
    ]);
    expect(checkpoint.fingerprint()).not.toBe(openCheckpoint(folder()).fingerprint());
  });

  it('compares tensors of several chunks in two shards', () => {
    const large = { ...SMALL_CONFIG, vocab_size: 200_000 };
    const [first, second] = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
    const open = (place: number): Checkpoint => {
      const dir = temporaryFolder();
      writeJson(dir, 'config.json', large);
      const all = [...shapes(false, { vocab_size: 200_000 })];
      for (const [name, tensors] of [
        [first, all.filter(([tensor]) => tensor !== HEAD)],
        [second, all.filter(([tensor]) => tensor === HEAD)],
      ] as const) {
        const { header, size } = layOut(tensors);
        const data = new Uint8Array(size);
        if (name === second && place >= 0) data[place] = 1;
        writeFileSync(join(dir, name), safetensors(header, data));
      }
      const weight_map = Object.fromEntries(all.map(([name]) => [name, name === HEAD ? second : first]));
      writeJson(dir, 'model.safetensors.index.json', { weight_map });
      return openCheckpoint(dir);
    };
    expect([-1, 0, (1 << 20) - 1, 1 << 20, 3_199_999].map((place) => open(place).tensors.has(HEAD))).toEqual([
      ...[false, true, true, true, true],
    ]);
  });

  it('is tied if torch.save wrote one storage for both', () => {
    const dir = temporaryFolder();
    writeJson(dir, 'config.json', SMALL_CONFIG);
    const all = [...shapes(false)].map(([name, shape], i) => ({ name, shape, storage: name === HEAD ? '0' : `${i}` }));
    const storages = all
      .filter(({ name }) => name !== HEAD)
      .map(({ shape, storage }) => [storage, Buffer.alloc(2 * shape.reduce((a, b) => a * b, 1), storage)] as const);
    writeFileSync(
      join(dir, 'pytorch_model.bin'),
      torchFile(
        all.map(({ name, shape, storage }) => [name, { storage, type: 'BFloat16Storage', shape }] as const),
        Object.fromEntries(storages),
      ),
    );
    expect(openCheckpoint(dir).tensors.has(HEAD)).toBe(false);
  });

  it('refuses a head of another shape', () => {
    const dir = folder(new Map([...shapes(false), [HEAD, [9, 8]] as const]));
    expect(userError(() => openCheckpoint(dir)).message).toContain(
      'lm_head.weight: shape [9, 8], but config.json requires [10, 8]',
    );
  });

  it('takes the head for the embedding where the files have no other', () => {
    const tensors = shapes(false);
    tensors.delete(EMBEDDING);
    const { tensors: found, config, warnings } = openCheckpoint(folder(tensors));
    expect(found.get(EMBEDDING)).toMatchObject({ kind: 'file', name: EMBEDDING, shape: [10, 8] });
    expect(found.has(HEAD)).toBe(false);
    expect(config).toMatchObject({ tieWordEmbeddings: true });
    expect(warnings).toEqual([]);
  });

  it('uses the head inside a multimodal model, and keeps that this is one', () => {
    const { architectures: _, ...text_config } = SMALL_CONFIG;
    const tensors = new Map([...shapes(false)].map(([name, shape]) => [`language_model.${name}`, shape]));
    const { model, tensors: found } = openCheckpoint(folder(tensors, 1, { model_type: 'llava', text_config }));
    expect(found.has(HEAD)).toBe(true);
    expect(model.isWrapped).toBe(true);
    expect(model.summary).toMatch(/^the language model of a multimodal one, hidden 8/);
  });

  it('uses a head that is stored quantized', () => {
    const tensors = shapes(false);
    tensors.delete(HEAD);
    const quantization_config = { quant_method: 'gptq', bits: 4, group_size: 8, sym: true, desc_act: false };
    const dir = folder(new Map([...tensors, ['lm_head.qweight', [1, 10]] as const]), 0, {
      ...SMALL_CONFIG,
      quantization_config,
    });
    expect(userError(() => openCheckpoint(dir)).message).toContain(
      'lm_head.qweight: words of 8 codes do not divide its matrix',
    );
  });
});
