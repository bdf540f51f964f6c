/** Prompt lookup against a search through the whole text, and what it costs. */
import { describe, expect, it } from 'vitest';
import { copyFrom, NgramDrafter, NgramIndex } from '../../draft/ngram.js';
import { expectLinear } from '../support/growth.js';
import { randomNumbers } from '../support/pathModel.js';
import { HARD_TEXTS } from '../support/texts.js';

const text = (tokens: readonly number[]) => ({ tokens, promptLength: 1, drawAt: () => undefined });

/** The latest place with a token behind it, before which the longest n ≤ max tokens are those before the end. */
function search(tokens: readonly number[], min: number, max: number): number | undefined {
  let best: { at: number; n: number } | undefined;
  for (let at = 1; at < tokens.length; at++) {
    let n = 0;
    while (n < Math.min(max, at) && tokens[at - 1 - n] === tokens[tokens.length - 1 - n]) n++;
    if (n >= min && n >= (best?.n ?? 0)) best = { at, n };
  }
  return best?.at;
}

describe('an index of n-grams', () => {
  it.each([
    [1, 1],
    [1, 4],
    [2, 3],
    [3, 8],
  ])('finds the longest of %i to %i tokens at their latest place', (min, max) => {
    const random = randomNumbers(max);
    for (const symbols of [1, 2, 5, 60]) {
      const index = new NgramIndex(min, max);
      const tokens: number[] = [];
      for (let i = 0; i < 150; i++) {
        tokens.push(Math.floor(random() * symbols));
        index.update(tokens);
        const found = index.find(tokens);
        expect(found?.at).toBe(search(tokens, min, max));
        if (found === undefined) continue;
        const { at, length } = found;
        expect(length).toBeGreaterThanOrEqual(min);
        expect(tokens.slice(at - length, at)).toEqual(tokens.slice(-length));
      }
    }
  });

  it('takes a long text in pieces, and knows all of it in the end', () => {
    const tokens = Array.from({ length: 20_000 }, (_, i) => i % 9999);
    const index = new NgramIndex(2, 4);
    index.update(tokens);
    expect(index.find(tokens)).toEqual({ at: 2, length: 2 });
    for (let i = 0; i < 4; i++) index.update(tokens);
    expect(index.find(tokens)).toEqual({ at: 20_000 - 9999, length: 32 });
  });

  it.each(HARD_TEXTS)('takes time in proportion to %s', (_name, make) => {
    expectLinear((size) => {
      const tokens = make(size);
      return () => {
        const index = new NgramIndex(1, 6);
        const so: number[] = [];
        for (const token of tokens) {
          so.push(token);
          index.update(so);
          index.find(so);
        }
      };
    }, 4_000);
  });
});

describe('drafts from the text itself', () => {
  it('are what followed, and what a period makes of it', () => {
    expect(copyFrom([1, 2, 3, 4], 1, 2)).toEqual([2, 3]);
    expect(copyFrom([1, 2, 3, 4], 2, 5)).toEqual([3, 4, 3, 4, 3]);
    const state = new NgramDrafter().begin();
    expect(state.propose(text([5, 6, 7, 8, 5, 6]), 3).tokens).toEqual([7, 8, 5]);
    expect(state.propose(text([5, 6, 7, 8, 5, 6, 7]), 0).tokens).toEqual([]);
    expect(state.propose(text([5, 6, 7, 8, 5, 6, 7, 8]), 15).tokens.slice(0, 6)).toEqual([5, 6, 7, 8, 5, 6]);
    expect(state.propose(text([5, 6, 7, 8, 5, 6, 7, 8, 99]), 15).tokens).toEqual([]);
  });

  it('are as likely as they were right before, and the noise of their places says', () => {
    const right = new NgramDrafter();
    const wrong = new NgramDrafter();
    for (const [drafter, after] of [
      [right, 3],
      [wrong, 4],
    ] as const)
      for (let i = 0; i < 200; i++) {
        const state = drafter.begin();
        const so = [1, 2, 3, 1, 2];
        state.propose(text(so), 1);
        state.propose(text([...so, after]), 1);
      }
    const chances = (
      drafter: NgramDrafter,
      drawAt: () => { inverseTemperature: number; low: number; high: number } | undefined,
    ) => drafter.begin().propose({ ...text([1, 2, 3, 1, 2]), drawAt }, 1).chances?.[0] ?? 0;
    const plain = () => undefined;
    expect(chances(right, plain)).toBeGreaterThan(0.97);
    expect(chances(wrong, plain)).toBeLessThan(0.03);
    const half = new NgramDrafter();
    const drawn = Array.from({ length: 400 }, (_, low) =>
      chances(half, () => ({ inverseTemperature: 1, low, high: 9 })),
    );
    const mean = drawn.reduce((sum, chance) => sum + chance, 0) / drawn.length;
    expect(Math.abs(mean - chances(half, plain))).toBeLessThan(0.06);
    expect(Math.min(...drawn)).toBeLessThan(0.6 * chances(half, plain));
    expect(Math.max(...drawn)).toBeGreaterThan(1.4 * chances(half, plain));
  });
});
