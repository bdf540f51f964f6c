/** How often drafts are accepted, measured with the noise that draws tokens, is what the formulas say. */
import { describe, expect, it } from 'vitest';
import { chanceOf, rankCandidates, sharedNoiseAcceptance } from '../../draft/chance.js';
import { type Draw, drawScore, noiseKey } from '../../ir/gumbel.js';
import { randomNumbers } from '../support/pathModel.js';

const VOCAB = 24;
const DRAWS = 6000;

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
const normalised = (values: readonly number[]): readonly number[] => values.map((each) => each / sum(values));

/** A Zipf distribution over shuffled tokens, and one whose logits differ from its own by about `apart`. */
function pairOf(seed: number, exponent: number, apart: number) {
  const random = randomNumbers(seed);
  const logits = Array.from({ length: VOCAB }, (_, i) => -exponent * Math.log(i + 1) + random() - 0.5);
  const shuffled = logits.map((z) => ({ z, at: random() })).sort((a, b) => a.at - b.at);
  const p = normalised(shuffled.map(({ z }) => Math.exp(z)));
  const q = normalised(p.map((each) => each * Math.exp(apart * 3.4 * (random() - 0.5))));
  return { p, q };
}

const drawAt = (seed: number, place: number): Draw => ({
  inverseTemperature: 1,
  ...noiseKey(BigInt(seed), place),
});

/** Tokens by log p + g, the best first. */
const byScore = (p: readonly number[], draw: Draw): readonly number[] =>
  p
    .map((each, token) => ({ token, score: drawScore(Math.log(each), 1, draw, token) }))
    .sort((a, b) => b.score - a.score)
    .map(({ token }) => token);

const best = (p: readonly number[], draw: Draw): number => byScore(p, draw)[0]!;

/** How often something is true of keys, and its standard error. */
function measured(isSo: (draw: Draw, place: number) => boolean): { share: number; error: number } {
  let count = 0;
  for (let place = 0; place < DRAWS; place++) if (isSo(drawAt(11, place), place)) count++;
  const share = count / DRAWS;
  return { share, error: Math.sqrt((share * (1 - share) + 1e-4) / DRAWS) };
}

function expectShare(isSo: (draw: Draw, place: number) => boolean, expected: number): void {
  const { share, error } = measured(isSo);
  expect(Math.abs(share - expected), `${share} for ${expected} ± ${error}`).toBeLessThan(3 * error);
}

const PAIRS = [
  ['steep and close', pairOf(1, 1.6, 0.3)],
  ['steep and apart', pairOf(2, 1.6, 1.2)],
  ['flat and apart', pairOf(3, 0.6, 0.7)],
] as const;

