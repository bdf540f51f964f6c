/**
 * Contexts first, then choices on their keys and values (`--sharing kv`): the same files as with trees, on any number
 * of devices, also where a run or one of its devices is killed.
 */
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { midst } from './children.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import {
  CAPACITY,
  failure,
  isBuilt,
  killedAt,
  runArguments,
  success,
  temporaryFolder,
  textOf,
  tilewright,
} from './support.js';

interface Results {
  readonly config: { readonly sharing: string };
  readonly throughput: { readonly tokensComputed: number; readonly questions: number };
}
const resultsOf = (out: string): Results => JSON.parse(textOf(out, 'results')) as Results;

describe.skipIf(!isBuilt)('contexts before choices', () => {
  const model = writeCheckpoint();
  const data = writeData(questions(300));
  // Kernels of this size are those of other tests.
  const KV = ['--sharing', 'kv', '--cache-tokens', '512'];
  const run = (out: string, ...more: string[]): string[] => runArguments(model, data, '--out', out, ...more);
  const score = async (...more: string[]): Promise<{ readonly out: string; readonly stderr: string }> => {
    const out = temporaryFolder();
    return { out, stderr: success(await tilewright(run(out, ...more))).stderr };
  };
  let samples = '';

  beforeAll(async () => {
    samples = textOf((await score('--sharing', 'tree')).out, 'samples');
  });

  test('give the bytes of trees, and compute what a dry run counts', async () => {
    const { out, stderr } = await score(...KV, '--verbose');
    expect(textOf(out, 'samples')).toBe(samples);
    expect(stderr).toMatch(/sharing kv: [\d,]+ tokens, contexts before choices; keys and values: room for 512 tokens/);
    const { config, throughput } = resultsOf(out);
    expect(config.sharing).toBe('kv');
    const { stdout } = success(await tilewright(run(temporaryFolder(), ...KV, '--dry-run', '--json')));
    const planned = JSON.parse(stdout) as Record<string, unknown>;
    expect(planned).toMatchObject({ sharing: 'kv', prefixes: 'repeat', tokensRepeated: throughput.tokensComputed });
    expect(planned['microBatches']).toBeGreaterThan(throughput.tokensComputed / 96);
  });

  test.each([[['--devices', '2']], [['--parallel', 'pp=2']], [['--trace', join(temporaryFolder(), 'trace.json')]]])(
    'give the same with %j',
    async (flags) => {
      expect(textOf((await score(...KV, ...flags)).out, 'samples')).toBe(samples);
    },
  );

  test('survive the end of a run, which goes on in the same way only', async () => {
    const out = temporaryFolder();
    await killedAt(4000, out, run(out, ...KV));
    const { error } = failure(await tilewright(run(out, '--resume')));
    expect(error).toMatch(/differs in .*sharing/);
    const { stderr } = success(await tilewright(run(out, '--resume', ...KV)));
    expect(stderr).toMatch(/\d+ questions taken over/);
    expect(resultsOf(out).throughput.questions).toBeLessThan(300);
    expect(textOf(out, 'samples')).toBe(samples);
  });

  test('are computed again where the process of a device ends', async () => {
    const out = temporaryFolder();
    const { stderr } = success(
      await tilewright(run(out, ...KV, '--devices', '2'), {
        onProgress: midst(2, (pids) => process.kill(pids[1]!, 'SIGKILL')),
      }),
    );
    expect(stderr).toMatch(/device 1: the device process ended \(SIGKILL\): another one takes over/);
    expect(textOf(out, 'samples')).toBe(samples);
  });

  test('are merged from shards', async () => {
    const parts = temporaryFolder();
    for (const shard of ['1/2', '2/2']) success(await tilewright(run(parts, ...KV, '--shard', shard)));
    const merged = temporaryFolder();
    success(await tilewright(['merge', parts, '--out', merged]));
    expect(textOf(merged, 'samples')).toBe(samples);
  });

  test('are refused where there is no room for them', async () => {
    const small = failure(await tilewright(run(temporaryFolder(), '--sharing', 'kv', '--cache-tokens', '64')));
    expect(small.error).toMatch(/^--cache-tokens 64: --sharing kv keeps contexts beside a call of choices, 192 tokens/);
    expect(small.hint).toContain('--cache-tokens 192');
    const artifact = join(temporaryFolder(), 'small.tw');
    success(await tilewright(['compile', model, ...CAPACITY, '-o', artifact]));
    const command = ['run', artifact, '--task', 'multiple_choice', '--data', data, '--threads', '2'];
    const none = failure(await tilewright([...command, '--sharing', 'kv']));
    expect(none.error).toMatch(/^--sharing kv: no room for the keys and values of 192 tokens/);
    expect(none.hint).toContain('--sharing tree');
    const kept = failure(await tilewright(run(temporaryFolder(), ...KV, '--prefixes', 'keep')));
    expect(kept.error).toContain('trees have no beginning in common');
  });
});
