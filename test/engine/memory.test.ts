import { describe, expect, test } from 'vitest';
import { MemoryBudget, type MemoryUse, type MemoryUser } from '../../engine/memory.js';
import { type ModelMemory, SPLIT_POLICY, splitMemory } from '../../engine/memorySplit.js';
import { StepTimes } from '../../engine/stepTimes.js';

const MIB = 2 ** 20;

const NOTHING: MemoryUse = {
  pages: 0,
  held: 0,
  idle: 0,
  wanted: 0,
  isShort: false,
  steps: 0,
  cost: { step: 0.001, token: 1e-5, key: 0 },
  foundPages: 0,
  lostPages: 0,
  lostDistance: 0,
};

/** A model whose use is set by the test, on a device that may have less memory than the budget says. */
class FakeUser implements MemoryUser {
  readonly name: string;
  readonly maxPages = 6400;
  readonly piecePages = 64;
  readonly pieceBytes: number;
  now = NOTHING;
  readonly resized: number[] = [];
  leastPages = 1;
  keptPages = 0;

  get acceptedPages(): number {
    return this.leastPages;
  }

  /** Pages that the device can give at most. */
  most = Infinity;

  constructor(name: string, pieceBytes = 64 * MIB) {
    this.name = name;
    this.pieceBytes = pieceBytes;
  }

  use(): MemoryUse {
    return this.now;
  }

  resize(pages: number): Promise<number> {
    this.resized.push(pages);
    const given = Math.min(pages, Math.max(this.most, this.now.pages));
    this.now = { ...this.now, pages: given };
    return Promise.resolve(given);
  }

  set(changed: Partial<MemoryUse>): void {
    this.now = { ...this.now, ...changed };
  }
}

/** A budget with a clock of its own. */
function budgetOf(bytes: number, split?: readonly number[]) {
  const clock = { seconds: 0 };
  const budget = new MemoryBudget({
    bytes,
    now: () => clock.seconds,
    after: () => undefined,
    ...(split === undefined ? {} : { split }),
  });
  /** One look, `seconds` later, and what follows from it. */
  const look = async (user: MemoryUser, seconds = 1): Promise<void> => {
    clock.seconds += seconds;
    budget.report(user);
    await budget.settled();
  };
  return { budget, look };
}

describe('a fixed split', () => {
  test('gives each model its share, whatever they do', async () => {
    const { budget, look } = budgetOf(1000 * 64 * MIB, [17, 83]);
    const [a, b] = [new FakeUser('small'), new FakeUser('large', 128 * MIB)];
    budget.add(a);
    budget.add(b);
    await budget.settled();
    expect([a.now.pages, b.now.pages]).toEqual([6400, 6400]);
    a.set({ held: 6400, isShort: true, wanted: 1000 });
    await look(a);
    expect(a.resized).toEqual([6400]);
  });

  test('refuses a model that needs more than its share', async () => {
    const { budget } = budgetOf(100 * 64 * MIB, [10, 90]);
    expect(() => budget.add(new FakeUser('small'), 11 * 64)).toThrow(
      'small: needs 704 MiB for keys and values, and there are 640 MiB',
    );
  });
});

