/**
 * Five-shot MMLU: what each way of sharing computes of all questions, and the same answers in every way for some of
 * them.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { isBuilt, ROOT, success, temporaryFolder, textOf, tilewright } from '../e2e/support.js';

const SHARED = join(ROOT, '..', 'shared');
const HUB = join(SHARED, 'data', 'hub', 'cais', 'mmlu');
const MODEL = join(SHARED, 'checkpoints', 'gqa-4m');

interface Plan {
  readonly questions: number;
  readonly tokensWithoutSharing: number;
  readonly tokensGrouped: number;
  readonly tokensKept: number;
  readonly tokensKeptByDevice: readonly number[];
  readonly tokensShared: number;
}

describe.skipIf(!isBuilt || !existsSync(HUB))('five-shot MMLU', () => {
  const data = join(temporaryFolder(), 'mmlu.jsonl');
  const task = ['--task', 'multiple_choice', '--data', data];
  beforeAll(() => {
    execFileSync(process.execPath, [join(ROOT, 'scripts', 'mmlu.mjs'), HUB, data]);
  });

  test.each([
    ['one device', '8192', 1],
    ['four devices', '8192', 4],
    ['small calls', '4096', 1],
  ])('takes less than a sixth of one-letter grouping, and what it must: %s', async (_title, tokens, lanes) => {
    // A shape with a long context, and a tokenizer of 32,000 tokens.
    const shape = temporaryFolder();
    copyFileSync(join(ROOT, 'bench', 'models', 'llama-8b', 'config.json'), join(shape, 'config.json'));
    copyFileSync(join(SHARED, 'data', 'llama_tokenizer.model'), join(shape, 'tokenizer.model'));
    const flags = ['--init', 'random:1', '--batch-tokens', tokens, '--parallel', `dp=${lanes}`, '--dry-run', '--json'];
    const { stdout } = success(await tilewright(['run', shape, ...task, ...flags]));
    const plan = JSON.parse(stdout) as Plan;
    expect(plan.questions).toBe(14_042);
    expect(plan.tokensKeptByDevice).toHaveLength(lanes);
    expect(plan.tokensGrouped / plan.tokensKept).toBeGreaterThanOrEqual(6.2);
    expect(plan.tokensKept / plan.tokensShared).toBeLessThanOrEqual(1.03);
  });

  test('has the same answers with prefixes kept, repeated and nothing shared', async () => {
    // The end of one subject and the beginning of the next, and the last subject.
    const some = ['--docs', '90:110,14030:', '--threads', '2'];
    const samples = [];
    for (const way of [
      ['--prefixes', 'keep'],
      ['--prefixes', 'repeat'],
      ['--sharing', 'none'],
    ]) {
      const out = temporaryFolder();
      success(await tilewright(['run', MODEL, ...task, ...some, ...way, '--out', out]));
      samples.push(textOf(out, 'samples'));
    }
    expect(samples[1]).toBe(samples[0]);
    expect(samples[2]).toBe(samples[0]);
  });
});
