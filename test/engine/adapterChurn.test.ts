/**
 * Requests with adapters that come and go, of which there are more than slots: whatever is preempted, found, drafted,
 * lost and replaced meanwhile, each gets what it gets alone.
 */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import { pick, randomOf } from '../fuzz/mutate.js';
import { aloneOn, type Asked, churn } from '../support/churn.js';
import { randomRequests } from '../support/churnRequests.js';
import type { MadeUpGuide } from '../support/guides.js';
import { adapterOf } from '../support/pathAdapters.js';
import type { PathDraftOptions } from '../support/pathDrafts.js';
import { casesHere, isThorough } from '../support/thorough.js';
import { mix, PATH_VOCAB, type PathModel, pathModel, type PathModelOptions } from '../support/pathModel.js';

const MAX_LENGTH = 80;
const GONE = 'its folder is gone';

/** One content under two names, two contents under one, one that cannot be loaded. */
const ADAPTERS = [
  ...['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((name) => adapterOf(name)),
  adapterOf('a', '/copies/a'),
  adapterOf('a, trained again', '/adapters/a'),
];
const VANISHED = adapterOf('vanished');

interface Case {
  readonly name: string;
  readonly seed: number;
  readonly count: number;
  readonly slots: number;
  readonly model: PathModelOptions & { readonly cacheTokens: number };
  readonly replicas?: number;
  readonly losesOneIn?: number;
  readonly movesOneIn?: number;
  /** One load in so many ends the device. */
  readonly failsLoadOneIn?: number;
}

const DRAFTING: PathDraftOptions = {
  ...{ ahead: 0, limits: { tokens: 40, rows: 12 }, failsOneIn: 60 },
  isRight: (digest) => mix(digest, 11) % 3 > 0,
};

const CASES: readonly Case[] = [
  { name: 'in one slot', seed: 21, count: 250, slots: 1, model: { cacheTokens: 16 * 512, failsOneIn: 300 } },
  { name: 'in few slots, on few pages', seed: 22, count: 350, slots: 2, model: { cacheTokens: 16 * 24 } },
  {
    name: 'in few slots, with steps that are planned ahead, on few pages',
    ...{ seed: 23, count: 400, slots: 2 },
    model: {
      cacheTokens: 16 * 40,
      limits: { keptRows: 64, besideTokens: 64, takesPromptsApart: true },
      failsOneIn: 500,
    },
  },
  { name: 'in a pipeline', seed: 24, count: 200, slots: 3, model: { cacheTokens: 16 * 64, limits: { groups: 3 } } },
  {
    name: 'on replicas whose devices end, also while they load',
    ...{ seed: 25, count: 400, slots: 2, replicas: 2, losesOneIn: 60, failsLoadOneIn: 40 },
    model: { cacheTokens: 16 * 40, limits: { keptRows: 64 } },
  },
  {
    name: 'while memory moves between models',
    ...{ seed: 26, count: 250, slots: 2, movesOneIn: 8 },
    model: { cacheTokens: 16 * 40, limits: { keptRows: 64 } },
  },
  {
    name: 'with drafts of a device that ends, on few pages',
    ...{ seed: 27, count: 400, slots: 2, replicas: 2, losesOneIn: 60 },
    model: { cacheTokens: 16 * 30, limits: { keptRows: 64 }, draft: DRAFTING },
  },
  {
    name: 'with drafts that go on from features',
    ...{ seed: 28, count: 200, slots: 2 },
    model: { cacheTokens: 16 * 40, draft: { ...DRAFTING, ahead: 1 } },
  },
];

/** CI has time for some of them, and for fewer requests. */
const SHARE = isThorough ? 1 : 0.3;

describe('requests with adapters that come and go', () => {
  it.each(casesHere(CASES, 0, 2, 4, 6).map((own) => [own.name, own] as const))(
    '%s, get what they get alone',
    async (_, own) => {
      const random = randomOf(own.seed);
      const count = Math.floor(SHARE * own.count);
      let isLosing = true;
      const optionsOf = (slots: number): PathModelOptions => ({
        ...{ maxLength: MAX_LENGTH, seed: 1 },
        ...own.model,
        turns: () => (random() < 0.1 ? 3 : 1),
        adapters: {
          count: slots,
          fails: ({ hash }) => (hash === VANISHED.hash ? GONE : undefined),
          wait: async () => {
            for (let left = random() * 6; left > 0; left--) await new Promise((resolve) => setImmediate(resolve));
          },
          losesLoad: () => isLosing && random() < 1 / (own.failsLoadOneIn ?? Infinity),
        },
      });
      const engine = new Engine();
      const models: PathModel[] = [];
      const loaded = ['a', 'b'].map((name) => {
        const replicas = Array.from({ length: own.replicas ?? 1 }, () => pathModel(optionsOf(own.slots)));
        models.push(...replicas);
        return engine.load(name, { replicas, vocabSize: PATH_VOCAB });
      });
      const pages = own.model.cacheTokens / 16;
      const move = (): void => {
        const some = 8 + Math.floor(random() * (pages - 8));
        const [first, second] = loaded.map((replicas) => replicas['generators'][0]!);
        void first!.memory.resize(some);
        void second!.memory.resize(Math.max(8, pages - some));
      };
      const guides: MadeUpGuide[] = [];
      const made = randomRequests(random, {
        ...{ models: ['a', 'b'], count: 6 + SHARE * 30, vocab: PATH_VOCAB, longest: MAX_LENGTH, guides },
      });
      // Each with an adapter and another one: their tokens are the same.
      const asked = made.flatMap((each): Asked[] => [
        random() < 0.3 ? each : { ...each, adapter: pick(random, ADAPTERS) },
        { ...each, adapter: random() < 0.06 ? VANISHED : pick(random, ADAPTERS) },
      ]);
      const counts = await churn(engine, {
        ...{ random, asked, count, atOnce: 30 },
        alone: aloneOn((name) => {
          const single = new Engine();
          const { draft: _draft, ...options } = optionsOf(1);
          const { losesLoad: _loses, ...adapters } = options.adapters!;
          const alone = { ...options, adapters, cacheTokens: 16 * 512, limits: {}, turns: () => 1 };
          single.load(name, { replicas: [pathModel(alone)], vocabSize: PATH_VOCAB });
          return Promise.resolve(single);
        }),
        between: () => {
          if (random() * (own.losesOneIn ?? Infinity) < 1) models[Math.floor(random() * models.length)]!.lose();
          if (random() * (own.movesOneIn ?? Infinity) < 1) move();
          if (random() < 0.02) void engine.unloadAdapter(pick(random, ADAPTERS).hash, pick(random, ['a', 'b']));
        },
      });
      isLosing = false;
      expect(counts.whole).toBeGreaterThan(count / 5);
      for (const [i, replicas] of loaded.entries()) {
        await replicas.idle();
        const name = 'ab'[i]!;
        expect(engine.statsOf(name)).toMatchObject({ running: 0, waiting: 0, paused: 0, heldPages: 0 });
        for (const { running, waiting } of engine.statsOf(name).adapters!.adapters)
          expect([running, waiting]).toEqual([0, 0]);
        expect(engine.statsOf(name).adapters!.loads).toBeGreaterThan(4);
      }
      for (const { slots, drafted } of models) {
        expect(slots!.errors).toEqual([]);
        expect(drafted.errors).toEqual([]);
      }
      await engine.unload('a');
      await engine.unload('b');
    },
  );
});
