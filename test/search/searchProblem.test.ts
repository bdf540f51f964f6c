/** Searches over made-up models: equal to a naive reference, whatever comes when. */
import { describe, expect, it } from 'vitest';
import type { Method, SearchOptions } from '../../search/options.js';
import { METHODS } from '../../search/options.js';
import { searchProblem } from '../../search/methods/searchProblem.js';
import { isThorough } from '../support/thorough.js';
import { delays, type Habits, MadeUpJudge, MadeUpWriter, share } from './madeUpModels.js';
import { naiveSearch } from './naiveSearch.js';

const PROBLEM = { id: '7', problem: 'What is $1 + 1$?' };

function pick<T>(values: readonly T[], key: string): T {
  return values[Math.floor(share(key) * values.length)]!;
}

function randomOptions(seed: number): SearchOptions {
  const method: Method = METHODS[seed % METHODS.length]!;
  const of = <T>(name: string, ...values: readonly T[]): T => pick(values, `${name} ${seed}`);
  const isSampled = method === 'best-of-n' || method === 'weighted' || method === 'majority';
  const width = of('width', 1, 2, 3, 4);
  return {
    method,
    n: method === 'dvts' ? width * of('trees', 1, 2, 4) : of('n', 1, 2, 3, 5, 8, 16),
    width,
    iterations: of('iterations', 1, 2, 3, 7, 12),
    temperature: of('temperature', 0, 0.8, 0.8),
    seed: of('seed', 0, 1, -5, 2 ** 60),
    aggregate: of('aggregate', 'last', 'min', 'prod'),
    ...(isSampled
      ? { earlyStop: of('early', true, false) }
      : { every: of('every', 1, 1, 2, 3), lookahead: of('lookahead', 0, 0, 1, 3) }),
    ...(method === 'beam' || method === 'rebase'
      ? { filterDuplicates: of('duplicates', true, false), sortCompleted: of('sort', true, false) }
      : {}),
    rebaseTemperature: of('rebase', 0.05, 0.2, 5),
  };
}

const randomHabits = (seed: number): Habits => ({
  ends: pick([0, 0.05, 0.2, 0.5], `ends ${seed}`),
  cut: pick([0, 0, 0.1], `cut ${seed}`),
  writeFails: pick([0, 0, 0.05, 1], `write fails ${seed}`),
  scoreFails: pick([0, 0, 0.05], `score fails ${seed}`),
  nan: pick([0, 0, 0.05], `nan ${seed}`),
  levels: pick([1, 3, 20, 1000], `levels ${seed}`),
});

describe('a search', () => {
  it.each(Array.from({ length: isThorough ? 3000 : 48 }, (_, seed) => seed))(
    'is what the reference gives (%i)',
    async (seed) => {
      const options = randomOptions(seed);
      const habits = randomHabits(seed);
      const expected = await naiveSearch(PROBLEM, new MadeUpWriter(habits), new MadeUpJudge(habits), options);
      for (const speculate of ['off', 'on'] as const)
        for (const most of [0, 6]) {
          const writer = new MadeUpWriter(habits, delays(seed, most));
          const judge = new MadeUpJudge(habits, delays(seed + 1, most));
          const { notes, ...result } = await searchProblem(PROBLEM, {
            writer,
            judge,
            options: { ...options, speculate },
          });
          expect(result).toEqual(expected);
          if (result.candidates.every(({ isCompleted }) => !isCompleted))
            expect(notes.at(-1)).toMatch(/^no path completed: /);
        }
    },
  );

  // What search-and-learn does is compared with its traces. It has no REBASE.
  const all = Array.from({ length: isThorough ? 600 : 15 }, (_, seed) => seed);
  const salSeeds = all.filter((seed) => METHODS[seed % METHODS.length] !== 'rebase');
  it.each(salSeeds)('is the same whenever work is done, to the letter of search-and-learn too (%i)', async (seed) => {
    const { earlyStop: _, every: __, ...options } = randomOptions(seed);
    const habits = randomHabits(seed);
    const results = await Promise.all(
      (['off', 'on'] as const).map((speculate, turn) =>
        searchProblem(PROBLEM, {
          writer: new MadeUpWriter(habits, delays(seed, turn * 6)),
          judge: new MadeUpJudge(habits, delays(seed + 1, turn * 9)),
          options: { ...options, compat: 'sal', speculate },
        }),
      ),
    );
    expect(results[1]).toEqual(results[0]);
  });
});
