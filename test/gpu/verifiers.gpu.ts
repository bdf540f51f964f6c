/**
 * Reward models on a real device: scores beside goldens in float64 as near as bf16 allows, the same bits in any chunks,
 * company and from pages, and heads of any number of classes.
 */
import assert from 'node:assert/strict';
import { copyFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { engineOf } from '../../commands/engineModel.js';
import type { LoadedModel } from '../../commands/loadModel.js';
import { Engine } from '../../engine/engine.js';
import {
  asComputed,
  BF16_ERRORS,
  CLASS_VERIFIERS,
  errorsOf,
  type Golden,
  goldensOf,
  linesOf,
  VERIFIERS,
} from '../support/verifiers.js';
import { DEMO, tilewright } from './command.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { loadOnDevice, type ModelRequest, SEQUENCES, stepperFor } from './sequences.js';
import { temporaryFolder } from './support.js';

const device = await deviceHere();
const skip = skipWithout(device.skip, join(SHARED, 'golden', 'verifiers'), 'goldens of verifiers');

/**
 * Kernels add in another order than the interpreter that BF16_ERRORS are from, so that other numbers are rounded the
 * other way: the mean may be larger by a little, and the largest of 40 to 160 scores by more.
 */
const MOST = { mean: 1.25, largest: 2 } as const;
/** Verdicts of language models, whose logits the head computes from bf16 as well: as token classifiers have. */
const OF_VERDICTS = [0.004, 0.03] as const;

interface Scored {
  readonly id: number;
  readonly scores: readonly number[];
  readonly tokens: readonly number[];
}

async function scoresOf(folder: string, goldens: readonly Golden[], more: readonly string[] = []): Promise<Scored[]> {
  const input = join(temporaryFolder(), 'solutions.jsonl');
  writeFileSync(input, linesOf(goldens, ['id', 'question', 'steps']));
  const options = ['--target', 'cuda', '--precision', 'bf16', '--json', '--quiet', ...more];
  const output = await tilewright(['reward', folder, '--input', input, ...options]);
  return output
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Scored);
}

describe('reward models', { skip }, () => {
  for (const name of VERIFIERS)
    it(`are as near to float64 as bf16 allows: ${name}`, async () => {
      const goldens = goldensOf(SHARED, name);
      const found = await scoresOf(asComputed(SHARED, name, temporaryFolder()), goldens);
      assert.deepEqual(
        found.map(({ tokens }) => tokens),
        goldens.map(({ tokens }) => tokens),
      );
      const [mean, most] = errorsOf(
        found.map(({ scores }) => scores),
        goldens,
      );
      const isOfClasses = CLASS_VERIFIERS.find((each) => each === name);
      const [ownMean, ownMost] = isOfClasses === undefined ? OF_VERDICTS : BF16_ERRORS[isOfClasses];
      console.log(
        `${name}: mean error ${mean.toFixed(4)} (bf16's own ${ownMean}), at most ${most.toFixed(3)} (${ownMost})`,
      );
      assert(mean <= MOST.mean * ownMean, 'further from float64 than bf16 is');
      assert(most <= MOST.largest * ownMost, 'a score is further from float64 than bf16 is');
    });
});

/** A model with made-up weights and a head of so many labels. */
function classifier(labels: number): ModelRequest {
  const folder = temporaryFolder();
  const config = {
    architectures: ['LlamaForTokenClassification'],
    model_type: 'llama',
    torch_dtype: 'bfloat16',
    num_labels: labels,
    hidden_size: 512,
    intermediate_size: 1024,
    num_hidden_layers: 3,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    vocab_size: 4096,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
  };
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  copyFileSync(join(DEMO, 'tokenizer.json'), join(folder, 'tokenizer.json'));
  return { model: join(folder, 'config.json'), init: { kind: 'random', seed: 7 }, threads: 2 };
}

/** Every fifth position of each sequence, and its last. */
const positionsOf = (tokens: readonly number[]): readonly number[] =>
  [...tokens.keys()].filter((at) => at % 5 === 0 || at === tokens.length - 1);

const rowsOf = async (engine: Engine): Promise<number[][]> =>
  Promise.all(
    SEQUENCES.map(async (tokens) => {
      const rows = await engine.submit({ kind: 'reward', tokens, positions: positionsOf(tokens) }).result();
      return rows.flatMap(({ logits }) => [...logits]);
    }),
  );

describe('heads of classes', { skip: device.skip }, () => {
  for (const labels of [1, 2, 3, 19])
    it(`give the same bits in any chunks and from pages: ${labels}`, async () => {
      const model: LoadedModel = await loadOnDevice(classifier(labels));
      try {
        const engine = engineOf(model);
        const wanted = await rowsOf(engine);
        SEQUENCES.forEach((tokens, i) => assert.equal(wanted[i]!.length, labels * positionsOf(tokens).length));
        assert(wanted.flat().every((value) => Number.isFinite(value) && value !== 0));
        assert.deepEqual(await rowsOf(engine), wanted, 'from pages');
        for (const tokens of [1, 7, 100])
          assert.deepEqual(
            await rowsOf(Engine.of(stepperFor(model, {}, { tokens, rows: tokens }))),
            wanted,
            `in chunks of ${tokens}`,
          );
      } finally {
        await model.close();
      }
    });
});
