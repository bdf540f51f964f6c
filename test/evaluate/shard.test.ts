import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluate } from '../../evaluate/evaluate.js';
import type { Scores } from '../../evaluate/metrics.js';
import { countTokens, pathsOf } from '../../evaluate/pathOrder.js';
import { planQuestions } from '../../evaluate/questionPlan.js';
import { treesOfShard, type WorkOf } from '../../evaluate/shard.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { TREE_SHARING } from '../../evaluate/tree.js';
import { planTrees } from '../../evaluate/treePlan.js';
import { atOnce } from '../../system/text.js';
import { fakeScorer } from './support/fakeScorer.js';
import { bareQuestion, randomQuestions } from './support/questions.js';

const workOf: WorkOf = ({ tokens, rows, longest }) => tokens * (10 + longest) + rows * 3;
const capacity = fc.record({ maxTokens: fc.integer({ min: 40, max: 700 }), maxRows: fc.integer({ min: 9, max: 300 }) });

describe('shards', () => {
  it('contain each tree once and each question whole, for any number of shards (random questions)', () => {
    fc.assert(
      fc.property(
        randomQuestions(40),
        fc.constantFrom(...TREE_SHARING),
        capacity,
        fc.integer({ min: 1, max: 9 }),
        fc.boolean(),
        (tokenized, sharing, limits, count, isAlike) => {
          const { trees } = planTrees(tokenized, sharing, limits);
          const shards = Array.from({ length: count }, (_, i) =>
            treesOfShard(trees, { index: i + 1, count }, workOf, isAlike),
          );
          expect(new Set(shards.flat())).toEqual(new Set(trees));
          expect(shards.flat()).toHaveLength(trees.length);
          const questionsOf = shards.map((own) => [
            ...new Set(own.flatMap(({ paths }) => paths.map(({ question }) => question))),
          ]);
          expect(questionsOf.flat().sort((a, b) => a - b)).toEqual(tokenized.map((_, i) => i));
        },
      ),
      { numRuns: 200 },
    );
  });

  it('differ in work by one question at most', () => {
    fc.assert(
      fc.property(
        randomQuestions(40),
        fc.constantFrom(...TREE_SHARING),
        capacity,
        fc.integer({ min: 2, max: 9 }),
        (tokenized, sharing, limits, count) => {
          const { trees } = planTrees(tokenized, sharing, limits);
          const work = (own: typeof trees): number => own.reduce((sum, tree) => sum + workOf(tree), 0);
          const loads = Array.from({ length: count }, (_, i) =>
            work(treesOfShard(trees, { index: i + 1, count }, workOf)),
          );
          const groups = new Map<number | undefined, number>();
          for (const tree of trees)
            groups.set(tree.paths[0]?.question, (groups.get(tree.paths[0]?.question) ?? 0) + workOf(tree));
          const largest = Math.max(0, ...groups.values());
          expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(largest);
        },
      ),
      { numRuns: 200 },
    );
  });

  describe('of questions that begin alike', () => {
    /** `sizes`: questions of each subject, all of which begin with the same 300 tokens. */
    const subjects = (sizes: readonly number[]): TokenizedQuestion[] => {
      const all = sizes.flatMap((size, subject) =>
        Array.from({ length: size }, (_, i) => {
          const shots = Array.from({ length: 300 }, (_each, at) => (at * 7 + subject * 13) % 101);
          const own = Array.from({ length: 10 + ((i * 5) % 17) }, (_each, at) => 200 + ((at * 3 + i * 31) % 89));
          return Int32Array.from([subject, ...shots, ...own]);
        }),
      );
      // Far from each other in the file.
      const order = all.map((_, i) => (i * 37) % all.length);
      return order.map((at, docId) => ({
        docId,
        context: all[at]!,
        continuations: [1, 2, 3, 4].map((token) => Int32Array.of(token)),
      }));
    };
    const divide = (sizes: readonly number[], count: number, isAlike: boolean) => {
      const tokenized = subjects(sizes);
      const { trees } = planTrees(tokenized, 'tree', { maxTokens: 512, maxRows: 512 });
      const parts = Array.from({ length: count }, (_, i) =>
        treesOfShard(trees, { index: i + 1, count }, workOf, isAlike),
      );
      const kept = parts.map((own) => countTokens(own.flatMap(({ paths }) => paths)).shared);
      return { kept, sum: kept.reduce((a, b) => a + b), least: countTokens(pathsOf(tokenized)).shared };
    };
    const evenness = (kept: readonly number[]): number => (Math.max(...kept) * kept.length) / sum(kept);
    const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b);

    it('compute a common beginning once, where that is even', () => {
      const sizes = Array.from({ length: 40 }, (_, i) => 45 + ((i * 11) % 14));
      const alike = divide(sizes, 4, true);
      expect(alike.sum).toBe(alike.least);
      expect(evenness(alike.kept)).toBeLessThan(1.02);
      // Tree by tree, each of four shards computes the shots of most subjects.
      expect(divide(sizes, 4, false).sum).toBeGreaterThan(1.4 * alike.least);
    });

    it('divide a subject that is most of the work', () => {
      const { kept, sum: all, least } = divide([1009, 50, 60, 70], 4, true);
      expect(evenness(kept)).toBeLessThan(1.2);
      expect(all).toBeLessThan(1.25 * least);
    });
  });

  it('keep questions that begin alike together where prefixes are worth keeping, and only there', () => {
    const question = (docId: number, subject: number): TokenizedQuestion => ({
      docId,
      context: Int32Array.from({ length: 2000 }, (_, at) => (at < 1999 ? subject : docId)),
      continuations: [Int32Array.of(1)],
    });
    const scorer = { ...fakeScorer({ maxTokens: 2100, maxRows: 8 }), maxLength: 2100 };
    const divided = (count: number): readonly (readonly number[])[] => {
      const tokenized = Array.from({ length: count }, (_, i) => question(i, (i * 3) % 4));
      return [1, 2].map((index) => {
        const shard = { index, count: 2, workOf };
        return atOnce(planQuestions({ tokenized, sharing: 'tree', scorer, shard })).questions.map((i) => (i * 3) % 4);
      });
    };
    const subjectsOf = (part: readonly number[]): number => new Set(part).size;
    expect(divided(1600).map(subjectsOf)).toEqual([2, 2]);
    expect(divided(90).map(subjectsOf)).toEqual([4, 4]);
  });

  it('compute the trees of the whole run: together the same tokens, rows and answers (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.constantFrom(...TREE_SHARING),
        capacity,
        fc.integer({ min: 1, max: 6 }),
        async (tokenized, sharing, limits, count) => {
          const questions = tokenized.map(bareQuestion);
          const scoreAll = (more: object): ReturnType<typeof evaluate> =>
            evaluate({ questions, tokenized, scorer: fakeScorer(limits), sharing, ...more });
          const whole = await scoreAll({});
          const scores: Scores[] = [];
          let tokensComputed = 0,
            tokensWithoutSharing = 0;
          for (let index = 1; index <= count; index++) {
            const shard = { index, count, workOf };
            const part = await scoreAll({ shard });
            expect(part.isInterrupted).toBe(false);
            expect(part.questionsScored).toBe(part.scores.length);
            // Resumed with everything, and with answers of other shards: neither scores nor reports those.
            const again = await scoreAll({ shard, done: new Map(whole.scores.map((entry) => [entry.docId, entry])) });
            expect(again).toMatchObject({
              scores: part.scores,
              questionsScored: 0,
              tokensComputed: 0,
              isInterrupted: false,
            });
            scores.push(...part.scores);
            tokensComputed += part.tokensComputed;
            tokensWithoutSharing += part.tokenCounts.alone;
          }
          expect(scores.sort((a, b) => a.docId - b.docId)).toEqual(whole.scores);
          expect({ tokensComputed, tokensWithoutSharing }).toEqual({
            tokensComputed: whole.tokensComputed,
            tokensWithoutSharing: whole.tokenCounts.alone,
          });
        },
      ),
      { numRuns: 100 },
    );
  });
});
