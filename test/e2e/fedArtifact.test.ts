/**
 * An artifact whose steps take tokens that the call before them has drawn, as those for GPUs do: it writes and scores
 * what a model without does, also as a pipeline, which draws its tokens on another stage than the one that needs them.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { readManifest } from '../../driver/artifact/manifest.js';
import { saveArtifact } from '../../driver/artifact/save.js';
import { openOrCompile } from '../../driver/compile/open.js';
import { detectMachine } from '../../driver/targets/cpuDevice.js';
import { SILENT } from '../support/silent.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { environment, failure, isBuilt, success, temporaryFolder, textOf, tilewright } from './support.js';

const MAX_TOKENS = 96;

async function compileTo(path: string, model: string, feeds: boolean): Promise<void> {
  const { reference, model: compiled } = await openOrCompile(
    {
      ...{ model, init: { kind: 'checkpoint' }, target: 'cpu', precision: 'f32' },
      ...{ batchTokens: MAX_TOKENS, cacheTokens: 512, feeds },
    },
    detectMachine(),
    SILENT,
  );
  await saveArtifact(path, {
    reference,
    model: compiled,
    kernels: await compiled.target.compiler.compile(compiled),
    isTuned: false,
  });
}

describe.skipIf(!isBuilt)('an artifact whose calls overlap', () => {
  const folder = temporaryFolder();
  const [fed, plain] = [join(folder, 'fed.tw'), join(folder, 'plain.tw')];
  const file = join(folder, 'prompts.jsonl');

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    const model = writeCheckpoint();
    await compileTo(fed, model, true);
    await compileTo(plain, model, false);
    const prompts = [40, 3, 17, 80, 33, 1].map((length, i) => ({
      tokens: Array.from({ length }, (_, at) => 4 + ((at * 37 + i * 101) % 300)),
    }));
    writeFileSync(file, prompts.map((prompt) => `${JSON.stringify(prompt)}\n`).join(''));
  });

  const texts = async (artifact: string, ...flags: readonly string[]): Promise<string> => {
    const { stdout } = success(
      await tilewright([
        ...['generate', artifact, '--prompts', file, '--json', '--ignore-eos', '--max-new-tokens', '24'],
        ...['--threads', '2', '--temperature', '0.7', '--n', '2', ...flags],
      ]),
    );
    return stdout.replace(/"foundTokens":\d+/g, '');
  };

  test('says so, and writes the same texts on one device, on two and as a pipeline', async () => {
    expect([readManifest(fed).feeds, readManifest(plain).feeds]).toEqual([true, undefined]);
    const wanted = await texts(plain);
    expect(wanted.trim().split('\n')).toHaveLength(12);
    expect(await texts(fed)).toBe(wanted);
    expect(await texts(fed, '--parallel', 'dp=2')).toBe(wanted);
    expect(await texts(fed, '--parallel', 'pp=2')).toBe(wanted);
    expect(await texts(plain, '--parallel', 'pp=2')).toBe(wanted);
  });

  test('scores the same over kept keys and values', async () => {
    const data = writeData(questions(20));
    const samples = async (artifact: string): Promise<string> => {
      const out = temporaryFolder();
      const flags = ['--task', 'multiple_choice', '--data', data, '--prefixes', 'keep', '--threads', '2'];
      success(await tilewright(['run', artifact, ...flags, '--out', out]));
      return textOf(out, 'samples');
    };
    expect(await samples(fed)).toBe(await samples(plain));
  });

  test('is refused if its manifest says otherwise', async () => {
    const manifest = join(plain, 'manifest.json');
    const copy = JSON.stringify({ ...readManifest(plain), feeds: true });
    writeFileSync(manifest, copy);
    const { error } = failure(await tilewright(['generate', plain, 'x']));
    expect(error).toContain('not the graph that the config.json of the checkpoint compiles to');
  });
});
