/** Pages and sequences: sharing, eviction, and the invariants that must hold whatever is asked in whatever order. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contentOf, PagePool } from '../../engine/pages.js';
import { Scheduler } from '../../engine/scheduler.js';
import { Sequence } from '../../engine/sequence.js';
import type { Step } from '../../engine/stepMessage.js';
import { SequenceTable } from '../../driver/devices/sequenceTable.js';

describe('the pool of pages', () => {
  it('gives every page once, and none twice', () => {
    const pool = new PagePool(3);
    expect(new Set([pool.take(), pool.take(), pool.take()])).toEqual(new Set([0, 1, 2]));
    expect(pool.take()).toBeUndefined();
    expect(pool.held).toBe(3);
  });

  it('keeps what a released page contains until its memory is needed, the least recently used first', () => {
    const pool = new PagePool(2);
    const pages = ['a', 'b'].map((content) => {
      const page = pool.take()!;
      pool.publish(page, content);
      return page;
    });
    pool.release(pages[1]!);
    pool.release(pages[0]!);
    expect(pool.find('b')).toBe(pages[1]);
    pool.release(pages[1]!);
    expect(pool.take()).toBe(pages[0]);
    expect([pool.has('a'), pool.has('b'), pool.evictions]).toEqual([false, true, 1]);
  });

  it('takes blank pages before it forgets a content', () => {
    const pool = new PagePool(2);
    const page = pool.take()!;
    pool.publish(page, 'a');
    pool.release(page);
    expect(pool.take()).not.toBe(page);
    expect(pool.has('a')).toBe(true);
  });

  it('refuses to release a page that nobody holds', () => {
    const pool = new PagePool(1);
    const page = pool.take()!;
    pool.release(page);
    expect(() => pool.release(page)).toThrow('held by nobody');
  });

  it('names contents by everything before them', () => {
    expect(contentOf(contentOf(undefined, [1]), [2])).not.toBe(contentOf(contentOf(undefined, [3]), [2]));
    expect(contentOf(contentOf(undefined, [1]), [2])).toBe(contentOf(contentOf(undefined, [1]), [2]));
  });
});

/**
 * A device that executes calls in order: the paths whose last token each row of the cache holds, and what was drawn.
 * The token at place n of a sequence is drawn as n % 7.
 */
class FakeDevice {
  private readonly table: SequenceTable;
  private readonly rows = new Map<number, string>();
  private readonly kept = new Map<number, number>();
  /** Rows that were copied. */
  copied = 0;

  constructor(pages: number, keys: number, keptRows?: number) {
    this.table = new SequenceTable({ pages, keys, maxLength: 1000, keptRows });
  }

  /** Checks that every token sees exactly its own path, and writes what the call writes. */
  call({ message, pieces, asked }: Step): void {
    const { inputs, copies } = this.table.apply(message);
    copies?.from.forEach((page, i) => {
      for (let row = 0; row < copies.rows[i]!; row++) {
        const from = this.rows.get(16 * page + row);
        if (from === undefined) throw new Error(`page ${page} is copied, of which row ${row} was never written`);
        this.rows.set(16 * copies.to[i]! + row, from);
        this.copied++;
      }
    });
    const { tokens, position, slot, begin, key, isFed, feed, keep } = inputs;
    expect(new Set(slot).size).toBe(slot.length);
    let at = 0;
    for (const { sequence, from, to } of pieces)
      for (let i = from; i < to; i++, at++) {
        const token = isFed?.[at] === 1 ? this.kept.get(feed![at]!) : tokens[at];
        if (token !== sequence.tokens[i] || position[at] !== i) throw new Error(`token ${at} is another's`);
        this.rows.set(slot[at]!, sequence.tokens.slice(0, i + 1).join());
      }
    at = 0;
    for (const { sequence, from, to } of pieces)
      for (let i = from; i < to; i++, at++)
        for (let k = 0; k <= i; k++)
          if (this.rows.get(key[begin[at]! + k]!) !== sequence.tokens.slice(0, k + 1).join())
            throw new Error(`token ${at} sees another's key at position ${k}`);
    asked.forEach((row, i) => {
      if ((keep?.[i] ?? -1) >= 0) this.kept.set(keep![i]!, row.at % 7);
    });
  }
}

