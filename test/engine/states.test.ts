/** Rows of recurrent states: whatever is shared, given back or drafted, each text gets what it gets alone. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import type { Replicas } from '../../engine/replicas.js';
import { aloneOn, churn } from '../support/churn.js';
import { randomRequests } from '../support/churnRequests.js';
import { requestsOf, textsAlone, textsOf, tokensOf, treesOf } from '../support/draftedTexts.js';
import { PATH_VOCAB, type PathModel, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';
import { randomOf } from '../fuzz/mutate.js';
import { casesHere, isThorough } from '../support/thorough.js';

type Case = readonly [name: string, options: PathModelOptions];

const CASES: readonly Case[] = [
  ['few rows and pages', { states: 5, cacheTokens: 16 * 24 }],
  ['many rows and few pages, steps that overlap', { states: 60, cacheTokens: 16 * 30, limits: { keptRows: 64 } }],
  ['values that are not finite', { states: 20, failsOneIn: 50, limits: { keptRows: 64 } }],
  ['many rows', { states: 200, cacheTokens: 16 * 512 }],
  ['one row', { states: 1, cacheTokens: 16 * 64 }],
  ['prompts apart, in small steps', { states: 9, limits: { tokens: 40, besideTokens: 30, takesPromptsApart: true } }],
  ['a pipeline', { states: 12, cacheTokens: 16 * 64, limits: { groups: 3 } }],
  ['a device that ends', { states: 12, lostAt: new Set([15, 40, 90]), limits: { keptRows: 64 } }],
];

/** Nobody has a page or a row, and no message was wrong. */
async function expectNothingLeft(model: PathModel, replicas: Replicas): Promise<void> {
  expect(model.stated.errors).toEqual([]);
  await replicas.idle();
  const { pool } = replicas['generators'][0]!.memory;
  expect(pool.held).toBe(0);
  expect(pool.states!.held).toBe(0);
}

describe('texts of a model with recurrent states', () => {
  it.each(casesHere(CASES, 0, 1, 2))('get what they get alone: %s', async (_, options) => {
    const random = randomOf(5);
    const all: PathModelOptions = { maxLength: 80, ...options, turns: () => (random() < 0.1 ? 3 : 1) };
    const model = pathModel(all);
    const engine = new Engine();
    const replicas = engine.load('a', { replicas: [model], vocabSize: PATH_VOCAB });
    const asked = randomRequests(random, {
      models: ['a'],
      count: isThorough ? 30 : 20,
      vocab: PATH_VOCAB,
      longest: 80,
      guides: [],
    });
    const counts = await churn(engine, {
      ...{ random, asked, count: isThorough ? 600 : 50, atOnce: 20 },
      alone: aloneOn(() => {
        const single = new Engine();
        const { states: _states, lostAt: _lostAt, ...own } = all;
        const alone = pathModel({ ...own, limits: {}, cacheTokens: 4096, turns: () => 1 });
        single.load('a', { replicas: [alone], vocabSize: PATH_VOCAB });
        return Promise.resolve(single);
      }),
    });
    expect(counts.whole).toBeGreaterThan(10);
    await expectNothingLeft(model, replicas);
  });

  const DRAFTED: readonly Case[] = [
    ['few rows', { states: 8 }],
    ['steps that overlap', { states: 40, limits: { keptRows: 64 } }],
    ['few rows and pages, steps that overlap', { states: 6, cacheTokens: 16 * 24, limits: { keptRows: 64 } }],
    ['two rows', { states: 2 }],
    ['a pipeline', { states: 30, limits: { groups: 3 } }],
  ];

  it.each(casesHere(DRAFTED, 0, 1))('are those without trees of drafts: %s', async (_, options) => {
    const random = randomNumbers(7);
    const requests = requestsOf(29, isThorough ? 12 : 4);
    const texts = await textsAlone(requests);
    const model = pathModel(options);
    const engine = new Engine();
    const replicas = engine.load('a', { replicas: [model], vocabSize: PATH_VOCAB });
    const drafted = requests.map((request, i) => ({
      ...request,
      drafts: treesOf(tokensOf(texts[i]!), { random, right: 0.85, chained: 0.5 }),
    }));
    expect(await textsOf(engine, drafted)).toEqual(texts);
    await expectNothingLeft(model, replicas);
  });
});
