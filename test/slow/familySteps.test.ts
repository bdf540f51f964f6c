/**
 * Families beside LLaMA: steps against scoring, to the bit, on a CPU, in one piece and in many. What scoring gives is
 * compared with float64 in golden.test.ts. Needs the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { beginLoading } from '../../commands/loadModel.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import { environment, isBuilt, ROOT } from '../e2e/support.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { FAMILY_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { randomNumbers } from '../support/pathModel.js';
import { expectBitsOfScoring } from '../support/scoredSteps.js';
import { SILENT } from '../support/silent.js';

const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const CACHE_TOKENS = 16 * 64;
/** Llama 4's chunks are of 64 positions. */
const LENGTHS: Readonly<Record<string, number>> = { llama4: 150 };

describe.skipIf(!existsSync(FAMILIES) || !isBuilt)('steps of families on a CPU', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  it.each(FAMILY_CHECKPOINTS)('give the bits of scoring, and texts the same with drafts: %s', async (family) => {
    const text = Array.from({ length: LENGTHS[family] ?? 60 }, (_, i) => (i * 379 + 7 * i * i) % 1500);
    const request = {
      model: join(FAMILIES, family),
      init: { kind: 'checkpoint' as const },
      precision: 'f32' as const,
      threads: 2,
      cacheTokens: CACHE_TOKENS,
      feeds: true,
    };
    const model = await beginLoading(request, SILENT, new Phases()).finish();
    const { device } = await expectBitsOfScoring(model, text, CACHE_TOKENS);
    // Also the rows of trees of drafts, which a path leaves within windows and past them.
    const random = randomNumbers(family.length);
    for (const [i, sampling] of [{}, { temperature: 1, seed: 5 }].entries()) {
      const asked = { prompt: text.slice(0, 20 + 17 * i), maxNewTokens: 40, sampling };
      const { tokens, reason } = await Engine.of(device).generate(asked);
      const drafts = treesOf(tokensOf({ tokens }), { random, right: 0.8, chained: 0.4, vocab: 200 });
      const drafted = await Engine.of(device).generate({ ...asked, drafts });
      expect({ tokens: drafted.tokens, reason: drafted.reason }).toEqual({ tokens, reason });
    }
    await model.close();
  });
});
