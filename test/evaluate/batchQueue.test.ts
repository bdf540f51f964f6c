import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Pack, Packable } from '../../evaluate/packing.js';
import { BatchQueue } from '../../evaluate/scoreBatches.js';
import type { Scorer } from '../../evaluate/scorer.js';

/** Devices that take `fixed` seconds for a micro-batch and one second for a thousand tokens. */
function scorerOf(devices: number, fixed = 0.05, replicas = devices): Scorer {
  return {
    maxTokens: 8192,
    maxRows: 8192,
    maxLength: 2048,
    devices,
    replicas,
    inFlight: 2 * devices,
    cost: (tokens) => fixed + tokens / 1000,
    score: () => Promise.reject(new Error('not asked')),
  };
}

/** A micro-batch of trees of about `size` tokens. */
function packOf(tokens: number, size: number, scorer: Scorer): Pack<Packable> {
  const items = Array.from({ length: Math.max(1, Math.round(tokens / size)) }, () => ({
    tokens: size,
    rows: 4,
    keys: size,
    longest: size,
  }));
  const total = items.length * size;
  return {
    items,
    tokens: total,
    rows: 4 * items.length,
    keys: total,
    longest: size,
    seconds: scorer.cost(total, 0, size),
  };
}

const takeAll = (queue: BatchQueue<Packable>): Pack<Packable>[] => {
  const taken: Pack<Packable>[] = [];
  for (let pack = queue.take(); pack !== undefined; pack = queue.take()) taken.push(pack);
  return taken;
};

/**
 * Devices that each have one micro-batch waiting behind the one that they compute. Returns when the last and the first
 * have finished.
 */
function play(queue: BatchQueue<Packable>, replicas: number): { readonly last: number; readonly busy: number } {
  const devices = Array.from({ length: replicas }, () => ({ free: 0, ends: [] as number[], busy: 0 }));
  let now = 0;
  for (;;) {
    const open = devices.filter(({ ends }) => ends.length < 2).sort((a, b) => a.free - b.free)[0];
    const pack = open === undefined ? undefined : queue.take();
    if (open !== undefined && pack !== undefined) {
      open.free = Math.max(open.free, now) + pack.seconds;
      open.busy += pack.seconds;
      open.ends.push(open.free);
      continue;
    }
    const next = Math.min(...devices.flatMap(({ ends }) => ends));
    if (!Number.isFinite(next)) break;
    now = next;
    for (const device of devices) device.ends = device.ends.filter((end) => end > now);
  }
  return { last: now, busy: devices.reduce((sum, { busy }) => sum + busy, 0) };
}

describe('the queue of micro-batches', () => {
  it('gives one device everything unchanged, in the given order', () => {
    const scorer = scorerOf(1);
    const packs = [500, 8000, 3000, 8000, 100].map((tokens) => packOf(tokens, 50, scorer));
    expect(takeAll(new BatchQueue(packs, scorer))).toEqual(packs);
  });

  it('gives several devices the largest first, and halves if less than one for each is left', () => {
    const scorer = scorerOf(4);
    const packs = [...[500, 8000, 3000], ...Array<number>(20).fill(6000)].map((tokens) => packOf(tokens, 50, scorer));
    const taken = takeAll(new BatchQueue(packs, scorer));
    expect(taken.map(({ tokens }) => tokens)).toEqual(taken.map(({ tokens }) => tokens).sort((a, b) => b - a));
    expect(taken[0]?.tokens).toBe(8000);
    expect(taken.slice(0, 16).every(({ tokens }) => tokens >= 6000)).toBe(true);
    expect(taken.at(-1)?.tokens).toBeLessThan(400);
    expect(taken.flatMap(({ items }) => items)).toHaveLength(packs.flatMap(({ items }) => items).length);
  });

  it('halves nothing if that costs more than it gains, and never a single tree', () => {
    const slow = scorerOf(4, 100);
    const packs = [8000, 8000].map((tokens) => packOf(tokens, 50, slow));
    expect(takeAll(new BatchQueue(packs, slow))).toHaveLength(2);
    const scorer = scorerOf(4);
    expect(takeAll(new BatchQueue([packOf(2000, 2000, scorer)], scorer))).toHaveLength(1);
  });

  it('keeps every device busy to the end: 208 equal micro-batches on four', () => {
    const scorer = scorerOf(4);
    const packs = Array.from({ length: 208 }, () => packOf(8192, 128, scorer));
    const { last, busy } = play(new BatchQueue(packs, scorer), 4);
    const whole = packs.reduce((sum, { seconds }) => sum + seconds, 0);
    expect(busy / whole).toBeLessThan(1.005);
    expect(busy / 4 / last).toBeGreaterThan(0.99);
    expect(whole / last).toBeGreaterThan(3.95);
  });

  it('leaves a pipeline its micro-batches as they are, and halves them if they are fewer than its stages', () => {
    const four = scorerOf(4, 0.05, 1);
    const packs = [500, 8000, 3000, 8000, 100, 7000, 7000, 8000].map((tokens) => packOf(tokens, 50, four));
    expect(takeAll(new BatchQueue(packs, four))).toEqual(packs);
    /**
     * A stage starts a micro-batch when the stage before it has finished it. Returns the seconds until the last one is
     * through.
     */
    const through = (taken: readonly Pack<Packable>[]): number => {
      const ends = [0, 0, 0, 0];
      for (const { seconds } of taken) {
        let arrived = 0;
        ends.forEach((end, stage) => {
          arrived = ends[stage] = Math.max(arrived, end) + seconds / 4;
        });
      }
      return ends[3]!;
    };
    const few = [8000, 8000, 8000].map((tokens) => packOf(tokens, 50, four));
    const halved = takeAll(new BatchQueue(few, four));
    expect(halved).toHaveLength(6);
    expect(through(halved)).toBeLessThan(0.8 * through(few));
  });

  it('loses no tree and takes about as long as an even share, whatever the micro-batches and devices', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 8000 }), { minLength: 1, maxLength: 60 }),
        fc.integer({ min: 2, max: 8 }),
        (sizes, replicas) => {
          const scorer = scorerOf(replicas, 0.01);
          const packs = sizes.map((tokens) => packOf(tokens, Math.min(tokens, 64), scorer));
          const taken = takeAll(new BatchQueue(packs, scorer));
          expect(taken.reduce((sum, { tokens }) => sum + tokens, 0)).toBe(
            packs.reduce((sum, { tokens }) => sum + tokens, 0),
          );
          const { last } = play(new BatchQueue(packs, scorer), replicas);
          const whole = packs.reduce((sum, { seconds }) => sum + seconds, 0);
          // The excess is at most a micro-batch of a few trees more than an even share, and a quarter for halving.
          expect(last).toBeLessThan((whole / replicas) * 1.25 + 0.6);
        },
      ),
      { numRuns: 300 },
    );
  });
});
