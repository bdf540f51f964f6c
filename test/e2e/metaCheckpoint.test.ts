/**
 * A checkpoint in Meta's layout (params.json and consolidated.00.pth) reaches the golden log-likelihoods of the Hugging
 * Face folder that it is made from. Needs the data folder beside the repository.
 */
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { run } from '../../commands/run.js';
import { readSafetensorsHeader } from '../../models/weights/safetensors.js';
import { torchFile, type WrittenTensor } from '../models/torch/writeTorchFile.js';
import { SILENT } from '../support/silent.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const MODEL = join(SHARED, 'checkpoints', 'mha-2m');
const DATA = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
const hasShared = existsSync(MODEL) && existsSync(DATA);
if (!hasShared)
  process.stderr.write(
    'SKIPPED: a checkpoint in the layout of Meta: the folder ../shared is not beside the repository\n',
  );

const [HEADS, HEAD_DIM] = [3, 48];

const NAMES: readonly (readonly [hub: RegExp, meta: string])[] = [
  [/^model\.embed_tokens/, 'tok_embeddings'],
  [/^model\.norm/, 'norm'],
  [/^lm_head/, 'output'],
  [/^model\.layers/, 'layers'],
  [/self_attn\.(.)_proj/, 'attention.w$1'],
  [/mlp\.gate_proj/, 'feed_forward.w1'],
  [/mlp\.down_proj/, 'feed_forward.w2'],
  [/mlp\.up_proj/, 'feed_forward.w3'],
  [/input_layernorm/, 'attention_norm'],
  [/post_attention_layernorm/, 'ffn_norm'],
];

/** Rows whose rotary pairs are half a head apart, in the order in which they are neighbours. */
function byPairs(bytes: Buffer): Buffer {
  const row = bytes.length / (HEADS * HEAD_DIM);
  return Buffer.concat(
    Array.from({ length: HEADS * HEAD_DIM }, (_, i) => {
      const [head, at] = [Math.trunc(i / HEAD_DIM), i % HEAD_DIM];
      const from = head * HEAD_DIM + (at % 2) * (HEAD_DIM / 2) + Math.trunc(at / 2);
      return bytes.subarray(from * row, (from + 1) * row);
    }),
  );
}

/** How parts divide a matrix, by its name in Meta's files. */
const BY_COLUMNS = /(?:tok_embeddings|wo|w2)\.weight$/;

/** Part `part` of `count` of a tensor. */
function partOf(
  { shape, bytes }: { shape: readonly number[]; bytes: Buffer },
  name: string,
  part: number,
  count: number,
): { shape: readonly number[]; bytes: Buffer } {
  const [rows = 1, columns] = shape;
  if (columns === undefined) return { shape, bytes };
  const rowBytes = bytes.length / rows;
  const [partRows, partBytes] = BY_COLUMNS.test(name) ? [rows, rowBytes / count] : [rows / count, rowBytes];
  const [firstRow, firstByte] = BY_COLUMNS.test(name) ? [0, part * partBytes] : [part * partRows, 0];
  const lines = Array.from({ length: partRows }, (_, row) => {
    const start = (firstRow + row) * rowBytes + firstByte;
    return bytes.subarray(start, start + partBytes);
  });
  return { shape: [partRows, (columns * partBytes) / rowBytes], bytes: Buffer.concat(lines) };
}

function asMetaWrites(source: string, parts = 1): string {
  const dir = temporaryFolder();
  const file = join(source, 'model.safetensors');
  const bytes = readFileSync(file);
  const whole = new Map<string, { shape: readonly number[]; bytes: Buffer }>();
  for (const { name, shape, offset, byteLength } of readSafetensorsHeader(file).entries) {
    const own = bytes.subarray(offset, offset + byteLength);
    const renamed = NAMES.reduce((text, [hub, meta]) => text.replace(hub, meta), name);
    whole.set(renamed, { shape, bytes: /[qk]_proj/.test(name) ? byPairs(own) : own });
  }
  for (let part = 0; part < parts; part++) {
    const own = [...whole].map(([name, tensor]) => [name, partOf(tensor, name, part, parts)] as const);
    const tensors = own.map(([name, { shape }]): [string, WrittenTensor] => [
      name,
      { storage: name, type: 'HalfStorage', shape },
    ]);
    const storages = Object.fromEntries(own.map(([name, { bytes }]) => [name, bytes]));
    writeFileSync(join(dir, `consolidated.0${part}.pth`), torchFile(tensors, storages));
  }
  const params = { dim: 144, multiple_of: 200, n_heads: HEADS, n_layers: 4, norm_eps: 1e-6, vocab_size: -1 };
  writeFileSync(join(dir, 'params.json'), JSON.stringify(params));
  for (const name of ['tokenizer.json', 'tokenizer.model', 'tokenizer_config.json'])
    if (existsSync(join(source, name))) copyFileSync(join(source, name), join(dir, name));
  return dir;
}

async function score(model: string): Promise<string> {
  const { samplesPath } = await run(
    {
      model,
      init: { kind: 'checkpoint' },
      precision: 'f32',
      task: 'hellaswag',
      data: DATA,
      sharing: 'tree',
      threads: 2,
      limit: 12,
      batchTokens: 128,
      output: temporaryFolder(),
      resume: false,
    },
    SILENT,
  );
  if (samplesPath === undefined) throw new Error('no samples were written');
  return readFileSync(samplesPath, 'utf8');
}

describe.skipIf(!hasShared || !isBuilt)('a checkpoint in the layout of Meta', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it('has the same answers to the bit as its Hugging Face copy', async () => {
    const wanted = await score(MODEL);
    for (const parts of [1, 2]) expect(await score(asMetaWrites(MODEL, parts)), `${parts} parts`).toBe(wanted);
  });
});