describe('the scheduler', () => {
  /** Sequences with common beginnings, each with a number of tokens to generate. */
  const requests = fc.array(
    fc.record({
      beginning: fc.integer({ min: 0, max: 2 }),
      shared: fc.integer({ min: 0, max: 40 }),
      own: fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 1, maxLength: 30 }),
      generate: fc.integer({ min: 1, max: 25 }),
      // Ends this long before its longest: what is drawn says so.
      early: fc.integer({ min: 0, max: 2 }),
    }),
    { minLength: 1, maxLength: 8 },
  );

  it.each([
    ['one after another', 0],
    ['planned before the one before it is read', 5],
  ])('lets every token see its own path, finishes, and gives all pages back: calls %s', (_title, keptRows) => {
    let ahead = 0;
    let copied = 0;
    fc.assert(
      fc.property(requests, fc.integer({ min: 6, max: 20 }), fc.integer({ min: 1, max: 50 }), (asked, pages, most) => {
        const pool = new PagePool(pages);
        const scheduler = new Scheduler(pool, { tokens: most, keys: 600, keptRows });
        const device = new FakeDevice(pages, 600, keptRows);
        const left = new Map<Sequence, number>();
        for (const { beginning, shared, own, generate, early } of asked) {
          const prompt = [...Array.from({ length: shared }, (_, i) => beginning * 100 + i), ...own];
          const sequence = new Sequence({ prompt, longest: prompt.length + generate + early });
          left.set(sequence, generate);
          scheduler.add(sequence);
        }
        const plan = (): Step | undefined => {
          const step = scheduler.next();
          if (step !== undefined) scheduler.foresee(step);
          expect(step?.message.tokens.length ?? 1).toBeLessThanOrEqual(most);
          return step;
        };
        let step = plan();
        for (let calls = 0; step !== undefined; calls++) {
          expect(calls).toBeLessThan(3000);
          const next = keptRows > 0 ? plan() : undefined;
          if (next !== undefined) ahead++;
          device.call(step);
          for (const { sequence, kind, at } of step.asked) {
            expect(kind).toBe('next');
            if (!left.has(sequence)) continue;
            sequence.read(at, at % 7);
            left.set(sequence, left.get(sequence)! - 1);
            if (left.get(sequence)! > 0) continue;
            left.delete(sequence);
            scheduler.remove(sequence);
          }
          scheduler.read(step);
          step = next ?? plan();
        }
        expect([left.size, pool.held]).toEqual([0, 0]);
        copied += device.copied;
      }),
      { numRuns: 120, seed: 16 },
    );
    expect(ahead > 0).toBe(keptRows > 0);
    expect(copied).toBeGreaterThan(1000);
  });

  it('copies what a page has in common with another, where there is room for both', () => {
    const pool = new PagePool(4);
    const scheduler = new Scheduler(pool, { tokens: 1000, keys: 1000 });
    const device = new FakeDevice(4, 1000);
    const run = (prompt: readonly number[]): readonly number[] => {
      const sequence = new Sequence({ prompt, longest: prompt.length + 1 });
      scheduler.add(sequence);
      const step = scheduler.next()!;
      device.call(step);
      scheduler.read(step);
      scheduler.remove(sequence);
      const { tokens, copies } = step.message;
      return [tokens.length, ...(copies?.rows ?? [])];
    };
    const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
    expect(run(range(40))).toEqual([40]);
    // Copied from a full page, and from one that is not.
    expect(run([...range(21), 99])).toEqual([1, 5]);
    expect(run([...range(37), 99])).toEqual([1, 5]);
    // A prompt that needs all pages leaves none to copy from.
    expect(run([...range(20), ...range(41)])).toEqual([45]);
    expect(pool.held).toBe(0);
  });

  it('waits for a prompt that another one repeats, and copies its last page', () => {
    const scheduler = new Scheduler(new PagePool(20), { tokens: 1000, keys: 1000 });
    const device = new FakeDevice(20, 1000);
    const prompt = Array.from({ length: 25 }, (_, i) => i);
    for (let i = 0; i < 4; i++) scheduler.add(new Sequence({ prompt }));
    const counts = [scheduler.next()!, scheduler.next()!].map((step) => {
      device.call(step);
      return [step.message.tokens.length, step.message.copies?.rows.length ?? 0];
    });
    expect(counts).toEqual([
      [25, 0],
      [3, 3],
    ]);
  });

  it('computes a common beginning once', () => {
    const pool = new PagePool(20);
    const scheduler = new Scheduler(pool, { tokens: 1000, keys: 1000 });
    const shared = Array.from({ length: 64 }, (_, i) => i);
    for (const own of [1, 2, 3]) scheduler.add(new Sequence({ prompt: [...shared, own] }));
    const device = new FakeDevice(20, 1000);
    const counts: number[] = [];
    for (let i = 0; i < 2; i++) {
      const step = scheduler.next()!;
      counts.push(step.message.tokens.length);
      device.call(step);
      for (const { sequence } of step.asked) scheduler.remove(sequence);
    }
    expect(counts).toEqual([65, 2]);
  });

  it('gives a prompt pages in order, also those of a text that has ended', () => {
    const pool = new PagePool(6);
    for (const first of [0, 1000]) {
      const scheduler = new Scheduler(pool, { tokens: 100, keys: 1000 });
      const sequence = new Sequence({ prompt: Array.from({ length: 90 }, (_, i) => first + i) });
      scheduler.add(sequence);
      const step = scheduler.next()!;
      expect([...step.message.pages]).toEqual([0, 1, 2, 3, 4, 5]);
      scheduler.read(step);
      scheduler.remove(sequence);
    }
    expect(pool.evictions).toBeGreaterThan(0);
  });

  it('computes less of a prompt in a call for which a text waits', () => {
    const scheduler = new Scheduler(new PagePool(100), { tokens: 100, keys: 1000, besideTokens: 10 });
    const text = new Sequence({ prompt: [1, 2, 3] });
    scheduler.add(text);
    const counts: number[] = [];
    for (let i = 0; i < 4; i++) {
      if (i === 1) scheduler.add(new Sequence({ prompt: Array.from({ length: 150 }, (_, at) => at) }));
      if (i === 3) scheduler.remove(text);
      const step = scheduler.next()!;
      counts.push(step.message.tokens.length);
      for (const { sequence, at } of step.asked) sequence.read(at, 7);
    }
    expect(counts).toEqual([3, 10, 10, 100]);
  });
});
