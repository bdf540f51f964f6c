/** Checkpoints that are not what they claim to be: the command says what is wrong and where, and stops. */
import { ftruncateSync, openSync, closeSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { questions, safetensorsFile, SHAPES, tensorsOf, writeCheckpoint, writeData } from './smallModel.js';
import { failure, filesOf, isBuilt, runArguments, temporaryFolder, tilewright } from './support.js';
import { isThorough } from '../support/thorough.js';

const data = writeData(questions(4));
const WHOLE = safetensorsFile(tensorsOf());
const [FIRST = '', SECOND = ''] = SHAPES.keys();

/** A checkpoint whose header was changed by `edit`. */
const lying = (edit: (header: Parameters<NonNullable<Parameters<typeof safetensorsFile>[1]>>[0]) => void): string =>
  writeCheckpoint({
    weights: safetensorsFile(tensorsOf(), (header) => {
      edit(header);
      return header;
    }),
  });

/** A sparse file whose header claims to have `claimed` bytes. */
function hugeHeader(claimed: number, size: number): string {
  const dir = writeCheckpoint({ weights: null });
  const fd = openSync(join(dir, 'model.safetensors'), 'w');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(claimed));
  writeSync(fd, length);
  ftruncateSync(fd, size);
  closeSync(fd);
  return dir;
}

/** The checkpoint in two shards with an index. */
function sharded(edit: (dir: string, index: { weight_map: Record<string, string> }) => void): string {
  const dir = writeCheckpoint({ weights: null });
  const tensors = tensorsOf();
  const half = Math.floor(tensors.length / 2);
  const weight_map: Record<string, string> = {};
  [tensors.slice(0, half), tensors.slice(half)].forEach((part, i) => {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    writeFileSync(join(dir, name), safetensorsFile(part));
    for (const tensor of part) weight_map[tensor.name] = name;
  });
  const index = { weight_map };
  edit(dir, index);
  writeFileSync(join(dir, 'model.safetensors.index.json'), JSON.stringify(index));
  return dir;
}

interface Case {
  readonly name: string;
  readonly make: () => string;
  /** Kernels of its own are compiled before anything is wrong. */
  readonly isSlow?: boolean;
  /** What the error must say. */
  readonly error: readonly (RegExp | string)[];
  readonly hint: RegExp;
}

