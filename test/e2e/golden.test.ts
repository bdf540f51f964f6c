/**
 * Log-likelihoods compared with float64 references, in f32, with every sharing mode: checkpoint and real questions in,
 * sample files out, compared by the checker that comes with the references. Needs the data folder beside the
 * repository.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { run } from '../../commands/run.js';
import { fuseExperts } from '../support/checkpoints.js';
import { DENSE_CHECKPOINTS, RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { quickCc } from '../support/runFolder.js';
import { SILENT } from '../support/silent.js';
import { casesHere, isThorough, thorough } from '../support/thorough.js';
import { environment, isBuilt, ROOT, temporaryFolder } from './support.js';

const SHARED = join(ROOT, '..', 'shared');
const hasShared = existsSync(join(SHARED, 'golden'));
if (!hasShared)
  process.stderr.write(
    'SKIPPED: end-to-end comparison with golden log-likelihoods: the folder ../shared is not beside the repository\n',
  );

interface Scored {
  readonly samplesPath: string;
  readonly tokensComputed: number;
}

async function score(
  model: string,
  task: string,
  data: string,
  limit: number,
  sharing: 'none' | 'context' | 'tree',
  batchTokens?: number,
): Promise<Scored> {
  const { samplesPath, results } = await run(
    {
      model: resolve(SHARED, 'checkpoints', model),
      init: { kind: 'checkpoint' },
      precision: 'f32',
      task,
      data: join(SHARED, 'data', data),
      sharing,
      threads: 2,
      limit,
      output: temporaryFolder(),
      resume: false,
      ...(batchTokens === undefined ? {} : { batchTokens }),
    },
    SILENT,
  );
  if (samplesPath === undefined) throw new Error('no samples were written');
  const { tokensComputed } = results['throughput'] as { readonly tokensComputed: number };
  return { samplesPath, tokensComputed };
}

/** The checker with its defaults. */
function compare(samplesPath: string, golden: string, count: number): void {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(SHARED, 'check', 'compare-golden.mjs'), samplesPath, join(SHARED, 'golden', golden)],
    { encoding: 'utf8' },
  );
  expect({ status, stdout, stderr }).toMatchObject({ status: 0, stderr: '' });
  expect(stdout).toMatch(new RegExp(`^${count} questions, `));
}

describe.skipIf(!hasShared || !isBuilt)('golden log-likelihoods', () => {
  beforeAll(() => {
    // Kernels that compute more than others here, with the product's own flags.
    const cc = quickCc();
    const own = cc === undefined ? {} : { TILEWRIGHT_CC: cc };
    for (const [name, value] of Object.entries(environment(own))) vi.stubEnv(name, value);
  });

  // One mode uses the default micro-batches, which are the largest; the others use small ones, whose kernels are
  // compiled sooner.
  const MODELS = [
    ['demo', isThorough ? 80 : 12, isThorough ? undefined : 128],
    ['gqa-4m', 60, 128],
    ['mha-2m', 60, 128],
  ] as const;
  test.each(casesHere<(typeof MODELS)[number]>(MODELS, 0))(
    'are reached for %s on %d questions of HellaSwag, in every sharing mode',
    async (model, count, batchTokens) => {
      const tokens: number[] = [];
      for (const sharing of ['none', 'context', 'tree'] as const) {
        const scored = await score(model, 'hellaswag', 'hellaswag_val.jsonl.gz', count, sharing, batchTokens);
        compare(scored.samplesPath, `${model}.jsonl`, count);
        tokens.push(scored.tokensComputed);
      }
      // Each mode shares something that the one before it did not.
      const [none = 0, context = 0, tree = 0] = tokens;
      expect(context).toBeLessThan(none * 0.7);
      expect(tree).toBeLessThan(context);
    },
  );

  const questions = isThorough ? 250 : 6;
  test.each(casesHere<string>(DENSE_CHECKPOINTS))(
    `are reached for families/%s on ${questions} questions of HellaSwag`,
    async (family) => {
      const model = `families/${family}`;
      const batchTokens = isThorough ? undefined : 128;
      const { samplesPath } = await score(model, 'hellaswag', 'hellaswag_val.jsonl.gz', questions, 'tree', batchTokens);
      compare(samplesPath, `${model}.jsonl`, questions);
    },
  );

  // Recurrent layers, which score alone.
  test.each(casesHere<string>(RECURRENT_CHECKPOINTS, 0))(
    `are reached for families/%s on ${questions} questions of HellaSwag`,
    async (family) => {
      const model = `families/${family}`;
      const batchTokens = isThorough ? undefined : 128;
      const { samplesPath } = await score(model, 'hellaswag', 'hellaswag_val.jsonl.gz', questions, 'tree', batchTokens);
      compare(samplesPath, `${model}.jsonl`, questions);
    },
  );

  // Experts: routers whose shares add up to 1 or do not, a shared expert, a layer without experts. A copy has all
  // experts of a layer in one tensor.
  const renamed = (name: string): string => name.replace('.block_sparse_moe.', '.mlp.');
  test.each(
    casesHere<string>([
      'olmoe',
      'granite-moe',
      'glm4-moe',
      'minimax-m2',
      'gpt-oss',
      'gpt-oss-mxfp4',
      'deepseek-v2',
      'deepseek-v3',
    ]),
  )(`are reached for families/%s on ${questions} questions of HellaSwag, or all before a tie`, async (family) => {
    const model = `families/${family}`;
    // Two experts are 5e-8 apart at a token of the question that follows (docs/families.md).
    const count = family === 'deepseek-v2' ? Math.min(questions, 213) : questions;
    const { samplesPath } = await score(model, 'hellaswag', 'hellaswag_val.jsonl.gz', count, 'tree');
    compare(samplesPath, `${model}.jsonl`, count);
  });

  const EXPERTS = [
    ['mixtral', { isTurned: false, rename: renamed }],
    ['qwen2-moe', { isTurned: true }],
    ['qwen3-moe', { isTurned: false }],
  ] as const;
  const few = 12;
  test.each(casesHere<(typeof EXPERTS)[number]>(EXPERTS))(
    `are reached for families/%s on ${few} questions of HellaSwag`,
    async (family, options) => {
      const model = `families/${family}`;
      const scored = (of: string): Promise<Scored> =>
        score(of, 'hellaswag', 'hellaswag_val.jsonl.gz', few, 'tree', 128);
      const { samplesPath } = await scored(model);
      compare(samplesPath, `${model}.jsonl`, few);
      for (const each of [options, { ...options, isTurned: !options.isTurned }]) {
        const copy = temporaryFolder();
        fuseExperts(join(SHARED, 'checkpoints', model), copy, each);
        const again = await scored(copy);
        expect(readFileSync(again.samplesPath, 'utf8'), JSON.stringify(each)).toBe(readFileSync(samplesPath, 'utf8'));
      }
    },
  );

  thorough('are reached for demo on 100 questions of ARC-Challenge', async () => {
    const batchTokens = isThorough ? undefined : 128;
    const data = 'arc_challenge_test.jsonl.gz';
    const { samplesPath } = await score('demo', 'arc_challenge', data, 100, 'tree', batchTokens);
    compare(samplesPath, 'arc-demo.jsonl', 100);
  });
});
