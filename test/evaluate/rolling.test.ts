/** Windows of texts that are scored as a whole, by the rule of the public harness. */
import { describe, expect, it } from 'vitest';
import { cutWindows } from '../../evaluate/pathLengths.js';

const windows = (tokens: readonly number[], length: number, added: readonly number[] = []): unknown => {
  const question = { docId: 0, context: Int32Array.of(99), continuations: [Int32Array.from(tokens)], isRolling: true };
  const { contexts = [], continuations } = cutWindows(question, length, added);
  return contexts.map((context, i) => [[...context], [...continuations[i]!]]);
};

describe('a text that is scored as a whole', () => {
  it('is one window where it fits', () => {
    expect(windows([1, 2, 3], 4)).toEqual([[[99], [1, 2, 3]]]);
    expect(windows([1, 2, 3], 4, [99])).toEqual([[[99], [99, 1, 2, 3]]]);
  });

  it('continues after one token, and fills the last window up on the left', () => {
    expect(windows([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 4)).toEqual([
      [[99], [1, 2, 3, 4]],
      [[4], [5, 6, 7, 8]],
      [
        [6, 7, 8],
        [9, 10],
      ],
    ]);
  });

  it('has no window where it has no token, added ones included', () => {
    expect(windows([], 4)).toEqual([]);
    expect(windows([], 4, [99])).toEqual([[[99], [99]]]);
  });

  it('leaves other questions as they are', () => {
    const question = { docId: 0, context: Int32Array.of(1), continuations: [Int32Array.of(2)] };
    expect(cutWindows(question, 1, [])).toBe(question);
  });
});