const CASES: readonly Case[] = [
  {
    name: 'no folder',
    make: () => join(temporaryFolder(), 'absent'),
    error: [/absent/, /no such/],
    hint: /checkpoint/,
  },
  {
    name: 'no safetensors',
    make: () => writeCheckpoint({ weights: null }),
    error: ['found no weights: model.safetensors (or model.safetensors.index.json and its shards)'],
    hint: /download/,
  },
  {
    name: 'cut off in the data',
    make: () => writeCheckpoint({ weights: WHOLE.subarray(0, WHOLE.length - 100) }),
    error: ['truncated', 'model.safetensors', '"model.norm.weight" is the first one that is cut off'],
    hint: /download|fetch/i,
  },
  {
    name: 'cut off in the header',
    make: () => writeCheckpoint({ weights: WHOLE.subarray(0, 200) }),
    error: ['truncated', 'the header claims'],
    hint: /download|fetch/i,
  },
  {
    name: 'overlapping tensors',
    make: () =>
      lying((header) => {
        header[SECOND]!.data_offsets = [0, 256];
      }),
    error: [FIRST, SECOND, 'overlaps'],
    hint: /./,
  },
  {
    name: 'a hole between tensors',
    make: () =>
      lying((header) => {
        delete header[SECOND];
      }),
    error: ['leaves a hole before it', 'starts at byte'],
    hint: /./,
  },
  {
    name: 'a tensor past the end',
    make: () =>
      lying((header) => {
        const last = header['model.norm.weight']!;
        last.shape = [6400];
        last.data_offsets = [last.data_offsets[0], last.data_offsets[0] + 25600];
      }),
    error: ['truncated', 'model.norm.weight'],
    hint: /./,
  },
  {
    name: 'a header of more than 16 MiB',
    make: () => hugeHeader(16_777_217, 16_777_300),
    error: ['16777217 bytes', 'model.safetensors'],
    hint: /./,
  },
  {
    name: 'a header of 16 MiB that is no JSON',
    make: () => hugeHeader(16_777_216, 16_777_300),
    error: [/header/],
    hint: /./,
  },
  {
    name: 'a shard that the index names and nobody has',
    make: () =>
      sharded((dir) => {
        rmSync(join(dir, 'model-00002-of-00002.safetensors'));
      }),
    error: ['1 of the 2 files that model.safetensors.index.json names is missing: model-00002-of-00002.safetensors'],
    hint: /download/,
  },
  {
    name: 'a shard that the index leaves out',
    make: () =>
      sharded((_, index) => {
        for (const [tensor, shard] of Object.entries(index.weight_map))
          if (shard.includes('00002-of')) delete index.weight_map[tensor];
      }),
    error: ['missing', 'not named by model.safetensors.index.json: "model-00002-of-00002.safetensors"'],
    hint: /./,
  },
  {
    name: 'a shard outside the folder',
    make: () =>
      sharded((_, index) => {
        index.weight_map[FIRST] = '../model-00001-of-00002.safetensors';
      }),
    error: [FIRST, 'is not the name of a .safetensors file in this folder'],
    hint: /./,
  },
  {
    name: 'tensors of a wrong shape, by pattern',
    make: () => writeCheckpoint({ config: { intermediate_size: 128 } }),
    error: [
      'model.layers.{0–1}.mlp.gate_proj.weight: shape [96, 64], but config.json requires [128, 64]',
      'model.layers.{0–1}.mlp.down_proj.weight: shape [64, 96]',
    ],
    hint: /config\.json/,
  },
  {
    name: 'an unsupported architecture',
    make: () => writeCheckpoint({ config: { architectures: ['GPTJForCausalLM'], model_type: 'gptj' } }),
    error: ['config.json', 'architecture "GPTJForCausalLM" is not supported'],
    hint: /supported model/,
  },
  {
    name: 'an unsupported rope type',
    make: () => writeCheckpoint({ config: { rope_scaling: { rope_type: 'spiral', factor: 4 } } }),
    error: ['config.json', 'spiral', 'llama3'],
    hint: /supported model/,
  },
  {
    name: 'a text with a token that the model does not have',
    isSlow: true,
    make: () => {
      const dir = writeCheckpoint({
        config: { vocab_size: 200 },
        weights: safetensorsFile(
          tensorsOf().map((tensor) =>
            tensor.name === FIRST
              ? { ...tensor, shape: [200, 64], values: tensor.values.subarray(0, 200 * 64) }
              : tensor,
          ),
        ),
      });
      return dir;
    },
    error: ['question 0 (line 1): ', 'tokenizer.json: token', 'has no embedding: the model has 200'],
    hint: /--docs 1:, or use the tokenizer\.json of the model/,
  },
  {
    name: 'a tokenizer that is no JSON',
    make: () => {
      const dir = writeCheckpoint();
      writeFileSync(join(dir, 'tokenizer.json'), '{"model": ');
      return dir;
    },
    error: ['tokenizer.json', 'JSON'],
    hint: /./,
  },
  {
    name: 'no tokenizer',
    make: () => {
      const dir = writeCheckpoint();
      rmSync(join(dir, 'tokenizer.json'));
      return dir;
    },
    error: ['found no tokenizer: neither tokenizer.json nor tokenizer.model, tekken.json'],
    hint: /tokenizer/,
  },
];

describe.skipIf(!isBuilt)('a checkpoint that cannot be run', () => {
  test.each(CASES.filter(({ isSlow }) => isThorough || isSlow !== true))('$name', async ({ make, error, hint }) => {
    const out = temporaryFolder();
    const said = failure(await tilewright(runArguments(make(), data, '--out', out)));
    for (const part of error) expect(said.error).toMatch(part);
    expect(said.hint).toMatch(hint);
    // A list of patterns is short, however many tensors match.
    expect(said.error.split('\n').length).toBeLessThanOrEqual(12);
    for (const kind of ['samples', 'results'] as const) expect(filesOf(out, kind)).toEqual([]);
  });
});
