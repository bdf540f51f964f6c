import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluate } from '../../eval/evaluate.js';
import type { Scores } from '../../eval/metrics.js';
import { treesOfShard, type WorkOf } from '../../eval/shard.js';
import { TREE_SHARING } from '../../eval/tree.js';
import { planTrees } from '../../eval/treePlan.js';
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
        (tokenised, sharing, limits, count) => {
          const { trees } = planTrees(tokenised, sharing, limits);
          const shards = Array.from({ length: count }, (_, i) => treesOfShard(trees, { index: i + 1, count }, workOf));
          expect(new Set(shards.flat())).toEqual(new Set(trees));
          expect(shards.flat()).toHaveLength(trees.length);
          const questionsOf = shards.map((own) => [
            ...new Set(own.flatMap(({ paths }) => paths.map(({ question }) => question))),
          ]);
          expect(questionsOf.flat().sort((a, b) => a - b)).toEqual(tokenised.map((_, i) => i));
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
        (tokenised, sharing, limits, count) => {
          const { trees } = planTrees(tokenised, sharing, limits);
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

  it('compute the trees of the whole run: together the same tokens, rows and answers (random questions)', async () => {
    await fc.assert(
      fc.asyncProperty(
        randomQuestions(),
        fc.constantFrom(...TREE_SHARING),
        capacity,
        fc.integer({ min: 1, max: 6 }),
        async (tokenised, sharing, limits, count) => {
          const questions = tokenised.map(bareQuestion);
          const scoreAll = (more: object): ReturnType<typeof evaluate> =>
            evaluate({ questions, tokenised, scorer: fakeScorer(limits), sharing, ...more });
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
