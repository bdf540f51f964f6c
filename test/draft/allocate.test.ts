/** Drafts that a step takes, against every choice there is. */
import { describe, expect, it } from 'vitest';
import { allocateDrafts, type Survivals } from '../../draft/allocate.js';
import { randomNumbers } from '../support/pathModel.js';

/** Survivals of chains: each at most the one before it. */
function offersOf(random: () => number, texts: number, deepest: number): readonly Survivals[] {
  return Array.from({ length: texts }, () => {
    let survival = 1;
    return Array.from({ length: Math.floor(random() * (deepest + 1)) }, () => (survival *= 0.2 + 0.8 * random()));
  });
}

/** The most tokens a second over all depths of all texts. */
function bestRate(
  offers: readonly Survivals[],
  texts: number,
  most: number,
  seconds: (drafts: number) => number,
): number {
  let best = 0;
  const visit = (at: number, drafts: number, tokens: number): void => {
    if (drafts > most) return;
    if (at === offers.length) {
      best = Math.max(best, tokens / seconds(drafts));
      return;
    }
    let own = tokens;
    for (let depth = 0; depth <= offers[at]!.length; depth++) {
      visit(at + 1, drafts + depth, own);
      own += offers[at]![depth] ?? 0;
    }
  };
  visit(0, 0, texts);
  return best;
}

describe('the drafts of a step', () => {
  it('give most tokens a second, also where time goes by stairs', () => {
    const random = randomNumbers(4);
    for (let round = 0; round < 200; round++) {
      const offers = offersOf(random, 1 + Math.floor(random() * 4), 4);
      const texts = offers.length + Math.floor(random() * 3);
      const [stair, height, slope] = [1 + Math.floor(random() * 5), random(), random() < 0.5 ? 0 : 0.1 * random()];
      const seconds = (drafts: number): number => 1 + height * Math.ceil(drafts / stair) + slope * drafts;
      const most = Math.floor(random() * 12);
      const found = allocateDrafts(offers, { texts, most, seconds });
      expect(found.tokens / found.seconds).toBeCloseTo(bestRate(offers, texts, most, seconds), 9);
      expect(found.drafts).toBeLessThanOrEqual(most);
      expect(found.taken.flat()).toHaveLength(found.drafts);
      // Each is taken with all before it.
      for (const taken of found.taken) expect(taken).toEqual(taken.map((_, at) => at));
    }
  });

  it('are none where none pays, and as many as there is room for where they cost nothing', () => {
    const offers = [[1, 1, 1], [], [1, 1]];
    expect(allocateDrafts(offers, { texts: 3, most: 9, seconds: (drafts) => 1 + drafts })).toMatchObject({ drafts: 0 });
    const found = allocateDrafts(offers, { texts: 3, most: 4, seconds: () => 1 });
    expect(found).toEqual({ drafts: 4, tokens: 7, seconds: 1, taken: [[0, 1, 2], [], [0]] });
    expect(allocateDrafts([], { texts: 0, most: 3, seconds: () => 1 })).toMatchObject({ drafts: 0, taken: [] });
  });
});
