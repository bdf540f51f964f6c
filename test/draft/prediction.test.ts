/** Texts that are expected: followed while the text is what was expected, and found again where it comes back. */
import { describe, expect, it } from 'vitest';
import type { Drafter, DraftText } from '../../draft/drafter.js';
import { MAX_DRAFTS } from '../../draft/limits.js';
import { Followed, predicting, Prediction } from '../../draft/prediction.js';
import { expectLinear } from '../support/growth.js';
import { randomNumbers } from '../support/pathModel.js';
import { thorough } from '../support/thorough.js';

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

/** What is proposed after each token of a text, the first token of it. */
function firsts(expected: readonly number[], text: readonly number[]): readonly (number | undefined)[] {
  const followed = new Followed(new Prediction(expected));
  return text.map((token) => {
    const [next] = followed.next(1);
    followed.take(token);
    return next;
  });
}

const foreseen = (expected: readonly number[], text: readonly number[]): number => {
  const followed = new Followed(new Prediction(expected));
  for (const token of text) followed.take(token);
  return followed.foreseen;
};

describe('a text that is expected', () => {
  it('is the draft as long as it comes, from the first token on', () => {
    expect(firsts([4, 5, 6], [4, 5, 6, 7])).toEqual([4, 5, 6, undefined]);
    expect(new Followed(new Prediction(range(0, 40))).next(99)).toEqual(range(0, MAX_DRAFTS));
    expect(new Followed(new Prediction([])).next(9)).toEqual([]);
  });

  it.each([
    ['a token is another', [1, 2, 3, 4, 5, 6], [1, 2, 9, 4, 5, 6], [1, 2, 3, undefined, undefined, 6], 3],
    ['tokens are inserted', [1, 2, 3, 4], [1, 2, 8, 9, 3, 4], [1, 2, 3, undefined, undefined, 4], 4],
    ['tokens are left out', [1, 2, 3, 4, 5, 6, 7], [1, 2, 5, 6, 7], [1, 2, 3, undefined, 7], 3],
    ['it begins with something else', [1, 2, 3, 4], [7, 8, 1, 2, 3], [1, undefined, undefined, 2, 3], 3],
    ['a part comes once more', [1, 2, 3, 4], [1, 2, 3, 4, 1, 2, 3, 4], [1, 2, 3, 4, undefined, undefined, 3, 4], 6],
  ])('is found again where %s', (_, expected, text, proposed, count) => {
    expect(firsts(expected, text)).toEqual(proposed);
    expect(foreseen(expected, text)).toBe(count);
  });

  it('is found where it comes next, of several places', () => {
    // 5 6 is at two places, and the text left the prediction between them.
    expect(firsts([5, 6, 1, 2, 3, 5, 6, 4], [5, 6, 1, 9, 5, 6, 4]).at(-1)).toBe(4);
    // Behind the last, it is the one before.
    expect(firsts([5, 6, 1, 2, 3], [5, 6, 1, 2, 9, 5, 6, 1]).at(-1)).toBe(1);
  });

  it('is the same for whoever follows it, on random texts with edits', () => {
    const random = randomNumbers(3);
    for (let round = 0; round < 50; round++) {
      const expected = Array.from({ length: 200 }, () => Math.floor(random() * 40));
      const text = expected.flatMap((token) => (random() < 0.05 ? (random() < 0.5 ? [] : [token, 7]) : [token]));
      // Each edit costs the draft that it makes wrong, and at most the two tokens by which the text is found again.
      const edits = text.length - foreseen(expected, text);
      expect(edits).toBeLessThan(60);
      expect(foreseen(expected, expected)).toBe(200);
    }
  });

  thorough('takes time in proportion to its length, whatever it is', () => {
    for (const tokenAt of [() => 5, (i: number) => i % 2, (i: number) => (i * 7919) % 50_000])
      expectLinear((size) => {
        const expected = Array.from({ length: size }, (_, i) => tokenAt(i));
        // Lost at every third token.
        const text = expected.flatMap((token, i) => (i % 2 === 0 ? [token, 60_000, token] : [token]));
        return () => foreseen(expected, text);
      }, 20_000);
  });
});

describe('a drafter of what is expected', () => {
  const text = (tokens: readonly number[], promptLength: number): DraftText => ({
    tokens,
    promptLength,
    drawAt: () => undefined,
  });

  it('leaves what is not expected to another, which follows the text all along', () => {
    const seen: string[] = [];
    const other: Drafter = {
      name: 'other',
      begin: () => ({
        propose: ({ tokens }) => {
          seen.push(tokens.join(' '));
          return { tokens: [77] };
        },
        end: ({ tokens }) => void seen.push(`end ${tokens.length}`),
      }),
    };
    const drafter = predicting(new Prediction([3, 4, 5, 6]), other);
    const tokens = [9, 9, 9];
    const state = drafter.begin(text(tokens, 3));
    const propose = () => state.propose(text(tokens, 3), 2).tokens;
    expect(propose()).toEqual([3, 4]);
    tokens.push(3);
    expect(propose()).toEqual([4, 5]);
    tokens.push(8, 8);
    expect(propose()).toEqual([77]);
    tokens.push(5, 6);
    expect(propose()).toEqual([77]);
    state.end?.(text(tokens, 3));
    expect(seen).toEqual(['9 9 9', '9 9 9 3', '9 9 9 3 8 8', '9 9 9 3 8 8 5 6', 'end 8']);
  });
});
