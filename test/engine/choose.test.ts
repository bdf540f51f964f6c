/** Tokens chosen from logits: each option alone against probabilities computed by hand, then all in order. */
import { describe, expect, it } from 'vitest';
import { needsLogits, resolveSampling, type SamplingOptions } from '../../engine/options.js';
import { keptTokens } from '../../ir/filters.js';
import { noiseKey } from '../../ir/gumbel.js';
import { chiSquare } from '../support/numbers.js';
import { oracleChoice } from '../support/sampling.js';

const P = [0.02, 0.3, 0.08, 0.3, 0.15, 0.1, 0.05];
const LOGITS = Float32Array.from(P, (p) => Math.log(p) + 3);
const DRAWS = 8000;

const choose = (options: SamplingOptions, position = 0, tokens: readonly number[] = [5, 1, 1, 4], logits = LOGITS) =>
  oracleChoice(logits, resolveSampling(options), { tokens, promptLength: 1 }, noiseKey(21n, position));

/** How far draws with these options depart from the weights of tokens: a χ². */
function departure(options: SamplingOptions, weights: readonly number[]): number {
  const found = P.map(() => 0);
  for (let position = 0; position < DRAWS; position++) found[choose(options, position).token]!++;
  const total = weights.reduce((a, b) => a + b);
  return chiSquare(
    found,
    weights.map((weight) => (DRAWS * weight) / total),
  );
}

/** The same options without one of them: what it would be to forget it. */
const withoutEach = (options: SamplingOptions): readonly SamplingOptions[] =>
  Object.keys(options).map((name) =>
    Object.fromEntries(
      Object.entries({ temperature: 1, ...options, [name]: undefined }).filter(([, x]) => x !== undefined),
    ),
  );

const only = (...tokens: readonly number[]): number[] => P.map((p, token) => (tokens.includes(token) ? p : 0));

describe('tokens come as often as they should with', () => {
  it.each<[string, SamplingOptions, readonly number[]]>([
    ['temperature 1', {}, P],
    ['temperature 2', { temperature: 2 }, P.map(Math.sqrt)],
    ['top-k 1, of equals the lower', { topK: 1 }, only(1)],
    ['top-k 3', { topK: 3 }, only(1, 3, 4)],
    ['top-p 0.3, which one token has', { topP: 0.29 }, only(1)],
    ['top-p 0.7, which four have', { topP: 0.76 }, only(1, 3, 4, 5)],
    ['min-p 0.3', { minP: 0.3 }, only(1, 3, 4, 5)],
    ['min-p, then top-p of what is left', { minP: 0.4, topP: 0.79 }, only(1, 3)],
    ['top-k, then top-p of what is left', { topK: 3, topP: 0.79 }, only(1, 3)],
    ['a bias', { logitBias: [[0, Math.log(10)]] }, P.map((p, token) => (token === 0 ? 10 * p : p))],
    ['a presence penalty', { presencePenalty: 0.5 }, P.map((p, t) => ([1, 4].includes(t) ? p * Math.exp(-0.5) : p))],
    [
      'a frequency penalty',
      { frequencyPenalty: 0.5 },
      P.map((p, t) => (t === 1 ? p * Math.exp(-1) : t === 4 ? p * Math.exp(-0.5) : p)),
    ],
    [
      'a repetition penalty, which knows the prompt',
      { repetitionPenalty: 1.5 },
      Array.from(LOGITS, (z, t) => Math.exp([1, 4, 5].includes(t) ? (z > 0 ? z / 1.5 : z * 1.5) : z)),
    ],
    [
      'temperature before min-p',
      { temperature: 2, minP: 0.6 },
      P.map((p) => (Math.sqrt(p / 0.3) >= 0.6 ? Math.sqrt(p) : 0)),
    ],
  ])('%s', (_title, options, weights) => {
    expect(departure({ temperature: 1, ...options }, weights)).toBeLessThan(3.5);
    // A bound that any option could pass would prove nothing.
    for (const forgotten of withoutEach(options))
      expect({ forgotten, departure: departure({ temperature: 1, ...forgotten }, weights) }).toSatisfy(
        (each: { departure: number }) => each.departure > 10,
      );
  });
});

describe('a token', () => {
  it('is the most likely one after penalties at temperature 0', () => {
    expect(choose({}).token).toBe(1);
    expect(choose({ presencePenalty: 0.1 }).token).toBe(3);
    expect(choose({ logitBias: [[0, 100]], temperature: 1e-6 }).token).toBe(0);
  });

  it('has the log-probability of the unchanged logits, and so have the most likely ones', () => {
    const { token, logProb, top } = choose({ topLogProbs: 3, logitBias: [[0, 100]], repetitionPenalty: 2 });
    expect([token, top.map((each) => each.token)]).toEqual([0, [1, 3, 4]]);
    expect(logProb).toBeCloseTo(Math.log(0.02), 6);
    expect(top[0]!.logProb).toBeCloseTo(Math.log(0.3), 6);
  });

  it('never comes from an empty set', () => {
    expect(keptTokens(Float64Array.of(1, 1), { minLogP: 0, topK: 0, topP: 1e-300 })).toEqual([0]);
  });
});

describe('options', () => {
  it.each<[SamplingOptions, string]>([
    [{ topP: 1.5 }, 'topP'],
    [{ topK: 1.5 }, 'topK'],
    [{ topK: -2 }, 'topK'],
    [{ minP: 2 }, 'minP'],
    [{ repetitionPenalty: 0 }, 'repetitionPenalty'],
    [{ presencePenalty: NaN }, 'presencePenalty'],
    [{ topLogProbs: 21 }, 'topLogProbs'],
    [{ logitBias: [[1, 101]] }, 'logitBias.0.1'],
  ])('%j are refused, with the field', (options, field) => {
    expect(() => resolveSampling(options)).toThrow(`sampling: ${field}: `);
  });

  it('take values that other programs write for all tokens, or for the most likely one', () => {
    expect(resolveSampling({ temperature: 1, topK: -1 })).toEqual(resolveSampling({ temperature: 1 }));
    expect(resolveSampling({ temperature: 1, topP: 0 })).toEqual(resolveSampling({ temperature: 1, topK: 1 }));
    expect(
      [
        { topK: -1, topP: 0, temperature: 0 },
        { topK: -1, temperature: 1 },
      ].map(needsLogits),
    ).toEqual([false, false]);
  });

  it('need logits only where the device cannot choose', () => {
    expect([{}, { temperature: 1, seed: 4 }, { topK: 5 }, { topP: 1, temperature: 1 }].map(needsLogits)).toEqual([
      false,
      false,
      false,
      false,
    ]);
    expect([{ topK: 5, temperature: 1 }, { presencePenalty: 1 }, { topLogProbs: 1 }].map(needsLogits)).toEqual([
      true,
      true,
      true,
    ]);
  });
});
