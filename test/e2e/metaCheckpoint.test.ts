/**
 * A checkpoint in Meta's layout (params.json and consolidated.00.pth) reaches the golden log-likelihoods of the Hugging
 * Face folder that it is made from. Needs the data folder beside the repository.
 */
import { copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { run } from '../../driver/commands/index.js';
import type { Ui } from '../../driver/requests.js';
import { readSafetensorsHeader } from '../../models/safetensors.js';
import { torchFile, type WrittenTensor } from '../models/torch/writeTorchFile.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const MODEL = join(SHARED, 'checkpoints', 'mha-2m');
const DATA = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
const hasShared = existsSync(MODEL) && existsSync(DATA);
if (!hasShared)
  process.stderr.write(
    'SKIPPED: a checkpoint in the layout of Meta: the folder ../shared is not beside the repository\n',
  );

const ignore = (): void => undefined;
const SILENT: Ui = { phase: ignore, step: ignore, run: ignore, table: ignore, note: ignore, warn: ignore };
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

function asMetaWrites(source: string): string {
  const dir = temporaryFolder();
  const file = join(source, 'model.safetensors');
  const bytes = readFileSync(file);
  const tensors: [string, WrittenTensor][] = [];
  const storages: Record<string, Buffer> = {};
  for (const { name, shape, offset, byteLength } of readSafetensorsHeader(file).entries) {
    const own = bytes.subarray(offset, offset + byteLength);
    storages[name] = /[qk]_proj/.test(name) ? byPairs(own) : own;
    const renamed = NAMES.reduce((text, [hub, meta]) => text.replace(hub, meta), name);
    tensors.push([renamed, { storage: name, type: 'HalfStorage', shape }]);
  }
  writeFileSync(join(dir, 'consolidated.00.pth'), torchFile(tensors, storages));
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
      maxTokens: 128,
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
    expect(await score(asMetaWrites(MODEL))).toBe(await score(MODEL));
  });
});
