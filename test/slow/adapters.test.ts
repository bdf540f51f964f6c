/**
 * All adapters of the data folder beside the repository on all questions of their references, within 0.01 + 1e-4·|x|.
 * One cheap case is in e2e/adapters.test.ts.
 */
import { existsSync } from 'node:fs';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { environment, isBuilt } from '../e2e/support.js';
import { ADAPTERS, compareWithGolden, REPLACING, RIDING, scoreAdapted } from '../support/adapters.js';

const QUESTIONS = 120;

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('golden log-likelihoods of adapters', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it.each([...RIDING, ...REPLACING])(`are reached for %s on ${QUESTIONS} questions`, async (adapter) => {
    const { samplesPath } = await scoreAdapted(adapter, { limit: QUESTIONS });
    expect(compareWithGolden(samplesPath, `lora/${adapter}.jsonl`)).toMatch(new RegExp(`^${QUESTIONS} questions, `));
  });
});
