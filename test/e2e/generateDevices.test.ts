/**
 * `generate` on several devices of a CPU: replicas that share prompts out, pipelines whose stages keep the keys and
 * values of their layers, and devices that are killed. The texts are those of one device, to the bit.
 */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import type * as Library from '../../index.js';
import { holdUntilLoaded } from './children.js';
import { writeCheckpoint } from './smallModel.js';
import { CACHE, CAPACITY, failure, isBuilt, ROOT, success, temporaryFolder, tilewright } from './support.js';
import { thorough } from '../support/thorough.js';

describe.skipIf(!isBuilt)('generate on several devices', () => {
  const model = writeCheckpoint();
  const file = join(temporaryFolder(), 'prompts.jsonl');
  const lengths = [3, 40, 17, 80, 33, 1, 64, 20, 9, 50];
  const prompts = lengths.map((length, i) => ({
    tokens: Array.from({ length }, (_, at) => (at < 16 && i % 2 === 0 ? at + 4 : 4 + ((at * 37 + i * 101) % 300))),
  }));
  const TOKENS = 24;
  const run = (flags: readonly string[], onPiece?: (press: () => void) => void) =>
    tilewright(
      [
        ...['generate', model, '--prompts', file, '--json', '--ignore-eos', '--max-new-tokens', String(TOKENS)],
        ...['--target', 'cpu', '--precision', 'f32', '--threads', '1', '--cache-tokens', '512', ...CAPACITY, ...flags],
      ],
      onPiece === undefined ? {} : { onPiece },
    );
  /** What a prompt found in pages depends on which other prompts its replica had. */
  const textsOf = (stdout: string): unknown[] =>
    stdout
      .trimEnd()
      .split('\n')
      .map((line) => ({ ...(JSON.parse(line) as object), foundTokens: 0 }));
  /** Less room than all prompts take: what waits for it goes to the device that has loaded last. */
  const ROOM = ['--cache-tokens', '256'];
  /**
   * Acts once, when so many tokens have come. The first one is held until all devices have loaded, so that each has
   * something to do by then.
   */
  const after = (count: number, act: (pids: readonly number[], press: () => void) => void) => {
    let tokens = 0;
    return (press: () => void): void => {
      tokens++;
      if (tokens === 1) holdUntilLoaded();
      if (tokens === count) act(holdUntilLoaded(), press);
    };
  };
  let alone: unknown[] = [];
  let drawn: unknown[] = [];

  beforeAll(async () => {
    writeFileSync(file, prompts.map((prompt) => `${JSON.stringify(prompt)}\n`).join(''));
    alone = textsOf(success(await run([])).stdout);
    drawn = textsOf(success(await run(['--temperature', '1', '--n', '3'])).stdout);
    expect([alone.length, drawn.length]).toEqual([prompts.length, 3 * prompts.length]);
  });

  test('gives the texts of one device as two pipelines of two stages', async () => {
    const flags = ['--parallel', 'dpxpp=2x2'];
    const { stdout, stderr } = success(await run(flags));
    expect(stderr).toBe('');
    expect(textsOf(stdout)).toEqual(alone);
    expect(textsOf(success(await run([...flags, '--temperature', '1', '--n', '3'])).stdout)).toEqual(drawn);
  });

  const WAYS = [
    [['--devices', '2'], 2],
    [['--parallel', 'pp=2'], 1],
  ] as const;
  thorough.each(WAYS)('gives the same texts if one of %j is killed in the middle', async (flags, processes) => {
    const killed: number[] = [];
    const { stdout, stderr } = success(
      await run(
        [...flags, ...ROOM],
        after(30, (pids) => {
          expect(pids.length).toBe(processes);
          killed.push(pids.at(-1)!);
          process.kill(pids.at(-1)!, 'SIGKILL');
        }),
      ),
    );
    expect(killed).toHaveLength(1);
    expect(stderr).toContain('the device process ended (SIGKILL): another one takes over what is left');
    expect(textsOf(stdout)).toEqual(alone);
  });

  thorough.each([
    [{ replicas: 2, stages: 1 }, 2],
    [{ replicas: 1, stages: 2 }, 1],
  ])('gives the same texts if all of %j are killed between two calls', async (parallel, processes) => {
    vi.stubEnv('TILEWRIGHT_CACHE', CACHE);
    const { openModel } = (await import(pathToFileURL(join(ROOT, 'dist', 'index.js')).href)) as typeof Library;
    const warnings: string[] = [];
    /** Prompts of several pages, for all of which there is room. */
    const kept = [1, 3, 4];
    const loaded = await openModel({
      ...{ model, target: 'cpu', precision: 'f32', threads: 2, batchTokens: 96, cacheTokens: 512, parallel },
      onProgress: (event) => {
        if (event.kind === 'warning') warnings.push(event.text);
      },
    });
    const write = async () => {
      const texts: unknown[] = [];
      const options = { prompts: kept.map((i) => prompts[i]!), maxNewTokens: TOKENS, ignoreEos: true };
      for await (const event of loaded.generate(options))
        if (event.kind === 'end') texts[event.prompt] = { tokens: event.tokens, logprobs: event.logProbs };
      return texts;
    };
    try {
      const wanted = kept.map((i) => {
        const { tokens, logprobs } = alone[i] as { readonly tokens: unknown; readonly logprobs: unknown };
        return { tokens, logprobs };
      });
      expect(await write()).toEqual(wanted);
      const pids = holdUntilLoaded();
      expect(pids).toHaveLength(processes);
      for (const pid of pids) process.kill(pid, 'SIGKILL');
      // This process then knows that they are gone, and nothing was pending that would have told the scheduler.
      await expect.poll(() => pids.some((pid) => existsSync(`/proc/${pid}`)), { timeout: 30_000 }).toBe(false);
      expect(await write()).toEqual(wanted);
      expect(warnings.filter((line) => line.includes('the device process ended (SIGKILL)'))).toHaveLength(processes);
    } finally {
      await loaded.close();
      vi.unstubAllEnvs();
    }
  });

  thorough('keeps what was generated when it is stopped', async () => {
    const { status, stdout, stderr } = await run(
      ['--devices', '2', ...ROOM],
      after(30, (_, press) => press()),
    );
    expect(status, stderr).toBe(130);
    const texts = textsOf(stdout) as { readonly reason: string; readonly tokens: readonly number[] }[];
    expect(texts).toHaveLength(prompts.length);
    for (const [i, { reason, tokens }] of texts.entries()) {
      expect(reason).toBe('aborted');
      expect((alone[i] as { readonly tokens: readonly number[] }).tokens.slice(0, tokens.length)).toEqual(tokens);
    }
  });

  test('says how many stages there can be', async () => {
    const { error, hint } = failure(await run(['--parallel', 'pp=9']));
    expect(`${error}; ${hint}`).toMatch(/9 stages of a .*use at most --parallel pp=\d/);
  });
});
