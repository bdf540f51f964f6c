/**
 * Adapters that PEFT wrote against float64 references of them, in f32: adapter, base and questions in, sample files
 * out, compared by the checker that comes with the references. Needs the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { ADAPTERS, compareWithGolden, scoreAdapted } from '../support/adapters.js';
import { quickCc } from '../support/runFolder.js';
import { environment, isBuilt } from './support.js';

describe.skipIf(!existsSync(ADAPTERS) || !isBuilt)('golden log-likelihoods of adapters', () => {
  beforeAll(() => {
    const cc = quickCc();
    for (const [name, value] of Object.entries(environment(cc === undefined ? {} : { TILEWRIGHT_CC: cc })))
      vi.stubEnv(name, value);
  });

  test('are reached for mistral-qv, which rides, and results say what was added', async () => {
    const { samplesPath, results } = await scoreAdapted('mistral-qv', { limit: 6, batchTokens: 128 });
    expect(compareWithGolden(samplesPath, 'lora/mistral-qv.jsonl')).toMatch(/^6 questions, /);
    const adapter = {
      name: 'mistral-qv',
      path: join(ADAPTERS, 'mistral-qv'),
      hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    };
    expect(results).toMatchObject({
      model_name: 'mistral',
      config: { model_args: expect.stringMatching(/^model=.*,peft=.*mistral-qv,precision=f32$/) },
      provenance: { adapter: { name: adapter.name, hash: adapter.hash }, record: { adapter } },
    });
  });
});
