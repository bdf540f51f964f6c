/** Two models of an engine that share a budget, while requests come and go. */
import { describe, expect, test } from 'vitest';
import type { DeviceModel } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import { MemoryBudget } from '../../engine/memory.js';
import type { Generated } from '../../engine/request.js';
import { counting, range } from './counting.js';

const PIECE_PAGES = 4;
const PIECE_BYTES = 1000;

interface Mapped {
  readonly model: DeviceModel;
  pages(): number;
  /** Most pages that the device can give. */
  limit(pages: number): void;
}

/** A model that counts, whose memory comes in pieces of four pages. It fails where a step reaches other pages. */
function mapped(budget: MemoryBudget, limits: Partial<DeviceModel['limits']> = {}): Mapped {
  const { model } = counting({ cacheTokens: 16 * 400, limits });
  let pages = 0;
  let most = Infinity;
  return {
    pages: () => pages,
    limit: (count) => (most = count),
    model: {
      ...model,
      ...{ mappedPages: 0, piecePages: PIECE_PAGES, pieceBytes: PIECE_BYTES, budget },
      resize: async (wanted) => {
        await new Promise((resolve) => setImmediate(resolve));
        pages = Math.min(wanted, Math.max(most, Math.min(pages, wanted)));
        return model.resize(pages);
      },
    },
  };
}

/** Steps that are made up take no time: a second of the budget's is 20 milliseconds. */
const SECOND = 20;

const budgetOf = (pieces: number, split?: readonly number[]): MemoryBudget =>
  new MemoryBudget({
    bytes: pieces * PIECE_BYTES,
    now: () => performance.now() / SECOND,
    after: (seconds, run) => void setTimeout(run, SECOND * seconds),
    ...(split === undefined ? {} : { split }),
  });

/** Texts of `count` prompts of either model, all at once. */
async function texts(engine: Engine, names: readonly string[], count: number): Promise<readonly Generated[][]> {
  return Promise.all(
    Array.from({ length: count }, (_, i) =>
      engine
        .submit({
          kind: 'generate',
          model: names[i % names.length]!,
          prompt: range(1000 * i, 20 + ((7 * i) % 60)),
          maxNewTokens: 10 + ((13 * i) % 90),
        })
        .result()
        .then((texts) => [...texts]),
    ),
  );
}

const tokensOf = (all: readonly Generated[][]): number[][] =>
  all.map(([text]) => text!.tokens.map(({ token }) => token));

describe('two models of an engine', () => {
  test.each([[undefined], [[50, 50]], [[20, 80]], [[75, 25]]])(
    'get the same texts with the split %j',
    async (split) => {
      for (const pieces of [20, 200]) {
        const budget = budgetOf(pieces, split);
        const engine = new Engine();
        const models = [mapped(budget), mapped(budget)];
        models.forEach(({ model }, i) => engine.load(`m${i}`, { replicas: [model] }));
        const all = tokensOf(await texts(engine, ['m0', 'm1'], 40));
        all.forEach((tokens, i) => {
          const first = 1000 * i + 20 + ((7 * i) % 60);
          expect(tokens).toEqual(range(first, 10 + ((13 * i) % 90)));
        });
        await budget.settled();
        const used = models.reduce((sum, { pages }) => sum + Math.ceil(pages() / PIECE_PAGES) * PIECE_BYTES, 0);
        expect(used).toBeLessThanOrEqual(pieces * PIECE_BYTES);
        for (const name of ['m0', 'm1']) expect(engine.countsOf(name).pages).toBe(models[Number(name[1])]!.pages());
        await engine.close();
      }
    },
  );

  test('move memory to the one that works, and back', async () => {
    const budget = budgetOf(40);
    const engine = new Engine();
    const models = [mapped(budget), mapped(budget)];
    models.forEach(({ model }, i) => engine.load(`m${i}`, { replicas: [model] }));
    const most = [0, 0];
    for (const turn of [0, 1, 0]) {
      const done = texts(engine, [`m${turn}`], 50);
      let isDone = false;
      void done.then(() => (isDone = true));
      let peak = 0;
      while (!isDone) {
        peak = Math.max(peak, models[turn]!.pages());
        await new Promise((resolve) => setImmediate(resolve));
      }
      await done;
      most[turn] = peak;
      expect(peak).toBeGreaterThan(20 * PIECE_PAGES);
    }
    expect(budget.moves).toBeGreaterThan(1);
    await engine.close();
  });

  test('do with what there is where another process takes memory', async () => {
    const budget = budgetOf(100);
    const engine = new Engine();
    const only = mapped(budget);
    only.limit(30);
    engine.load('m', { replicas: [only.model] });
    const all = tokensOf(await texts(engine, ['m'], 20));
    expect(all.map(({ length }) => length)).toEqual(Array.from({ length: 20 }, (_, i) => 10 + ((13 * i) % 90)));
    expect(only.pages()).toBeLessThanOrEqual(30);
    await engine.close();
  });

  test('take turns with texts that only fit alone, and refuse what never fits, in one line', async () => {
    const budget = budgetOf(14);
    const engine = new Engine();
    for (const name of ['first', 'second']) engine.load(name, { replicas: [mapped(budget).model] });
    const long = { kind: 'generate', prompt: range(0, 700), maxNewTokens: 100 } as const;
    const both = [0, 1, 2, 3].map((i) => engine.submit({ ...long, model: i % 2 === 0 ? 'first' : 'second' }));
    for (const handle of both) expect((await handle.result())[0]!.tokens).toHaveLength(100);
    const longer = { ...long, model: 'second', prompt: range(0, 850) };
    expect(() => engine.submit(longer)).toThrow(/832/);
    await engine.unload('first');
    expect((await engine.submit({ ...longer, maxNewTokens: 20 }).result())[0]!.tokens).toHaveLength(20);
    await engine.close();
  });

  test('a model that does not fit beside another is refused, and nothing else changes', async () => {
    const budget = budgetOf(20);
    const engine = new Engine();
    engine.load('first', { replicas: [mapped(budget).model] });
    const large = mapped(budget).model;
    expect(() => engine.load('large', { replicas: [{ ...large, pieceBytes: 21 * PIECE_BYTES }] })).toThrow(
      'large: needs 20.5 KiB for keys and values, and there are 18.6 KiB beside first',
    );
    expect(engine.names).toEqual(['first']);
    expect(tokensOf(await texts(engine, ['first'], 10))).toHaveLength(10);
    await engine.close();
  });
});
