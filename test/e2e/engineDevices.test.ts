/**
 * An engine whose two models share the processes of two devices, one of which is killed while both compute: no request
 * is lost, and the texts are those that each model writes alone.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type * as Library from '../../index.js';
import { devicesOf, holdUntilLoaded } from './children.js';
import { safetensorsFile, tensorsOf, writeCheckpoint } from './smallModel.js';
import { environment, isBuilt, ROOT } from './support.js';

const NAMES = ['first', 'second'] as const;
const PROMPTS = [3, 40, 17, 80, 33, 1, 64, 20].map((length, i) => ({
  tokens: Array.from({ length }, (_, at) => (at < 16 && i % 2 === 0 ? at + 4 : 4 + ((at * 37 + i * 101) % 300))),
}));

describe.skipIf(!isBuilt)('an engine of two models on two devices', () => {
  const models = [writeCheckpoint(), writeCheckpoint({ weights: safetensorsFile(tensorsOf(2)) }, 'other')];
  const warnings: string[] = [];
  const open = async (parallel?: { readonly replicas: number; readonly stages: number }): Promise<Library.Engine> => {
    const { openEngine } = (await import(
      /* @vite-ignore */ pathToFileURL(join(ROOT, 'dist', 'index.js')).href
    )) as typeof Library;
    const shared = { target: 'cpu', precision: 'f32', threads: 2, batchTokens: 96, cacheTokens: 512 } as const;
    const of = (model: string) => ({ ...shared, model, parallel });
    return openEngine({
      models: { first: of(models[0]!), second: of(models[1]!) },
      onProgress: (event) => void (event.kind === 'warning' && warnings.push(event.text)),
    });
  };
  /** The ends of all texts, in order. `onToken` is called with how many tokens both models have written. */
  const write = async (engine: Library.Engine, onToken?: (count: number) => void): Promise<unknown[]> => {
    let count = 0;
    const asked = { prompts: PROMPTS, n: 2, temperature: 1, seed: 3, maxNewTokens: 24, ignoreEos: true } as const;
    return Promise.all(
      NAMES.map(async (model) => {
        const texts: unknown[] = [];
        for await (const event of engine.generate({ ...asked, model }))
          if (event.kind === 'token') onToken?.(++count);
          else if (event.kind === 'end')
            texts[2 * event.prompt + event.sample] = [event.tokens, event.logProbs, event.reason];
          else throw new Error(event.error);
        return texts;
      }),
    );
  };

  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });
  afterAll(() => vi.unstubAllEnvs());

  test.each([
    [{ replicas: 2, stages: 1 }, 2],
    [{ replicas: 1, stages: 2 }, 1],
  ])('gives the same texts if one of %j is killed in the middle', async (parallel, processes) => {
    const alone = await open();
    const wanted = await write(alone);
    await alone.close();
    expect(wanted.flat()).toHaveLength(2 * 2 * PROMPTS.length);

    const engine = await open(parallel);
    const pids = holdUntilLoaded();
    expect(pids).toHaveLength(processes);
    const found = await write(engine, (count) => {
      if (count === 100) process.kill(pids.at(-1)!, 'SIGKILL');
    });
    expect(found).toEqual(wanted);
    expect(warnings.join('\n')).toContain('the device process ended (SIGKILL)');
    // All is there for the next requests, too.
    expect(await write(engine)).toEqual(wanted);
    await engine.close();
    await expect.poll(() => devicesOf(process.pid), { timeout: 30_000 }).toEqual([]);
  });
});
