/**
 * Questions that are longer than a call: they are cut into calls that keep keys and values, for the same files as with
 * calls that hold them.
 */
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { CONTEXT, questions, writeCheckpoint, writeData, type WrittenQuestion } from './smallModel.js';
import {
  CAPACITY,
  failure,
  filesOf,
  isBuilt,
  runArguments,
  success,
  temporaryFolder,
  textOf,
  tilewright,
} from './support.js';

/** Every third question has a text of about 50, 130 or, which the model's context cuts, 200 tokens. */
function ofThreeLengths(count: number): WrittenQuestion[] {
  const all = questions(count + 12).map(({ context }) => context);
  return questions(count).map((question, i) => {
    const before = [0, 3, 6][i % 3]!;
    return { ...question, context: [...all.slice(i % 5, (i % 5) + before), question.context].join('. ') };
  });
}

describe.skipIf(!isBuilt)('questions that are longer than a call', () => {
  const model = writeCheckpoint();
  const data = writeData(ofThreeLengths(60));
  // Kernels of this size are those of other tests, as are calls of 96 tokens.
  const CACHE = ['--cache-tokens', '512'];
  const run = (out: string, ...more: string[]): string[] => runArguments(model, data, '--out', out, ...more);
  const score = async (...more: string[]): Promise<{ readonly out: string; readonly stderr: string }> => {
    const out = temporaryFolder();
    return { out, stderr: success(await tilewright(run(out, ...more))).stderr };
  };
  let samples = '';

  beforeAll(async () => {
    const { out, stderr } = await score('--batch-tokens', String(CONTEXT), '--prefixes', 'repeat');
    samples = textOf(out, 'samples');
    expect(stderr).toMatch(/\d+ choices are too long, with the context, for the model's 160 tokens/);
  });

  test('are cut where nothing is said, and the output says why', async () => {
    const { out, stderr } = await score(...CACHE, '--verbose');
    expect(textOf(out, 'samples')).toBe(samples);
    expect(stderr).toMatch(
      /prefixes: kept, [\d,]+ tokens in calls of up to 96, since question \d+ has 1\d\d; keys and/,
    );
  });

  test.each([
    [['--prefixes', 'keep', '--devices', '2']],
    [['--prefixes', 'keep', '--parallel', 'pp=2']],
    [['--sharing', 'kv']],
    [['--sharing', 'kv', '--devices', '2']],
    [['--trace', join(temporaryFolder(), 'trace.json')]],
  ])('give the same with %j', async (flags) => {
    expect(textOf((await score(...CACHE, ...flags)).out, 'samples')).toBe(samples);
  });

  test('are cut with an artifact of small calls', async () => {
    const artifact = join(temporaryFolder(), 'small.tw');
    success(await tilewright(['compile', model, '-o', artifact, ...CAPACITY, ...CACHE]));
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright([
        ...['run', artifact, '--task', 'multiple_choice', '--data', data, '--threads', '1', '--out', out, '--verbose'],
      ]),
    );
    expect(textOf(out, 'samples')).toBe(samples);
    expect(stderr).toContain('in calls of up to 96, since question');
  });

  test('are divided among shards', async () => {
    const out = temporaryFolder();
    for (const shard of ['1/2', '2/2']) success(await tilewright(run(out, ...CACHE, '--shard', shard)));
    const merged = temporaryFolder();
    success(await tilewright(['merge', out, '--out', merged]));
    expect(textOf(merged, 'samples')).toBe(samples);
  });

  test('are refused where trees compute them, with both ways out', async () => {
    for (const flags of [
      ['--prefixes', 'repeat'],
      ['--sharing', 'context'],
    ]) {
      const { error, hint } = failure(await tilewright(run(temporaryFolder(), ...flags)));
      expect(error).toMatch(/question \d+, choice 0: 1\d\d input tokens .*, but the largest micro-batch is 96$/m);
      expect(hint).toContain(
        "use a larger --batch-tokens, if the model's context allows it, or --sharing tree --prefixes",
      );
    }
  });

  test('are refused where there is no memory for keys and values', async () => {
    const artifact = join(temporaryFolder(), 'small.tw');
    success(await tilewright(['compile', model, ...CAPACITY, '-o', artifact]));
    const out = temporaryFolder();
    const { error } = failure(
      await tilewright([
        'run',
        artifact,
        '--task',
        'multiple_choice',
        '--data',
        data,
        '--out',
        out,
        '--prefixes',
        'keep',
      ]),
    );
    expect(error).toContain('--prefixes keep: no room for the keys and values of');
    const plain = ['run', artifact, '--task', 'multiple_choice', '--data', data, '--out', out];
    expect(failure(await tilewright(plain)).error).toContain('but the largest micro-batch is 96');
  });

  test('are counted by a dry run, which knows that trees cannot hold them', async () => {
    const out = temporaryFolder();
    const { stdout } = success(await tilewright(run(out, ...CACHE, '--dry-run', '--json')));
    const planned = JSON.parse(stdout) as Record<string, unknown>;
    expect(planned).toMatchObject({ prefixes: 'keep', tokensRepeated: null, microBatches: null, longest: CONTEXT });
    expect(planned['tokensKept']).toBeLessThan(1.1 * Number(planned['tokensShared']));
    const { stdout: text } = success(await tilewright(run(out, ...CACHE, '--dry-run')));
    expect(text).toMatch(/^--prefixes repeat +– +cannot be: a question is longer than 96 tokens$/m);
    expect(filesOf(out, 'samples')).toEqual([]);
  });
});
