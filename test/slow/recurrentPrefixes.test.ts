/**
 * Questions of models with recurrent layers whose beginnings are kept in rows of states, in calls that are shorter than
 * some of them: the same files as in trees, on any number of devices, from an artifact, in two phases, and where a run
 * or one of its devices is killed, also by programs. Needs the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import type * as Library from '../../index.js';
import { midst } from '../e2e/children.js';
import { questions, writeData, type WrittenQuestion } from '../e2e/smallModel.js';
import { environment, isBuilt, killedAt, ROOT, success, temporaryFolder, textOf, tilewright } from '../e2e/support.js';
import { RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';

const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const CALL = 64;

/** Questions after one of six beginnings or half of it, with choices of a letter or of words; every ninth is long. */
function withShots(count: number): WrittenQuestion[] {
  const all = questions(count + 12);
  const shots = [0, 1, 2, 3, 4, 5].map((i) => `${all[2 * i]!.context}. ${all[2 * i + 1]!.context}.`);
  return all.slice(12).map(({ context, choices, label }, i) => {
    const shot = shots[i % 6]!;
    const long = i % 9 === 0 ? all.slice(i % 5, (i % 5) + 4).map((each) => each.context) : [];
    return {
      context: `${i % 4 === 0 ? shot.slice(0, shot.length / 2) : shot} ${[...long, context].join('. ')}`,
      choices: i % 3 === 0 ? choices.map((_, c) => ` ${'ABCDE'[c]!}`) : choices,
      label,
    };
  });
}

interface Throughput {
  readonly tokensComputed: number;
}
const computedBy = (out: string): number =>
  (JSON.parse(textOf(out, 'results')) as { readonly throughput: Throughput }).throughput.tokensComputed;

describe.skipIf(!existsSync(FAMILIES) || !isBuilt).each(RECURRENT_CHECKPOINTS)('%s', (family) => {
  const model = join(FAMILIES, family);
  const data = writeData(withShots(90));
  const SMALL = ['--target', 'cpu', '--batch-tokens', String(CALL), '--cache-tokens', '512'];
  const run = (own: string, out: string, ...flags: string[]): string[] => [
    ...['run', own, '--task', 'multiple_choice', '--data', data, '--threads', '2'],
    ...['--out', out, ...flags],
  ];
  const score = async (...flags: string[]): Promise<{ out: string; stderr: string }> => {
    const out = temporaryFolder();
    return { out, stderr: success(await tilewright(run(model, out, ...flags))).stderr };
  };
  let repeated = '';
  let samples = '';
  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    ({ out: repeated } = await score('--target', 'cpu', '--batch-tokens', '512', '--prefixes', 'repeat'));
    samples = textOf(repeated, 'samples');
  });

  test('computes beginnings once where they are kept, and counts them beforehand', async () => {
    const { out } = await score(
      '--target',
      'cpu',
      '--batch-tokens',
      '512',
      '--cache-tokens',
      '2048',
      '--prefixes',
      'keep',
    );
    expect(textOf(out, 'samples')).toBe(samples);
    expect(computedBy(out)).toBeLessThan(computedBy(repeated));
    const flags = [...SMALL, '--prefixes', 'keep'];
    const { stdout } = success(await tilewright(run(model, temporaryFolder(), ...flags, '--dry-run', '--json')));
    const small = await score(...flags);
    expect(textOf(small.out, 'samples')).toBe(samples);
    expect((JSON.parse(stdout) as { tokensKept: number }).tokensKept).toBe(computedBy(small.out));
  });

  test.each([
    [['--verbose'], /prefixes: kept, .* in calls of up to 64, since question \d+ has/],
    [['--prefixes', 'keep', '--parallel', 'dp=2'], /./],
    [['--prefixes', 'keep', '--parallel', 'pp=2'], /./],
    [['--sharing', 'kv'], /./],
  ])('has the answers of trees with %j', async (flags, said) => {
    const { out, stderr } = await score(...SMALL, ...flags);
    expect(textOf(out, 'samples')).toBe(samples);
    expect(stderr).toMatch(said);
  });

  test('has them from an artifact', async () => {
    const artifact = join(temporaryFolder(), 'small.tw');
    success(await tilewright(['compile', model, ...SMALL, '-o', artifact]));
    const out = temporaryFolder();
    success(await tilewright(run(artifact, out, '--prefixes', 'keep')));
    expect(textOf(out, 'samples')).toBe(samples);
  });

  test('has them in shards, and where a run or a device is killed', async () => {
    const parts = temporaryFolder();
    for (const shard of ['1/2', '2/2'])
      success(await tilewright(run(model, parts, ...SMALL, '--prefixes', 'keep', '--shard', shard)));
    const merged = temporaryFolder();
    success(await tilewright(['merge', parts, '--out', merged]));
    expect(textOf(merged, 'samples')).toBe(samples);
    const out = temporaryFolder();
    await killedAt(4000, out, run(model, out, ...SMALL, '--prefixes', 'keep'));
    success(await tilewright(run(model, out, ...SMALL, '--prefixes', 'keep', '--resume')));
    expect(textOf(out, 'samples')).toBe(samples);
    const survived = temporaryFolder();
    const { stderr } = success(
      await tilewright(run(model, survived, ...SMALL, '--prefixes', 'keep', '--devices', '2'), {
        onProgress: midst(2, (pids) => process.kill(pids[1]!, 'SIGKILL')),
      }),
    );
    expect(stderr).toMatch(/device 1: the device process ended \(SIGKILL\): another one takes over/);
    expect(textOf(survived, 'samples')).toBe(samples);
  });

  test('scores and generates in one program, which share rows of states', async () => {
    const { openModel } = (await import(pathToFileURL(join(ROOT, 'dist', 'index.js')).href)) as typeof Library;
    const open = await openModel({ model, target: 'cpu', threads: 2, batchTokens: 256, cacheTokens: 1024 });
    const asked = withShots(30);
    const write = async (): Promise<readonly (readonly number[])[]> => {
      const texts: (readonly number[])[] = [];
      for await (const event of open.generate({ prompts: [asked[0]!.context], maxNewTokens: 6, ignoreEos: true }))
        if (event.kind === 'end') texts.push(event.tokens, event.logProbs);
      return texts;
    };
    const score = async (more: Partial<Library.ScoreOptions>) =>
      (await open.score({ task: 'multiple_choice', data: asked.map((each) => ({ ...each })), ...more })).answers;
    try {
      const text = await write();
      const wanted = await score({ prefixes: 'repeat' });
      expect(await Promise.all([score({ prefixes: 'keep' }), write()])).toEqual([wanted, text]);
      expect(await score({ sharing: 'kv' })).toEqual(wanted);
      expect(await write()).toEqual(text);
    } finally {
      await open.close();
    }
  });
});