describe('memory that moves', () => {
  test('follows needs that are stated for all models, and moves by itself when they end', async () => {
    const { budget, look } = budgetOf(100 * 64 * MIB);
    const [a, b] = [new FakeUser('a'), new FakeUser('b')];
    budget.add(a);
    budget.add(b);
    await budget.settled();
    // One alone says nothing of how both are to share.
    a.keptPages = 640;
    a.set({ held: a.now.pages, isShort: true, wanted: 64 * 200, steps: 500 });
    await look(a);
    const before = a.now.pages;
    [a.keptPages, b.keptPages] = [640, 2560];
    await look(a);
    expect([a.now.pages, b.now.pages]).toEqual([20 * 64, 80 * 64]);
    expect(before).toBeGreaterThan(20 * 64);
    // Small changes move nothing, and neither does who waits.
    const moves = budget.moves;
    [a.keptPages, b.keptPages] = [704, 2560];
    a.set({ held: a.now.pages, isShort: true, wanted: 64 * 200, steps: 1000 });
    await look(a);
    expect([a.now.pages, budget.moves]).toEqual([20 * 64, moves]);
    // What a request needs comes before what is stated.
    b.keptPages = 640 * 30;
    a.leastPages = 15 * 64;
    await look(a);
    expect(a.now.pages).toBeGreaterThanOrEqual(15 * 64);
    [a.keptPages, b.keptPages, a.leastPages] = [0, 0, 1];
    for (let i = 0; i < 40; i++) {
      a.set({ held: a.now.pages, isShort: true, wanted: 64 * 200, steps: a.now.steps + 500 });
      b.set({ held: 0, idle: 0 });
      await look(a);
    }
    expect(a.now.pages).toBe(99 * 64);
  });

  test('gives up what does not fit any more where needs are stated', async () => {
    const { budget } = budgetOf(100 * 64 * MIB);
    const [a, b] = [new FakeUser('a'), new FakeUser('b')];
    [a.keptPages, b.keptPages] = [1000, 1000];
    budget.add(a);
    budget.add(b);
    await budget.settled();
    await budget.setBytes(98 * 64 * MIB);
    expect([a.now.pages, b.now.pages]).toEqual([49 * 64, 49 * 64]);
  });

  test('goes to a model whose requests wait for it, from blank pages of another', async () => {
    const { budget, look } = budgetOf(100 * 64 * MIB);
    const [a, b] = [new FakeUser('a'), new FakeUser('b')];
    budget.add(a);
    budget.add(b);
    await budget.settled();
    for (let i = 0; i < 4; i++) {
      a.set({ held: a.now.pages, isShort: true, wanted: 64 * 200, steps: a.now.steps + 500 });
      await look(a);
    }
    expect(a.now.pages).toBe(99 * 64);
    expect(b.now.pages).toBe(64);
    b.set({ held: b.now.pages, isShort: true, wanted: 64 * 200, steps: 500 });
    for (let i = 0; i < 50; i++) {
      for (const user of [a, b]) user.set({ held: user.now.pages, steps: user.now.steps + 500 });
      await look(b);
    }
    expect(Math.abs(a.now.pages - b.now.pages)).toBeLessThanOrEqual(20 * 64);
    expect(budget.freeBytes).toBe(0);
  });

  test('never leaves a model less than its longest request needs', async () => {
    const { budget, look } = budgetOf(100 * 64 * MIB);
    const [a, b] = [new FakeUser('a'), new FakeUser('b')];
    budget.add(a);
    budget.add(b, 30 * 64);
    await budget.settled();
    b.leastPages = 30 * 64;
    expect([budget.roomFor(a), budget.roomNow(a)]).toEqual([99 * 64, 70 * 64]);
    a.set({ isShort: true, wanted: 64 * 1000 });
    for (let i = 0; i < 20; i++) {
      a.set({ held: a.now.pages, steps: a.now.steps + 100 });
      await look(a);
    }
    expect([a.now.pages, b.now.pages]).toEqual([70 * 64, 30 * 64]);
  });

  test('gives a model at once what its longest request needs, from pages that are held', async () => {
    const { budget, look } = budgetOf(100 * 64 * MIB);
    const [a, b] = [new FakeUser('a'), new FakeUser('b')];
    budget.add(a);
    await budget.settled();
    a.set({ isShort: true, wanted: 64 * 1000 });
    for (let i = 0; i < 5; i++) {
      a.set({ held: a.now.pages, steps: a.now.steps + 100 });
      await look(a);
    }
    expect(a.now.pages).toBe(100 * 64);
    a.set({ held: a.now.pages });
    budget.add(b, 10 * 64);
    await budget.settled();
    expect(b.now.pages).toBeGreaterThanOrEqual(64);
    b.leastPages = 40 * 64;
    b.set({ isShort: true, wanted: 40 * 64 });
    await look(b, 0.001);
    expect(b.now.pages).toBeGreaterThanOrEqual(40 * 64);
  });

  test('makes do with what the device has, and asks again later', async () => {
    const { budget, look } = budgetOf(100 * 64 * MIB);
    const a = new FakeUser('a');
    a.most = 20 * 64;
    budget.add(a);
    await budget.settled();
    a.set({ isShort: true, wanted: 64 * 1000 });
    for (let i = 0; i < 5; i++) {
      a.set({ held: a.now.pages, steps: a.now.steps + 10 });
      await look(a, 0.1);
    }
    expect(a.now.pages).toBe(20 * 64);
    expect(budget.bytes).toBe(20 * 64 * MIB);
    a.most = Infinity;
    for (let i = 0; i < 10; i++) {
      a.set({ held: a.now.pages, steps: a.now.steps + 10 });
      await look(a, 30);
    }
    expect(a.now.pages).toBe(100 * 64);
  });

  test('refuses a model that does not fit beside others, in one line', async () => {
    const { budget } = budgetOf(100 * 64 * MIB);
    const a = new FakeUser('a');
    budget.add(a, 90 * 64);
    await budget.settled();
    a.leastPages = 90 * 64;
    expect(() => budget.add(new FakeUser('b'), 20 * 64)).toThrow(
      'b: needs 1.25 GiB for keys and values, and there are 640 MiB beside a',
    );
    await expect(budget.setBytes(50 * 64 * MIB)).rejects.toThrow('need 5.63 GiB');
  });
});

