/** Two models in one engine with little memory between them: their texts do not depend on how it is split. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type * as Library from '../../index.js';
import { quickCc, runFolder } from '../support/runFolder.js';

const ROOT = join(import.meta.dirname, '..', '..');
const INDEX = join(ROOT, 'dist', 'index.js');
const isBuilt = [INDEX, join(ROOT, 'build', 'Release', 'tilewright.node')].every((path) => existsSync(path));
const hasCompiler = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;

const DEMO = { model: join(ROOT, 'models', 'demo'), target: 'cpu', threads: 1 } as const;
/** 16 KiB a token and 64 tokens a piece: memory for eight pieces, which hold two texts or three of ten. */
const MEMORY = 8 << 20;
const PROMPTS = Array.from({ length: 5 }, (_, i) => ({
  tokens: Array.from({ length: 10 + 25 * i }, (__, at) => 3 + ((7 * i + 13 * at) % 4000)),
}));
const ASKED = { prompts: PROMPTS, temperature: 1, seed: 5, maxNewTokens: 60, ignoreEos: true } as const;

beforeAll(() => {
  vi.stubEnv('TILEWRIGHT_CACHE', join(runFolder(), 'e2e-cache'));
  vi.stubEnv('TILEWRIGHT_CC', quickCc('-O1'));
});
afterAll(() => vi.unstubAllEnvs());

describe.skipIf(!isBuilt || !hasCompiler)('two models with little memory', async () => {
  const { openEngine } = isBuilt
    ? ((await import(pathToFileURL(INDEX).href)) as typeof Library)
    : ({} as typeof Library);

  /** Tokens and log-probabilities of every text of each model. */
  async function texts(engine: Library.Engine, names: readonly string[]): Promise<readonly unknown[]> {
    return Promise.all(
      names.map(async (model) => {
        const found: unknown[] = [];
        for await (const event of engine.generate({ ...ASKED, model }))
          if (event.kind === 'end') found[event.prompt] = [event.tokens, event.logProbs, event.reason];
        return found;
      }),
    );
  }

  it.each([[undefined], [[50, 50]], [[62, 38]]])('have the same texts with the split %j', async (memorySplit) => {
    const alone = await openEngine({ models: { a: DEMO } });
    let expected: readonly unknown[];
    try {
      expected = await texts(alone, ['a']);
    } finally {
      await alone.close();
    }
    const split = memorySplit === undefined ? {} : { memorySplit };
    const engine = await openEngine({ models: { a: DEMO, b: DEMO }, memory: MEMORY, ...split });
    try {
      expect(await texts(engine, ['a', 'b'])).toEqual([expected[0], expected[0]]);
      expect(await texts(engine, ['b'])).toEqual(expected);
    } finally {
      await engine.close();
    }
  });

  it('refuses shares that are not one for each model', async () => {
    await expect(openEngine({ models: { a: DEMO }, memorySplit: [1, 2] })).rejects.toThrow(
      'openEngine: memorySplit has 2 shares, and there are 1 model',
    );
  });
});
