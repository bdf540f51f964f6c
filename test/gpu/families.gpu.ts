/**
 * Checkpoints of all families on a real device beside transformers in float64: 250 questions each, as near as
 * transformers' own bf16 runs, and to the same bits when the function `step` computes them.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { FAMILY_CHECKPOINTS, RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { readSamples, tilewright } from './command.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { compareGolden, type Yardstick } from './golden.js';
import { temporaryFolder } from './support.js';

const FOLDER = join(SHARED, 'checkpoints', 'families');
const device = await deviceHere();
const skip = skipWithout(device.skip, FOLDER, 'checkpoints of families');

const CHECKPOINTS = [...FAMILY_CHECKPOINTS, ...RECURRENT_CHECKPOINTS] as const;
type Checkpoint = (typeof CHECKPOINTS)[number];

/** Mean error and share of equal choices of transformers' own bf16 runs against float64 on these questions. */
const YARDSTICKS: Readonly<Record<Checkpoint, readonly [error: number, agreement: number]>> = {
  mistral: [0.25, 0.984],
  phi3: [0.27, 0.988],
  olmo2: [0.26, 1],
  olmo3: [0.25, 0.988],
  granite: [0.23, 1],
  qwen2: [0.94, 0.996],
  'qwen2-window': [0.26, 0.992],
  qwen3: [0.99, 0.992],
  gemma: [0.31, 0.996],
  gemma2: [0.26, 1],
  gemma3: [0.31, 0.972],
  smollm3: [1.16, 0.992],
  stablelm: [0.27, 0.996],
  cohere2: [0.32, 0.984],
  'gpt-neox': [0.26, 0.992],
  mixtral: [0.41, 0.964],
  'qwen3-moe': [0.33, 0.988],
  'qwen2-moe': [0.31, 0.992],
  'llama-yarn': [0.28, 0.992],
  'llama-bias': [0.25, 0.996],
  'seed-oss': [0.097, 0.992],
  arcee: [0.083, 0.996],
  'ernie4.5': [0.58, 0.996],
  'hunyuan-dense': [0.064, 1],
  glm: [0.076, 0.992],
  glm4: [0.087, 0.996],
  exaone4: [0.079, 0.988],
  starcoder2: [0.28, 0.996],
  cohere: [0.11, 1],
  nemotron: [0.32, 0.992],
  phi: [0.036, 1],
  falcon: [0.36, 1],
  gpt2: [0.029, 1],
  opt: [0.26, 1],
  apertus: [0.055, 1],
  bloom: [0.27, 1],
  mpt: [0.049, 0.992],
  llama4: [0.12, 1],
  olmoe: [0.17, 0.996],
  'granite-moe': [0.44, 0.988],
  'glm4-moe': [0.42, 0.988],
  'minimax-m2': [0.4, 0.988],
  'gpt-oss': [0.17, 0.988],
  'gpt-oss-mxfp4': [0.17, 0.988],
  'deepseek-v2': [0.21, 0.988],
  'deepseek-v3': [0.57, 0.984],
  'qwen3.5': [0.36, 0.988],
  'qwen3-next': [1.69, 0.98],
  lfm2: [0.69, 0.984],
  mamba2: [0.66, 0.996],
};

/**
 * 250 questions decide a share to one question, so one choice more may differ than in transformers' run; the mean error
 * is over 1,000 log-likelihoods and may not be larger.
 */
const isAsNear = (got: Yardstick & { readonly questions: number }, error: number, agreement: number): boolean =>
  got.error <= error && got.agreement >= agreement - 1 / got.questions - 1e-9;

async function score(name: string, options: readonly string[]): Promise<string> {
  const out = temporaryFolder();
  const data = join(SHARED, 'data', 'hellaswag_val.jsonl.gz');
  const common = ['run', join(FOLDER, name), '--target', 'cuda', '--precision', 'bf16', '--task', 'hellaswag'];
  await tilewright([...common, '--data', data, '--limit', '250', '--out', out, ...options]);
  return readSamples(out);
}

/** What --sharing kv keeps, recurrent layers do not have. */
const SHARINGS = [[], ['--sharing', 'none'], ['--sharing', 'kv']];
const isRecurrent = (name: Checkpoint): boolean => RECURRENT_CHECKPOINTS.some((each) => each === name);

describe('families', { skip }, () => {
  for (const name of CHECKPOINTS)
    it(`are as near to float64 as transformers in bf16: ${name}`, async () => {
      const [tree, ...others] = await Promise.all(
        SHARINGS.slice(0, isRecurrent(name) ? 2 : 3).map((options) => score(name, options)),
      );
      const golden = readFileSync(join(SHARED, 'golden', 'families', `${name}.jsonl`), 'utf8');
      const got = compareGolden(tree!, golden);
      const [error, agreement] = YARDSTICKS[name];
      console.log(
        `${name}: mean error ${got.error.toFixed(4)} (at most ${error}), ` +
          `same choice ${(100 * got.agreement).toFixed(1)} % (transformers ${(100 * agreement).toFixed(1)} %)`,
      );
      for (const samples of others) assert(samples === tree, 'sharing changes the answers');
      assert(isAsNear(got, error, agreement), 'further from float64 than it may be');
    });
});
