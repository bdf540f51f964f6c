/** Whole evaluations on a real device against float64: checkpoint and questions in, sample files out. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { DEMO, EXAMPLES, readSamples, tilewright } from './command.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { compareGolden, EVERYDAY, type Compared, type Yardstick } from './golden.js';
import { temporaryFolder } from './support.js';

const { skip } = await deviceHere();

const skipShared = skipWithout(skip, join(SHARED, 'golden'), "golden log-likelihoods of HellaSwag's 10,042 questions");

/** Errors of transformers' own 16-bit runs against float64 on all questions, by model and arithmetic. */
const YARDSTICKS: readonly (Yardstick & { readonly model: string; readonly precision: 'bf16' | 'f16' })[] = [
  { model: 'demo', precision: 'bf16', error: 0.19, agreement: 0.992 },
  { model: 'mha-2m', precision: 'f16', error: 0.026, agreement: 0.9993 },
  { model: 'mha-2m', precision: 'bf16', error: 0.255, agreement: 0.9934 },
  { model: 'gqa-4m', precision: 'bf16', error: 0.276, agreement: 0.9941 },
  { model: 'gqa-4m', precision: 'f16', error: 0.035, agreement: 0.9992 },
];

/** Scores a question set and returns the samples. */
async function score(model: string, data: string, options: readonly string[], task = 'hellaswag'): Promise<string> {
  const out = temporaryFolder();
  await tilewright(['run', model, '--target', 'cuda', '--task', task, '--data', data, '--out', out, ...options]);
  return readSamples(out);
}

/** The same check for a few questions. */
function isUsual(what: string, { questions, error, others, turnedBy }: Compared): void {
  const bounds = `(at most ${EVERYDAY.others}) chosen differently by errors of ${turnedBy.toFixed(3)}`;
  console.log(
    `${what}: ${questions} questions, mean error ${error.toFixed(4)} (at most ${EVERYDAY.error}), ` +
      `${others} ${bounds} (at most ${EVERYDAY.turnedBy})`,
  );
  assert(
    error <= EVERYDAY.error && others <= EVERYDAY.others && turnedBy <= EVERYDAY.turnedBy,
    `${what} is further from float64 than it may be`,
  );
}

function isWithin(what: string, got: Compared, { error, agreement }: Yardstick): void {
  console.log(
    `${what}: ${got.questions} questions, mean error ${got.error.toFixed(4)} (at most ${error}), ` +
      `same choice ${(100 * got.agreement).toFixed(2)} % (at least ${(100 * agreement).toFixed(2)})`,
  );
  assert(got.error <= error && got.agreement >= agreement - 1e-9, `${what} is further from float64 than it may be`);
}

describe('whole evaluations', { skip }, () => {
  it('agree with float64 on the examples, to the same bytes for every size of micro-batch', async () => {
    const sizes = [undefined, 4096, 2048, 1531, 1024];
    const [first, ...others] = await Promise.all(
      sizes.map((size) => score(DEMO, EXAMPLES, size === undefined ? [] : ['--batch-tokens', String(size)])),
    );
    const golden = readFileSync(join(import.meta.dirname, 'golden', 'everyday-demo.jsonl'), 'utf8');
    isUsual('examples', compareGolden(first!, golden));
    others.forEach((samples, i) =>
      assert(samples === first, `micro-batches of ${sizes[i + 1]!} tokens give other samples than the default's`),
    );
  });

  it('agree with float64 without sharing', async () => {
    const golden = readFileSync(join(import.meta.dirname, 'golden', 'everyday-demo.jsonl'), 'utf8');
    for (const sharing of ['none', 'context'])
      isUsual(
        `examples, sharing ${sharing}`,
        compareGolden(await score(DEMO, EXAMPLES, ['--sharing', sharing]), golden),
      );
  });

  it('agree with float64 on all questions, as near as transformers in 16 bits', { skip: skipShared }, async () => {
    const data = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
    const runs = YARDSTICKS.filter(({ model }) => existsSync(join(SHARED, 'checkpoints', model)));
    assert(runs.length > 0, 'the folder ../shared has no checkpoint of its golden files');
    const samples = await Promise.all(
      runs.map(({ model, precision }) => score(join(SHARED, 'checkpoints', model), data, ['--precision', precision])),
    );
    runs.forEach(({ model, precision, ...yardstick }, i) => {
      isWithin(
        `${model}, ${precision}`,
        compareGolden(samples[i]!, readFileSync(join(SHARED, 'golden', `${model}.jsonl`), 'utf8')),
        yardstick,
      );
    });
  });

  it('agree with float64 on ARC-Challenge', { skip: skipShared }, async () => {
    const samples = await score(DEMO, join(SHARED, 'data', 'arc_challenge_test.jsonl.gz'), [], 'arc_challenge');
    isWithin(
      'demo, ARC-Challenge',
      compareGolden(samples, readFileSync(join(SHARED, 'golden', 'arc-demo.jsonl'), 'utf8')),
      YARDSTICKS[0]!,
    );
  });
});
