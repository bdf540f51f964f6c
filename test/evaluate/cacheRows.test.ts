/** Rows of a cache, handed out round and round. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CacheRows } from '../../evaluate/pathCall.js';

describe('rows of a cache', () => {
  it('are handed out in order, past those in use, and again when they come back', () => {
    const rows = new CacheRows(6);
    const take = (count: number): (number | undefined)[] => Array.from({ length: count }, () => rows.take());
    expect(take(4)).toEqual([0, 1, 2, 3]);
    rows.giveBack([0, 2, 3]);
    expect(take(2)).toEqual([4, 5]);
    expect(rows.free).toBe(3);
    expect(take(4)).toEqual([0, 2, 3, undefined]);
    expect(rows.free).toBe(0);
  });

  it('are never held twice, and never missing', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), fc.array(fc.nat()), (count, steps) => {
        const rows = new CacheRows(count);
        const held = new Set<number>();
        for (const step of steps) {
          if (step % 3 === 0 && held.size > 0) {
            const row = [...held][step % held.size]!;
            rows.giveBack([row]);
            held.delete(row);
            continue;
          }
          const row = rows.take();
          expect(row === undefined).toBe(held.size === count);
          if (row === undefined) continue;
          expect(held.has(row)).toBe(false);
          held.add(row);
        }
        expect(rows.free).toBe(count - held.size);
      }),
      { seed: 71 },
    );
  });
});
