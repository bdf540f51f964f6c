import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fits } from '../../evaluate/packing.js';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { TREE_SHARING } from '../../evaluate/tree.js';
import { planTrees } from '../../evaluate/treePlan.js';
import { randomQuestions } from './support/questions.js';

const ROOMY = { maxTokens: 4096, maxRows: 4096 };

/** A question of 60 tokens, the first `common` of which are the same for all, and two choices of five tokens. */
const question = (docId: number, common: number): TokenizedQuestion => ({
  docId,
  context: Int32Array.from({ length: 60 }, (_, i) => (i < common ? i : 1000 + docId * 100 + i)),
  continuations: [0, 1].map((choice) =>
    Int32Array.from({ length: 5 }, (_, i) => 7_000_000 + docId * 50 + choice * 10 + i),
  ),
});
const questions = (count: number, common: number): TokenizedQuestion[] =>
  Array.from({ length: count }, (_, docId) => question(docId, common));

describe('planTrees', () => {
  it('keeps questions apart that share only a few tokens, however many there are', () => {
    const forest = planTrees(questions(3000, 3), 'tree', ROOMY);
    expect(forest.trees).toHaveLength(3000);
    expect(forest.tokensComputed).toBe(planTrees(questions(3000, 3), 'context', ROOMY).tokensComputed);
  });

  it('joins questions over a prefix worth sharing, within 1,024 tokens', () => {
    const forest = planTrees(questions(3000, 20), 'tree', ROOMY);
    expect(forest.trees.length).toBeLessThan(300);
    expect(Math.max(...forest.trees.map(({ tokens }) => tokens))).toBeLessThanOrEqual(1024);
    // 68 tokens for each question; each but the first of a tree saves 20.
    expect(forest.tokensComputed).toBe(3000 * 68 - (3000 - forest.trees.length) * 20);
  });

  it('makes the same trees whatever the micro-batch', () => {
    const many = questions(500, 20);
    const [small, large] = [1024, 16_384].map((maxTokens) =>
      planTrees(many, 'tree', { maxTokens, maxRows: maxTokens }),
    );
    expect(small!.trees).toEqual(large!.trees);
  });

  it('fills a whole micro-batch if questions share most of their tokens', () => {
    const forest = planTrees(questions(300, 55), 'tree', ROOMY);
    // 55 shared tokens, and 13 of each question's own: 310 questions fill 4096.
    expect(forest.trees).toHaveLength(1);
  });

  it('cuts a run of questions where the least is lost', () => {
    // Three questions share 10 tokens with the next three, and each three share 40. Only three fit a tree.
    const six = [0, 1].flatMap((half) =>
      [0, 1, 2].map((i): TokenizedQuestion => {
        const { docId, context, continuations } = question(half * 3 + i, 0);
        return {
          docId,
          continuations,
          context: context.map((token, at) => (at < 10 ? at : at < 40 ? 500 + half * 100 + at : token)),
        };
      }),
    );
    const forest = planTrees(six, 'tree', { maxTokens: 132, maxRows: 1000 });
    expect(forest.trees.map(({ paths }) => [...new Set(paths.map((path) => path.question))])).toEqual([
      [0, 1, 2],
      [3, 4, 5],
    ]);
  });

  it('splits a question whose choices exceed a micro-batch, by tokens, by rows and by lists of keys', () => {
    const wide: TokenizedQuestion = {
      docId: 0,
      context: Int32Array.of(1, 2, 3),
      continuations: Array.from({ length: 10 }, (_, i) => Int32Array.of(10 + i, 11, 12)),
    };
    for (const sharing of TREE_SHARING) {
      for (const capacity of [
        { maxTokens: 8, maxRows: 100 },
        { maxTokens: 100, maxRows: 6 },
        { maxTokens: 100, maxRows: 100, maxKeys: 11 },
      ]) {
        const { trees } = planTrees([wide], sharing, capacity);
        expect(trees.length).toBeGreaterThan(1);
        expect(trees.every((tree) => fits(tree, capacity))).toBe(true);
        expect(trees.flatMap(({ paths }) => paths.map(({ choice }) => choice)).sort((a, b) => a - b)).toEqual([
          0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
        ]);
      }
    }
  });

  it('joins questions only as far as there is room for their lists of keys', () => {
    // A long stem, and many questions of a few tokens, as few-shot prompts have it: each needs the stem in its list.
    const stem = Array.from({ length: 400 }, (_, i) => i);
    const many = Array.from({ length: 60 }, (_, docId): TokenizedQuestion => ({
      docId,
      context: Int32Array.from([...stem, 1000 + docId, 2000 + docId]),
      continuations: [Int32Array.of(1), Int32Array.of(2)],
    }));
    const room = { maxTokens: 2048, maxRows: 2048 };
    expect(planTrees(many, 'tree', room).trees).toHaveLength(1);
    const capacity = { ...room, maxKeys: 16 * 402 };
    const { trees } = planTrees(many, 'tree', capacity);
    expect(trees).toHaveLength(4);
    expect(trees.every((tree) => fits(tree, capacity))).toBe(true);
  });

  it('names the question and choice that fit no micro-batch', () => {
    const long: TokenizedQuestion = {
      docId: 41,
      context: new Int32Array(9),
      continuations: [new Int32Array(1), new Int32Array(3)],
    };
    expect(() => planTrees([long], 'context', { maxTokens: 10, maxRows: 10 })).toThrow(
      /question 41, choice 1: 11 tokens with 3 to score/,
    );
  });

  it('makes one tree of a question with a choice that fits no micro-batch, where there may be such trees', () => {
    const capacity = { maxTokens: 20, maxRows: 20 };
    const asking = (docId: number, length: number): TokenizedQuestion => ({
      docId,
      context: Int32Array.from({ length }, (_, i) => i),
      continuations: [Int32Array.of(1), Int32Array.of(2, 3, 4)],
    });
    const list = [asking(0, 9), asking(1, 19), asking(2, 10), asking(3, 30)];
    for (const sharing of ['context', 'tree'] as const) {
      const { trees } = planTrees(list, sharing, capacity, true);
      const [small, large] = [trees.filter((tree) => fits(tree, capacity)), trees.filter((t) => !fits(t, capacity))];
      expect(large.map(({ tokens }) => tokens)).toEqual([19 + 2, 30 + 2]);
      expect(large.flatMap(({ paths }) => paths.map(({ question }) => question))).toEqual([1, 1, 3, 3]);
      expect(small.flatMap(({ paths }) => paths)).toHaveLength(4);
      expect(() => planTrees(list, sharing, capacity)).toThrow('question 1, choice 1: 21 tokens with 3 to score');
    }
  });

  it('covers every choice once, within capacity, and shares more with each mode (random questions)', () => {
    const capacity = { maxTokens: 120, maxRows: 90 };
    fc.assert(
      fc.property(randomQuestions(), (list) => {
        const forests = TREE_SHARING.map((sharing) => planTrees(list, sharing, capacity));
        for (const { trees, tokensComputed } of forests) {
          const covered = trees.flatMap(({ paths }) =>
            paths.map(({ question: index, choice }) => `${index}.${choice}`),
          );
          expect(covered.sort()).toEqual(
            list
              .flatMap(({ continuations }, index) => continuations.map((_tokens, choice) => `${index}.${choice}`))
              .sort(),
          );
          expect(trees.every(({ tokens, rows }) => tokens <= capacity.maxTokens && rows <= capacity.maxRows)).toBe(
            true,
          );
          expect(tokensComputed).toBe(trees.reduce((sum, { tokens }) => sum + tokens, 0));
        }
        const [none, context, tree] = forests.map(({ tokensComputed }) => tokensComputed);
        expect(none).toBe(forests[0]?.tokensWithoutSharing);
        expect(context ?? Infinity).toBeLessThanOrEqual(none ?? 0);
        expect(tree ?? Infinity).toBeLessThanOrEqual(context ?? 0);
      }),
      { numRuns: 300 },
    );
  });
});
