/** Who is served, who waits and who gives way: filtered rows beyond a step's, priorities, pauses and sizes. */
import { describe, expect, it } from 'vitest';
import { resolveSampling } from '../../engine/options.js';
import { PAGE_TOKENS, PagePool } from '../../engine/pages.js';
import { Scheduler } from '../../engine/scheduler.js';
import { Sequence } from '../../engine/sequence.js';
import type { Step } from '../../engine/stepMessage.js';

const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);

/** The step is over; each row has drawn 7. */
function land(scheduler: Scheduler, step: Step): void {
  for (const { sequence, at } of step.asked) sequence.read(at, 7);
  scheduler.read(step);
}

describe('the scheduler', () => {
  it('serves all sequences that need filters in turn, where a step takes fewer', () => {
    const scheduler = new Scheduler(new PagePool(64), { tokens: 100, keys: 10_000, filtered: 4, entries: 100 });
    const sampling = resolveSampling({ temperature: 1, topK: 5 });
    const all = range(0, 10).map((i) => new Sequence({ prompt: [100 * i + 1], sampling, filterVocab: 50 }));
    for (const sequence of all) scheduler.add(sequence);
    for (let i = 0; i < 50; i++) {
      const step = scheduler.next()!;
      expect(step.message.filters!.topK.length).toBeLessThanOrEqual(4);
      land(scheduler, step);
    }
    const lengths = all.map(({ tokens }) => tokens.length - 1);
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBe(4 * 50);
    expect(Math.min(...lengths)).toBeGreaterThanOrEqual(15);
  });

  it('computes few prompts beside texts in small steps, and many in large ones', () => {
    const tokensBeside = (prompts: number): number => {
      const limits = { tokens: 4096, keys: 100_000, besideTokens: 2048 };
      const scheduler = new Scheduler(new PagePool(2048), limits);
      scheduler.add(new Sequence({ prompt: [1] }));
      land(scheduler, scheduler.next()!);
      for (let i = 1; i <= prompts; i++) scheduler.add(new Sequence({ prompt: range(1000 * i, 600) }));
      return scheduler.next()!.message.tokens.length;
    };
    // Beside the text's own token: an eighth of what a step may be, a fourth of what waits, all that a step may be.
    expect([1, 5, 10, 20].map(tokensBeside)).toEqual([1 + 256, 1 + 750, 1 + 1500, 2048]);
  });

  it('lets few prompts and texts take turns where a device computes them faster apart', () => {
    const limits = { tokens: 4096, keys: 100_000, besideTokens: 2048, takesPromptsApart: true };
    const scheduler = new Scheduler(new PagePool(2048), limits);
    const text = new Sequence({ prompt: [1] });
    scheduler.add(text);
    land(scheduler, scheduler.next()!);
    scheduler.add(new Sequence({ prompt: range(1000, 600) }));
    const counts = range(0, 8).map(() => {
      const step = scheduler.next()!;
      land(scheduler, step);
      return step.pieces.map(({ sequence, from, to }) => [sequence === text, to - from]);
    });
    // Three pieces of the prompt, and a token of the text behind each; then both go on together.
    const piece = (tokens: number) => [[[false, tokens]], [[true, 1]]];
    const both = [
      [true, 1],
      [false, 1],
    ];
    expect(counts).toEqual([...piece(256), ...piece(256), [[false, 88]], both, both, both]);
  });

  it('goes on with texts where no prompt can be taken', () => {
    const limits = { tokens: 4096, keys: 100_000, besideTokens: 2048, takesPromptsApart: true };
    const scheduler = new Scheduler(new PagePool(4), limits);
    const text = new Sequence({ prompt: range(1, 40) });
    scheduler.add(text);
    land(scheduler, scheduler.next()!);
    scheduler.add(new Sequence({ prompt: range(1000, 60) }));
    for (let i = 0; i < 4; i++) {
      const step = scheduler.next()!;
      expect(step.pieces.map(({ sequence }) => sequence === text)).toEqual([true]);
      land(scheduler, step);
    }
  });

  it('has those of a later priority give way to one that waits, and goes on with them afterwards', () => {
    const pool = new PagePool(4);
    const scheduler = new Scheduler(pool, { tokens: 100, keys: 10_000 });
    const low = [1, 2].map((i) => new Sequence({ prompt: range(1000 * i, 20), longest: 30, priority: 1 }));
    for (const sequence of low) scheduler.add(sequence);
    land(scheduler, scheduler.next()!);
    expect(scheduler.running.length).toBe(2);
    const high = new Sequence({ prompt: range(5000, 20), longest: 30 });
    scheduler.add(high);
    const step = scheduler.next()!;
    expect(step.pieces.map(({ sequence }) => sequence)).toEqual([low[0], high]);
    expect([...step.message.ended]).toHaveLength(1);
    land(scheduler, step);
    scheduler.remove(high);
    const { pieces } = scheduler.next()!;
    expect(pieces.map(({ sequence, from, to }) => [sequence === low[1], from, to])).toContainEqual([true, 0, 21]);
  });

  it('lets a paused sequence keep its pages until others need them', () => {
    const pool = new PagePool(4);
    const scheduler = new Scheduler(pool, { tokens: 100, keys: 10_000 });
    const [paused, other] = [1, 2].map((i) => new Sequence({ prompt: range(1000 * i, 20), longest: 60 })) as [
      Sequence,
      Sequence,
    ];
    scheduler.add(paused);
    land(scheduler, scheduler.next()!);
    scheduler.pause(paused);
    expect(scheduler.next()).toBeUndefined();
    expect(paused.pages.length).toBe(2);
    scheduler.add(other);
    while (other.tokens.length <= 2 * PAGE_TOKENS) land(scheduler, scheduler.next()!);
    expect(paused.pages.length).toBe(2);
    while (other.tokens.length <= 2 * PAGE_TOKENS + 1) land(scheduler, scheduler.next()!);
    expect([paused.pages.length, scheduler.preemptions]).toEqual([0, 1]);
    scheduler.remove(other);
    scheduler.resume(paused);
    const { pieces } = scheduler.next()!;
    // Its first page was idle, and nobody has needed that one.
    expect(pieces.map(({ from, to }) => [from, to])).toEqual([[PAGE_TOKENS, paused.tokens.length]]);
  });

  it('gives back what lies past a smaller size, and computes it again', () => {
    const pool = new PagePool(8);
    const scheduler = new Scheduler(pool, { tokens: 100, keys: 10_000 });
    const all = [1, 2].map((i) => new Sequence({ prompt: range(1000 * i, 40), longest: 48 }));
    for (const sequence of all) scheduler.add(sequence);
    land(scheduler, scheduler.next()!);
    expect(all.map(({ pages }) => pages)).toEqual([
      [0, 1, 2],
      [3, 4, 5],
    ]);
    scheduler.resize(5);
    expect([pool.total, pool.held, scheduler.running.length, scheduler.waiting.length]).toEqual([5, 3, 1, 1]);
    expect(() => pool.resize(2)).toThrow('Page 2 is held');
    land(scheduler, scheduler.next()!);
    scheduler.remove(all[0]!);
    const { pieces } = scheduler.next()!;
    expect(pieces.map(({ sequence, to }) => [sequence === all[1], to])).toEqual([[true, 41]]);
    expect(all[1]!.pages.every((page) => page < 5)).toBe(true);
  });
});
