/** `bench:search` on a CPU: small models, both open at once, whose searches do not depend on split, number or calls. */
import { describe, expect, it } from 'vitest';
import { type RunOptions, SearchPair } from '../../bench/searchPair.js';
import type { SearchOptions } from '../../search/options.js';
import type { Problem } from '../../search/path.js';

const problems: readonly Problem[] = ['What is 1 + 1?', 'How many sides has a square?', 'Name a prime.'].map(
  (problem, i) => ({ id: String(i), problem }),
);
const search: SearchOptions = {
  ...{ method: 'beam', n: 4, width: 2, iterations: 3, stepTokens: 6, seed: 1 },
  ...{ temperature: 0.8, ignoreEos: true },
};

describe('bench:search', () => {
  it('finds the same whatever the settings of a run, and counts what it took', { timeout: 240_000 }, async () => {
    const pair = await SearchPair.open({
      models: { generator: 'llama-4m', verifier: 'llama-4m' },
      ...{ target: 'cpu', threads: 1, verifierPrecision: 'auto', replicas: 1 },
    });
    try {
      const run = (options: Partial<RunOptions>) => pair.run(problems, { search, memory: 1e8, ...options });
      const whole = await run({});
      expect(whole).toMatchObject({ problems: 3, iterations: 9, tokens: 3 * 3 * 4 * 6, isCut: false });
      expect(whole.results.map((result) => result?.tree.length)).toEqual([12, 12, 12]);
      expect(whole.verifierNeeded).toBeGreaterThan(3 * 12 * 6);
      expect(whole.verifier.computedTokens).toBeGreaterThanOrEqual(whole.verifierNeeded);
      expect(whole.moments.length).toBeGreaterThan(1);
      for (const options of [{ share: 0.3 }, { atOnce: 1 }, { callTokens: 64 }])
        expect((await run(options)).results).toEqual(whole.results);
      const cut = await run({ limitSeconds: 0.001 });
      expect(cut.isCut).toBe(true);
      expect(cut.results).toContain(undefined);
    } finally {
      await pair.close();
    }
  });
});
