/** Numbers of which the lowest can be taken, against a set that is searched. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { LowestFirst } from '../../system/lowestFirst.js';

it('takes the lowest, whatever came and went', () => {
  const operations = fc.array(
    fc.record({ kind: fc.constantFrom('add', 'add', 'delete', 'take'), at: fc.integer({ min: 0, max: 2 ** 31 }) }),
    { maxLength: 300 },
  );
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5000 }), operations, (bound, all) => {
      const numbers = new LowestFirst(bound);
      const wanted = new Set<number>();
      for (const { kind, at } of all) {
        const value = at % bound;
        if (kind === 'add') {
          numbers.add(value);
          wanted.add(value);
        } else if (kind === 'delete') expect(numbers.delete(value)).toBe(wanted.delete(value));
        else {
          const lowest = wanted.size === 0 ? undefined : Math.min(...wanted);
          expect(numbers.take()).toBe(lowest);
          if (lowest !== undefined) wanted.delete(lowest);
        }
        expect(numbers.size).toBe(wanted.size);
      }
      for (const value of wanted) expect(numbers.has(value)).toBe(true);
    }),
    { numRuns: 60, seed: 30 },
  );
});

it('has room for every number below its bound', () => {
  for (const bound of [1, 31, 32, 33, 1023, 1024, 1025, 32_769]) {
    const numbers = new LowestFirst(bound);
    for (let value = bound - 1; value >= 0; value--) numbers.add(value);
    expect(Array.from({ length: bound }, () => numbers.take())).toEqual(Array.from({ length: bound }, (_, i) => i));
    expect(numbers.take()).toBeUndefined();
  }
});
