import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { buildTree, measureTree, type Path, TREE_SHARING } from '../../evaluate/tree.js';
import { listPaths } from '../../ir/scoring.js';
import { referenceScore, scoreBatch } from './support/fakeScorer.js';
import { randomQuestions } from './support/questions.js';

const arrays = new Map<readonly number[], Int32Array>();
/** The choices of a question share one array. */
function contextArray(context: readonly number[]): Int32Array {
  const array = arrays.get(context) ?? Int32Array.from(context);
  arrays.set(context, array);
  return array;
}

const path = (question: number, choice: number, context: number[], continuation: number[]): Path => ({
  question,
  choice,
  context: contextArray(context),
  continuation: Int32Array.from(continuation),
});

const columns = (tree: ReturnType<typeof buildTree>): Record<string, readonly number[]> => ({
  tokens: [...tree.tokens],
  position: [...tree.position],
  subtreeEnd: [...tree.subtreeEnd],
  row: [...tree.row],
  target: [...tree.target],
});

describe('buildTree', () => {
  // Context 1 2; choices 5 6 7, 5 6 8, 9.
  const context = [1, 2];
  const choices = [path(0, 0, context, [5, 6, 7]), path(0, 1, context, [5, 6, 8]), path(0, 2, context, [9])];

  it('lays out every choice with its own context', () => {
    expect(columns(buildTree(choices, 'none'))).toEqual({
      tokens: [1, 2, 5, 6, 1, 2, 5, 6, 1, 2],
      position: [0, 1, 2, 3, 0, 1, 2, 3, 0, 1],
      subtreeEnd: [4, 4, 4, 4, 8, 8, 8, 8, 10, 10],
      row: [1, 2, 3, 5, 6, 7, 9],
      target: [5, 6, 7, 5, 6, 8, 9],
    });
  });

  it('lays out the context once, and shares a row that is asked twice for the same target', () => {
    const tree = buildTree(choices, 'context');
    expect(columns(tree)).toEqual({
      tokens: [1, 2, 5, 6, 5, 6],
      position: [0, 1, 2, 3, 2, 3],
      subtreeEnd: [6, 6, 4, 4, 6, 6],
      row: [1, 1, 2, 3, 4, 5],
      target: [5, 9, 6, 7, 6, 8],
    });
    expect(tree.answers.map(({ scored }) => [...scored])).toEqual([[0, 2, 3], [0, 4, 5], [1]]);
  });

  it('lays out once what choices have in common; a last token is only a target', () => {
    const tree = buildTree(choices, 'tree');
    expect(columns(tree)).toEqual({
      tokens: [1, 2, 5, 6],
      position: [0, 1, 2, 3],
      subtreeEnd: [4, 4, 4, 4],
      row: [1, 1, 2, 3, 3],
      target: [5, 9, 6, 7, 8],
    });
    expect(tree.longest).toBe(4);
  });

  it('lets one question continue inside the choice of another', () => {
    const tree = buildTree([path(0, 0, [1], [2, 3, 4]), path(1, 0, [1, 2, 3], [9, 9])], 'tree');
    expect([...tree.tokens]).toEqual([1, 2, 3, 9]);
    expect([...tree.row]).toEqual([0, 1, 2, 2, 3]);
    expect([...tree.target]).toEqual([2, 3, 4, 9, 9]);
  });

  it('gives every choice the score of its own sequence, whatever is shared (random trees)', () => {
    fc.assert(
      fc.property(randomQuestions(8), fc.constantFrom(...TREE_SHARING), (questions, sharing) => {
        const paths = questions.flatMap(({ context: tokens, continuations }, question) =>
          continuations.map((continuation, choice) => ({ question, choice, context: tokens, continuation })),
        );
        const tree = buildTree(paths, sharing);
        // scoreBatch checks nesting, positions and the order of rows.
        const { logProb, isArgmax } = scoreBatch(tree);
        expect(tree.answers).toHaveLength(paths.length);
        for (const { question, choice, scored } of tree.answers) {
          const { context: tokens, continuations } = questions[question] ?? {
            context: new Int32Array(),
            continuations: [],
          };
          const expected = referenceScore(tokens, continuations[choice] ?? new Int32Array());
          expect([...scored].reduce((sum, i) => sum + (logProb[i] ?? NaN), 0)).toBe(expected.ll);
          expect([...scored].every((i) => isArgmax[i] === 1)).toBe(expected.isGreedy);
        }
        const size = measureTree(paths, sharing);
        expect([size.tokens, size.longest]).toEqual([tree.tokens.length, tree.longest]);
        expect(size.rows).toBeGreaterThanOrEqual(tree.row.length);
        expect(size.keys).toBe(listPaths(tree.position).key.length);
      }),
      { numRuns: 300 },
    );
  });

  it('in tree mode holds each distinct prefix exactly once', () => {
    fc.assert(
      fc.property(randomQuestions(6), (questions) => {
        const paths = questions.flatMap(({ context: tokens, continuations }, question) =>
          continuations.map((continuation, choice) => ({ question, choice, context: tokens, continuation })),
        );
        const prefixes = new Set(
          paths.flatMap(({ context: tokens, continuation }) => {
            const inputs = [...tokens, ...continuation].slice(0, -1);
            return inputs.map((_token, i) => inputs.slice(0, i + 1).join(' '));
          }),
        );
        expect(buildTree(paths, 'tree').tokens.length).toBe(prefixes.size);
      }),
    );
  });
});
