/** Thousands of requests that come and go leave nothing behind, and each gets what it gets alone. */
import { getEventListeners } from 'node:events';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Engine } from '../../engine/engine.js';
import type { Replicas } from '../../engine/replicas.js';
import { randomOf } from '../fuzz/mutate.js';
import { aloneOn, churn, outcomeOf } from '../support/churn.js';
import { mix, PATH_VOCAB, type PathModel, pathModel, type PathModelOptions } from '../support/pathModel.js';
import type { PathDraftOptions } from '../support/pathDrafts.js';
import { randomRequests } from '../support/churnRequests.js';
import type { MadeUpGuide } from '../support/guides.js';
import { casesHere, isThorough } from '../support/thorough.js';

const MAX_LENGTH = 80;

/** Timers that were set, and not cleared or called. */
function watchTimers(): () => number {
  const timers: NodeJS.Timeout[] = [];
  const { setTimeout: real } = globalThis;
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms?: number) => {
    const timer = real(run, ms);
    timers.push(timer);
    return timer;
  }) as typeof setTimeout);
  return () => timers.filter((timer) => !(timer as unknown as { readonly _destroyed: boolean })._destroyed).length;
}

afterEach(() => void vi.restoreAllMocks());

interface Case {
  readonly name: string;
  readonly seed: number;
  readonly count: number;
  readonly model: PathModelOptions & { readonly cacheTokens: number };
  readonly replicas?: number;
  /** One in so many requests comes as a device is lost, or memory moves. */
  readonly losesOneIn?: number;
  readonly movesOneIn?: number;
}

/** Right two times of three; now and then nothing comes, or a call fails. */
const DRAFTING: PathDraftOptions = {
  ...{ ahead: 0, limits: { tokens: 40, rows: 12 }, failsOneIn: 60 },
  isRight: (digest) => mix(digest, 11) % 3 > 0,
  failsAt: new Set(Array.from({ length: 200 }, (_, i) => 37 * i + 11)),
};

const CASES: readonly Case[] = [
  { name: 'with room for all', seed: 1, count: 2500, model: { cacheTokens: 16 * 512, failsOneIn: 300 } },
  { name: 'on few pages', seed: 2, count: 2000, model: { cacheTokens: 16 * 24 } },
  {
    name: 'with steps that are planned ahead, on few pages',
    seed: 3,
    count: 2000,
    model: {
      cacheTokens: 16 * 40,
      limits: { keptRows: 64, besideTokens: 64, takesPromptsApart: true },
      failsOneIn: 500,
    },
  },
  { name: 'in a pipeline', seed: 4, count: 1000, model: { cacheTokens: 16 * 64, limits: { groups: 3 } } },
  {
    name: 'on replicas whose devices end',
    seed: 5,
    count: 1500,
    model: { cacheTokens: 16 * 40, limits: { keptRows: 64 } },
    replicas: 2,
    losesOneIn: 60,
  },
  {
    name: 'while memory moves between models',
    seed: 6,
    count: 1000,
    model: { cacheTokens: 16 * 40, limits: { keptRows: 64 } },
    movesOneIn: 8,
  },
  {
    name: 'with drafts of a device that ends, on few pages',
    seed: 7,
    count: 500,
    model: { cacheTokens: 16 * 30, limits: { keptRows: 64 }, draft: DRAFTING },
    replicas: 2,
    losesOneIn: 60,
  },
  {
    name: 'with drafts that go on from features, while memory moves',
    seed: 8,
    count: 500,
    model: { cacheTokens: 16 * 40, draft: { ...DRAFTING, ahead: 1 } },
    movesOneIn: 8,
  },
];

describe('requests that come and go', () => {
  it.each(casesHere(CASES, 0, 4).map((own) => [own.name, own] as const))(
    '%s, leave nothing and get what they get alone',
    async (_, own) => {
      const random = randomOf(own.seed);
      const count = isThorough ? own.count : 500;
      const openTimers = watchTimers();
      const optionsOf = (name: string): PathModelOptions => ({
        ...{ maxLength: MAX_LENGTH, seed: name === 'a' ? 1 : 2 },
        ...own.model,
        turns: () => (random() < 0.1 ? 3 : 1),
      });
      const engine = new Engine();
      const models: PathModel[] = [];
      const loaded: Replicas[] = [];
      for (const name of ['a', 'b']) {
        const replicas = Array.from({ length: own.replicas ?? 1 }, () => pathModel(optionsOf(name)));
        models.push(...replicas);
        loaded.push(engine.load(name, { replicas, vocabSize: PATH_VOCAB }));
      }
      const pages = own.model.cacheTokens / 16;
      const move = (): void => {
        const [some] = [8 + Math.floor(random() * (pages - 8))];
        const [first, second] = loaded.map((replicas) => replicas['generators'][0]!);
        void first!.memory.resize(some);
        void second!.memory.resize(Math.max(8, pages - some));
      };
      const guides: MadeUpGuide[] = [];
      const kinds = { models: ['a', 'b'], count: 60, vocab: PATH_VOCAB, longest: MAX_LENGTH, guides };
      const asked = randomRequests(random, kinds);
      const counts = await churn(engine, {
        ...{ random, asked, count, atOnce: 40 },
        alone: aloneOn((name) => {
          const single = new Engine();
          const { draft: _, ...own } = optionsOf(name);
          const options = { ...own, cacheTokens: 16 * 512, limits: {}, turns: () => 1 };
          single.load(name, { replicas: [pathModel(options)], vocabSize: PATH_VOCAB });
          return Promise.resolve(single);
        }),
        between: () => {
          if (own.losesOneIn !== undefined && random() * own.losesOneIn < 1) models[Math.floor(random() * 4)]!.lose();
          if (own.movesOneIn !== undefined && random() * own.movesOneIn < 1) move();
        },
      });
      expect(counts.whole).toBeGreaterThan(count / 4);
      expect(counts.early).toBeGreaterThan(count / 10);
      for (const replicas of loaded) {
        await replicas.idle();
        expect(replicas.waiting).toBe(0);
        for (const generator of replicas['generators']) {
          expect(generator.pressure).toMatchObject({ held: 0, waiting: 0 });
          expect(generator.workTokens).toBe(0);
        }
      }
      // Devices forget what has ended with the next step that they are sent: a request for each.
      const last = models.map((_, i) =>
        engine.submit({ kind: 'generate', model: i % 2 === 0 ? 'a' : 'b', prompt: [i], maxNewTokens: 1 }),
      );
      await Promise.all(last.map(outcomeOf));
      for (const { table, drafted } of models) {
        expect(table().size).toBe(1);
        expect(drafted.errors).toEqual([]);
      }
      const calls = models.reduce((sum, { drafted }) => sum + drafted.calls, 0);
      if (own.model.draft !== undefined) expect(calls).toBeGreaterThan(40);
      for (const signal of counts.signals) expect(getEventListeners(signal, 'abort')).toHaveLength(0);
      expect(openTimers()).toBe(0);
      expect(guides.length).toBeGreaterThan(5);
      for (const { counts: states } of guides) expect(states.open).toBe(0);
      // Refused where a request is left.
      await engine.unload('a');
      await engine.unload('b');
    },
  );
});
