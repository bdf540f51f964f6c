/** Whole evaluations on several GPUs: every placement gives one GPU's answers, and these agree with float64. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { DEMO, EXAMPLES, readSamples, ROOT, tilewright } from './command.js';
import { compareGolden } from './golden.js';
import { archOf } from './launcher.js';
import { compilerOrReason, temporaryFolder } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
/** GPUs that run one plan. */
const alike = available.ok ? available.devices.filter(({ name }) => name === available.devices[0]?.name).length : 0;
const skip =
  typeof compiler === 'string'
    ? compiler
    : alike < 2
      ? `there are ${alike} GPUs of a kind; placements need two`
      : false;

const SHARED = join(ROOT, '..', 'shared');
const HELLASWAG = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
const skipShared =
  skip !== false
    ? skip
    : existsSync(join(SHARED, 'golden'))
      ? false
      : `golden log-likelihoods of HellaSwag's 10,042 questions: ${join('..', 'shared')} is not beside this folder`;

/** Placements that fit this many GPUs, at most four. */
const placements = (gpus: number): readonly string[] => [
  ...[2, 3, 4].filter((n) => n <= gpus).flatMap((n) => [`dp=${n}`, `pp=${n}`]),
  ...(gpus >= 4 ? ['dpxpp=2x2'] : []),
];

async function score(model: string, data: string, parallel?: string): Promise<string> {
  const out = temporaryFolder();
  await tilewright([
    'run',
    model,
    '--target',
    'cuda',
    '--task',
    'hellaswag',
    '--data',
    data,
    '--out',
    out,
    ...(parallel === undefined ? [] : ['--parallel', parallel]),
  ]);
  return readSamples(out);
}

async function agree(model: string, data: string, golden: string, least: number): Promise<void> {
  const one = await score(model, data);
  const { questions, error, agreement } = compareGolden(one, readFileSync(golden, 'utf8'));
  console.log(
    `${model}: ${questions} questions, mean error ${error.toFixed(4)}, ` +
      `same choice ${(100 * agreement).toFixed(2)} % (at least ${(100 * least).toFixed(2)})`,
  );
  assert(agreement >= least - 1e-9, `${model} is further from float64 than it may be`);
  const others = await Promise.all(
    placements(alike).map(async (parallel) => ({ parallel, samples: await score(model, data, parallel) })),
  );
  const different = others.filter(({ samples }) => samples !== one).map(({ parallel }) => parallel);
  assert.deepEqual(different, [], `${model}: other samples than one GPU's`);
}

describe('placements on several GPUs', { skip }, () => {
  it("give one GPU's samples, to the byte: the examples", () =>
    agree(DEMO, EXAMPLES, join(import.meta.dirname, 'golden', 'everyday-demo.jsonl'), 1 - 1 / 136));

  for (const [model, least] of [
    ['demo', 0.992],
    ['mha-2m', 0.9934],
    ['gqa-4m', 0.9941],
  ] as const) {
    it(`give one GPU's samples, to the byte: all questions of HellaSwag on ${model}`, { skip: skipShared }, () =>
      agree(
        model === 'demo' ? DEMO : join(SHARED, 'checkpoints', model),
        HELLASWAG,
        join(SHARED, 'golden', `${model}.jsonl`),
        least,
      ),
    );
  }
});