describe.each(PAIRS)('acceptance of %s', (_name, { p, q }) => {
  const total = sum(p.map((each, i) => Math.min(each, q[i]!)));
  const largest = q.map((each, token) => ({ each, token })).sort((a, b) => b.each - a.each);

  it('is p of the token that is drafted', () => {
    for (const token of [largest[0]!.token, 3]) expectShare((draw) => best(p, draw) === token, p[token]!);
  });

  it('is Σ p·q where the draft has noise of its own', () => {
    const expected = sum(p.map((each, i) => each * q[i]!));
    expectShare((draw, place) => best(p, draw) === best(q, drawAt(12, place)), expected);
  });

  it('is that of shared noise where the draft has the noise of the target', () => {
    const expected = sharedNoiseAcceptance(p, q);
    const naive = sum(p.map((pi, i) => 1 / sum(p.map((pj, j) => Math.max(pj / pi, q[j]! / q[i]!)))));
    expect(expected).toBeCloseTo(naive, 12);
    expect(expected).toBeLessThan(total);
    expect(expected).toBeGreaterThan(total / (2 - total));
    expectShare((draw) => best(p, draw) === best(q, draw), expected);
  });

  it('is p of the set of children', () => {
    const set = largest.slice(0, 3).map(({ token }) => token);
    expectShare((draw) => set.includes(best(p, draw)), sum(set.map((token) => p[token]!)));
  });

  it('of children with shared noise is larger than of one, and with four than the bound for one', () => {
    const of = (k: number) => measured((draw) => byScore(q, draw).slice(0, k).includes(best(p, draw)));
    const [two, four] = [of(2), of(4)];
    expect(two.share).toBeGreaterThan(sharedNoiseAcceptance(p, q) + 3 * two.error);
    expect(four.share).toBeGreaterThan(total + 3 * four.error);
  });

  it('is known with the noise of a token: in the mean p, and so much larger for the larger half', () => {
    for (const { token } of largest.slice(0, 3)) {
      const chances = Array.from({ length: DRAWS }, (_, place) => chanceOf(p[token]!, token, drawAt(11, place)));
      const mean = sum(chances) / DRAWS;
      const spread = Math.sqrt(sum(chances.map((each) => (each - mean) ** 2)) / DRAWS / DRAWS);
      expect(Math.abs(mean - p[token]!)).toBeLessThan(3 * spread);
      // Places by what they promise: each quarter holds it.
      const edges = [...chances].sort((a, b) => a - b);
      for (let quarter = 0; quarter < 4; quarter++) {
        const [low, high] = [edges[(quarter * DRAWS) / 4]!, edges[((quarter + 1) * DRAWS) / 4 - 1]!];
        const places = chances.flatMap((each, place) => (each >= low && each <= high ? [place] : []));
        const promised = sum(places.map((place) => chances[place]!));
        const kept = places.filter((place) => best(p, drawAt(11, place)) === token).length;
        const variance = sum(places.map((place) => chances[place]! * (1 - chances[place]!)));
        expect(Math.abs(kept - promised)).toBeLessThan(3 * Math.sqrt(variance + 1));
      }
    }
  });

  it('is known of several candidates, the best first', () => {
    const tokens = largest.slice(0, 4).map(({ token }) => token);
    const own = tokens.map((token) => p[token]!);
    let [promised, variance] = [0, 0];
    const { share } = measured((draw) => {
      const ranked = rankCandidates(tokens, own, draw);
      const [first] = ranked;
      promised += first!.chance;
      variance += first!.chance * (1 - first!.chance);
      expect(sum(ranked.map(({ chance }) => chance))).toBeLessThanOrEqual(1 + 1e-12);
      return best(p, draw) === first!.token;
    });
    expect(Math.abs(share * DRAWS - promised)).toBeLessThan(3 * Math.sqrt(variance + 1));
  });
});

describe('the chance of a draft', () => {
  it('has the figures of the literature for halves of places', () => {
    const halves = (p: number): readonly number[] => {
      const chances = Array.from({ length: 20_000 }, (_, place) => chanceOf(p, 7, drawAt(5, place)));
      chances.sort((a, b) => a - b);
      return [sum(chances.slice(10_000)) / 10_000, sum(chances.slice(0, 10_000)) / 10_000];
    };
    for (const [p, high, low] of [
      [0.3, 0.54, 0.06],
      [0.5, 0.75, 0.25],
      [0.7, 0.88, 0.52],
      [0.9, 0.97, 0.83],
    ] as const) {
      const [larger, smaller] = halves(p);
      expect(Math.abs(larger! - high)).toBeLessThan(0.01);
      expect(Math.abs(smaller! - low)).toBeLessThan(0.01);
    }
  });

  it('is its probability where the most likely token is taken, and from 0 to 1 whatever it is given', () => {
    expect(chanceOf(0.3, 1, undefined)).toBe(0.3);
    expect(chanceOf(0.3, 1, { inverseTemperature: 0, low: 1, high: 2 })).toBe(0.3);
    for (const p of [NaN, -1, 0, 1e-300, 1 - 1e-16, 1, 2, Infinity]) {
      const chance = chanceOf(p, 1, drawAt(1, 1));
      expect(chance >= 0 && chance <= 1).toBe(true);
    }
    expect(rankCandidates([4, 5, 6], [0.2, 0.5, NaN], undefined)).toEqual([
      { token: 5, chance: 0.5 },
      { token: 4, chance: 0.2 },
      { token: 6, chance: 0 },
    ]);
    expect(rankCandidates([], [], drawAt(1, 1))).toEqual([]);
    const [first, second] = rankCandidates([1, 2], [0.6, 0.4], drawAt(1, 1));
    expect([first!.chance, second!.chance]).toEqual([1, 0]);
  });

  it('of disjoint distributions is 0, of equal ones 1', () => {
    expect(sharedNoiseAcceptance([1, 0], [0, 1])).toBe(0);
    expect(sharedNoiseAcceptance([0.25, 0.75], [0.25, 0.75])).toBeCloseTo(1, 12);
  });
});
