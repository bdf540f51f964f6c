import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KEYS_PER_TOKEN, listPaths, scoringBucket, withKeyRoom } from '../../ir/scoring.js';

/** Trees in depth-first order: the depth of each token, and the tokens of its path. */
function forest(climbs: readonly number[]): { readonly position: Int32Array; readonly paths: readonly number[][] } {
  const paths: number[][] = [];
  let path: number[] = [];
  climbs.forEach((climb, token) => {
    path = [...path.slice(0, Math.max(0, path.length - climb)), token];
    paths.push(path);
  });
  return { position: Int32Array.from(paths, ({ length }) => length - 1), paths };
}

describe('listPaths', () => {
  it('lists a stem with its first branch, and again for each of the others', () => {
    const { begin, key } = listPaths(Int32Array.of(0, 1, 2, 3, 2, 2, 3, 0, 1));
    expect([...key]).toEqual([0, 1, 2, 3, 0, 1, 4, 0, 1, 5, 6, 7, 8]);
    expect([...begin]).toEqual([0, 0, 0, 0, 4, 7, 7, 11, 11]);
  });

  it('names the path of every token, in order (random trees)', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 60 }), (climbs) => {
        const { position, paths } = forest(climbs);
        const { begin, key } = listPaths(position);
        paths.forEach((path, token) => {
          expect([...key.subarray(begin[token], begin[token]! + position[token]! + 1)]).toEqual(path);
        });
      }),
    );
  });
});

describe('withKeyRoom', () => {
  const size = scoringBucket({ tokens: 64, rows: 32, longest: 9 });

  it("adds room for lists where the function takes them, in the function's order", () => {
    const extents = ['T', 'C', 'R'].map((name) => ({ name }));
    expect(Object.entries(withKeyRoom({ extents }, size).extents)).toEqual([
      ['T', 64],
      ['C', 64 * KEYS_PER_TOKEN],
      ['R', 32],
    ]);
  });

  it('changes nothing elsewhere', () => {
    expect(withKeyRoom({ extents: [{ name: 'T' }, { name: 'R' }] }, size)).toEqual(size);
  });
});