const MODEL: ModelMemory = {
  pieceBytes: 64 * MIB,
  pieces: 50,
  least: 1,
  most: 1000,
  held: 50,
  idle: 0,
  wanted: 500,
  isShort: true,
  caution: 1,
  fixed: 0.25,
  saved: 0,
  lost: 0,
  lostPieces: 0,
  refill: 0.01,
};

describe('splitMemory', () => {
  const total = 100 * 64 * MIB;

  test('is a pure function: what is even stays', () => {
    expect(splitMemory([MODEL, MODEL], total)).toEqual([50, 50]);
  });

  test('keeps to the budget and to the least of each, for any states', () => {
    let seed = 1;
    const random = (): number => (seed = (seed * 48_271) % 0x7fff_ffff) / 0x7fff_ffff;
    for (let i = 0; i < 300; i++) {
      const models = Array.from({ length: 2 + (i % 3) }, () => {
        const pieces = Math.floor(30 * random());
        return {
          ...MODEL,
          isShort: random() < 0.5,
          caution: 1 + random(),
          pieceBytes: (1 + Math.floor(3 * random())) * 32 * MIB,
          pieces,
          least: Math.floor(10 * random()),
          most: 20 + Math.floor(100 * random()),
          held: pieces * random(),
          idle: pieces * random() * 0.5,
          wanted: random() < 0.5 ? 0 : 100 * random(),
          fixed: random(),
          saved: random() < 0.5 ? 0 : random(),
          lost: random() < 0.5 ? 0 : random(),
          lostPieces: 20 * random(),
        };
      });
      const targets = splitMemory(models, total, SPLIT_POLICY);
      const bytes = targets.reduce((sum, pieces, k) => sum + pieces * models[k]!.pieceBytes, 0);
      expect(bytes).toBeLessThanOrEqual(total);
      targets.forEach((pieces, k) => {
        expect(pieces).toBeGreaterThanOrEqual(models[k]!.least);
        expect(pieces).toBeLessThanOrEqual(models[k]!.most);
      });
    }
  });
});

test('StepTimes finds what a step, a token and a key take', () => {
  const times = new StepTimes();
  for (let i = 0; i < 400; i++) {
    const tokens = 1 + ((i * 37) % 64);
    const keys = tokens * (100 + ((i * 53) % 900));
    times.add(tokens, keys, 0.005 + tokens * 2e-5 + keys * 4e-8);
  }
  expect(times.cost.step).toBeCloseTo(0.005, 5);
  expect(times.cost.token).toBeCloseTo(2e-5, 7);
  expect(times.cost.key).toBeCloseTo(4e-8, 10);
  const equal = new StepTimes();
  for (let i = 0; i < 100; i++) equal.add(64, 64_000, 0.01);
  const { step, token, key } = equal.cost;
  expect(step + 64 * token + 64_000 * key).toBeCloseTo(0.01, 4);
});
