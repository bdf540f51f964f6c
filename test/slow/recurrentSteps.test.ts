/**
 * Models with recurrent layers: steps against scoring, to the bit, on a CPU. Texts go on in pieces of any length, from
 * rows of states that others have left, beside drafts and branches that are dropped; beginnings of questions are kept.
 * Needs the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading } from '../../commands/loadModel.js';
import { deviceModelOf } from '../../driver/devices/deviceModel.js';
import { Phases } from '../../driver/phases.js';
import { environment, isBuilt, ROOT } from '../e2e/support.js';
import { RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { SILENT } from '../support/silent.js';
import { checkQuestions } from '../support/walkedQuestions.js';
import { checkWalk } from '../support/walkedSteps.js';

const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const CACHE_TOKENS = 16 * 256;

describe.skipIf(!existsSync(FAMILIES) || !isBuilt)('steps over states on a CPU', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it.each(RECURRENT_CHECKPOINTS)('give the bits of scoring: %s', async (family) => {
    const request = {
      model: join(FAMILIES, family),
      init: { kind: 'checkpoint' as const },
      precision: 'f32' as const,
      threads: 2,
      cacheTokens: CACHE_TOKENS,
      feeds: true,
    };
    const model = await beginLoading(request, SILENT, new Phases()).finish();
    const device = deviceModelOf(model, CACHE_TOKENS, { feeds: true });
    expect(device.limits.states).toBeGreaterThan(1);
    for (const [seed, most] of [
      [3, 40],
      [4, 9],
    ] as const) {
      await checkWalk(model, device, { seed, vocab: 1500, texts: 5, length: 70, most });
    }
    for (const [most, states] of [
      [100, 16],
      [9, 3],
    ] as const)
      expect(await checkQuestions(model, CACHE_TOKENS, { seed: 6, vocab: 1500, length: 60, most, states })).toBe(48);
    await model.close();
  });
});
