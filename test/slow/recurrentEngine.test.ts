/**
 * An engine with models that have recurrent layers, on a CPU: requests of all kinds that share beginnings, give way to
 * others, draft and are cut, on few rows of states and many. What each gets is, to the bit, what it gets alone. Needs
 * the data folder beside the repository.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { engineModelOf } from '../../commands/engineModel.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { Phases } from '../../driver/phases.js';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import type { Replicas } from '../../engine/replicas.js';
import { environment, isBuilt, ROOT } from '../e2e/support.js';
import { randomOf } from '../fuzz/mutate.js';
import { aloneOn, churn } from '../support/churn.js';
import { randomRequests } from '../support/churnRequests.js';
import { tokensOf, treesOf } from '../support/draftedTexts.js';
import { RECURRENT_CHECKPOINTS } from '../support/familyCheckpoints.js';
import { SILENT } from '../support/silent.js';

const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const VOCAB = 400;

describe.skipIf(!existsSync(FAMILIES) || !isBuilt)('texts of models with recurrent layers', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });

  const open = (family: string): Promise<LoadedModel> => {
    const request = {
      model: join(FAMILIES, family),
      init: { kind: 'checkpoint' },
      precision: 'f32',
      threads: 2,
    } as const;
    const sizes = { cacheTokens: 16 * 40, batchTokens: 64, logits: true } as const;
    return beginLoading({ ...request, ...sizes }, SILENT, new Phases()).finish();
  };

  /** An engine whose model has `rows` rows of states, or all. */
  function engineOn(loaded: LoadedModel, rows?: number): { readonly engine: Engine; readonly replicas: Replicas } {
    const { replicas, vocabSize } = engineModelOf(loaded);
    const [own] = replicas;
    const limits = { ...own!.limits, states: rows ?? own!.limits.states! };
    const engine = new Engine();
    return { engine, replicas: engine.load('a', { replicas: [{ ...own!, limits }], vocabSize: vocabSize! }) };
  }

  it.each(RECURRENT_CHECKPOINTS)('get what they get alone, and leave nothing: %s', async (family) => {
    const [shared, apart] = [await open(family), await open(family)];
    const random = randomOf(3);
    const asked = randomRequests(random, { models: ['a'], count: 20, vocab: VOCAB, longest: 120 });
    const alone = aloneOn(() => Promise.resolve(engineOn(apart).engine));
    const prompts = [0, 1, 2, 3].map((i) =>
      Array.from({ length: 30 + 7 * i }, (_, k) => (k < 24 ? 3 * k : Math.floor(VOCAB * random()))),
    );
    const requests = prompts.map((prompt, i) => ({
      ...{ prompt, maxNewTokens: 24 },
      sampling: i % 2 === 1 ? { temperature: 1, seed: i } : {},
    }));
    const beams = { prompt: prompts[1]!, maxNewTokens: 8, beams: 3 };
    const base = engineOn(apart).engine;
    const texts: (readonly number[])[] = [];
    for (const request of requests) texts.push(tokensOf(await base.generate(request)));
    const paths = await searchBeams(base, beams);
    for (const rows of [4, 24, undefined]) {
      const { engine, replicas } = engineOn(shared, rows);
      const counts = await churn(engine, { random, asked, alone, count: 40, atOnce: 12, maxDeadline: 60 });
      expect(counts.failed).toBe(0);
      const drafted = requests.map((request, i) => ({
        ...request,
        drafts: treesOf(texts[i]!, { random, right: 0.85, chained: 0.5, vocab: VOCAB }),
      }));
      const found = await Promise.all(drafted.map((request) => engine.generate(request)));
      expect(found.map(tokensOf)).toEqual(texts);
      const accepted = found.reduce((sum, { drafts }) => sum + (drafts?.accepted ?? 0), 0);
      if (rows !== 4) expect(accepted).toBeGreaterThan(10);
      expect(await searchBeams(engine, beams)).toEqual(paths);
      await replicas.idle();
      const { pool } = replicas['generators'][0]!.memory;
      expect([pool.held, pool.states!.held]).toEqual([0, 0]);
      expect(pool.states!.found).toBeGreaterThan(0);
    }
    await shared.close();
    await apart.close();
  });
});
