/** Rows of recurrent states: whatever is shared, given back or drafted, each text gets what it gets alone. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import { aloneOn, churn } from '../support/churn.js';
import { randomRequests } from '../support/churnRequests.js';
import { PATH_VOCAB, pathModel, type PathModelOptions } from '../support/pathModel.js';
import { randomOf } from '../fuzz/mutate.js';

const CASES: readonly (readonly [string, PathModelOptions])[] = [
  ['many rows', { states: 200, cacheTokens: 16 * 512 }],
  ['few rows', { states: 6, cacheTokens: 16 * 512 }],
  ['few rows and pages', { states: 5, cacheTokens: 16 * 24 }],
  ['one row', { states: 1, cacheTokens: 16 * 64 }],
  ['few rows, steps that overlap', { states: 9, cacheTokens: 16 * 40, limits: { keptRows: 64 } }],
  [
    'small steps that take prompts apart',
    { states: 30, limits: { tokens: 40, besideTokens: 30, takesPromptsApart: true } },
  ],
  ['a pipeline', { states: 12, cacheTokens: 16 * 64, limits: { groups: 3 } }],
  ['values that are not finite', { states: 20, failsOneIn: 200, limits: { keptRows: 64 } }],
];

describe('texts of a model with recurrent states', () => {
  it.each(CASES)('get what they get alone: %s', async (_, options) => {
    const random = randomOf(5);
    const model = pathModel({ maxLength: 80, ...options, turns: () => (random() < 0.1 ? 3 : 1) });
    const engine = new Engine();
    const replicas = engine.load('a', { replicas: [model], vocabSize: PATH_VOCAB });
    const asked = randomRequests(random, { models: ['a'], count: 40, vocab: PATH_VOCAB, longest: 80, guides: [] });
    const counts = await churn(engine, {
      ...{ random, asked, count: 120, atOnce: 30 },
      alone: aloneOn(() => {
        const { failsOneIn } = options;
        const alone = pathModel({ maxLength: 80, ...(failsOneIn === undefined ? {} : { failsOneIn }) });
        const single = new Engine();
        single.load('a', { replicas: [alone], vocabSize: PATH_VOCAB });
        return Promise.resolve(single);
      }),
    });
    expect(counts.whole).toBeGreaterThan(40);
    expect(model.stated.errors).toEqual([]);
    await replicas.idle();
    const { pool } = replicas['generators'][0]!.memory;
    expect(pool.held).toBe(0);
    expect(pool.states!.held).toBe(0);
  });
});
