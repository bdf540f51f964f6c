/** `run --log-tokens`: the log-probability of every token of a choice, of questions and of tasks, also after a stop. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { TokenLine } from '../../evaluate/tokenLines.js';
import { failure, isBuilt, ROOT, success, temporaryFolder, tilewright } from './support.js';

const MODEL = join(ROOT, 'models', 'demo');
const QUESTIONS = ['--task', 'hellaswag', '--data', join(ROOT, 'examples', 'everyday.jsonl'), '--limit', '12'];
const HUB = join(ROOT, '..', 'shared', 'data', 'hub');

const run = (folder: string, ...flags: string[]) =>
  tilewright(['run', MODEL, '--precision', 'f32', '--target', 'cpu', '--threads', '2', '--out', folder, ...flags]);
const named = (folder: string, begin: string): string =>
  join(
    folder,
    'demo',
    readdirSync(join(folder, 'demo'))
      .filter((name) => name.startsWith(begin))
      .sort()
      .at(-1)!,
  );
const linesOf = <T>(path: string): T[] =>
  readFileSync(path, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as T);
interface Sample {
  readonly doc_id: number;
  readonly arguments: Readonly<Record<string, { readonly arg_1: string }>>;
  readonly resps: readonly (readonly (readonly [string, string])[])[];
}

/** Log-probabilities add up to what samples say, to the bit, and texts to what was asked. */
function expectEqual(folder: string, task: string): void {
  const tokens = linesOf<TokenLine>(named(folder, `tokens_${task}_`));
  const samples = linesOf<Sample>(named(folder, `samples_${task}_`));
  expect(tokens.map(({ doc_id }) => doc_id)).toEqual(samples.map(({ doc_id }) => doc_id));
  for (const [i, { choices }] of tokens.entries()) {
    const { resps, arguments: asked } = samples[i]!;
    expect(choices.map(({ logprobs }) => String(logprobs.reduce((sum, x) => sum + x, 0)))).toEqual(
      resps.map(([first]) => String(Number(first![0]))),
    );
    const texts = choices.map((each) => each.texts.slice(-each.logprobs.length).join(''));
    expect(texts).toEqual(Object.values(asked).map(({ arg_1 }) => arg_1));
  }
}

describe.skipIf(!isBuilt)('run --log-tokens', () => {
  it('writes what adds up to the log-likelihoods, and completes what an earlier run left without', async () => {
    const folder = temporaryFolder();
    success(await run(folder, ...QUESTIONS));
    const journal = named(folder, 'journal_');
    // As a run that was stopped leaves it: with answers, and without their tokens.
    writeFileSync(journal, `${readFileSync(journal, 'utf8').split('\n').slice(0, 6).join('\n')}\n`);
    success(await run(folder, ...QUESTIONS, '--resume', '--log-tokens'));
    expectEqual(folder, 'hellaswag');
    const again = success(await run(folder, ...QUESTIONS, '--resume', '--log-tokens'));
    expect(again.stderr).toContain('12 questions taken over');
    expectEqual(folder, 'hellaswag');
  });

  it('writes them of every task', async () => {
    const folder = temporaryFolder();
    const tasks = ['arc_challenge', 'truthfulqa_mc2'];
    success(await run(folder, '--tasks', tasks.join(), '--limit', '3', '--data_root', HUB, '--log-tokens'));
    for (const task of tasks) expectEqual(folder, task);
  });

  it('says what it needs', async () => {
    const { error, hint } = failure(await tilewright(['run', MODEL, ...QUESTIONS, '--log-tokens']));
    expect(`${error}; ${hint}`).toMatch(/--log-tokens .*needs --out/);
  });
});
