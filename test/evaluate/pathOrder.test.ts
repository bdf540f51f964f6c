import fc from 'fast-check';
import { expect, it } from 'vitest';
import { keepPaths, orderPaths, pathsOf } from '../../evaluate/pathOrder.js';
import { commonInputs, inLayoutOrder, type Path } from '../../evaluate/tree.js';
import { randomQuestions } from './support/questions.js';

it('orders paths as comparing them does, and counts what neighbours have in common (random questions)', () => {
  fc.assert(
    fc.property(randomQuestions(20), (questions) => {
      const paths = questions.flatMap(({ context, continuations }, question) =>
        continuations.map((continuation, choice): Path => ({ question, choice, context, continuation })),
      );
      const ordered = orderPaths(paths);
      expect(ordered.paths).toEqual(inLayoutOrder(paths, 'tree'));
      expect([...ordered.shared]).toEqual(
        ordered.paths.map((path, i) => (i === 0 ? 0 : commonInputs(ordered.paths[i - 1]!, path))),
      );
    }),
    { numRuns: 500 },
  );
});

it('keeps some of them as if they alone had been ordered (random questions)', () => {
  fc.assert(
    fc.property(randomQuestions(20), fc.integer({ min: 0, max: 255 }), (questions, mask) => {
      const paths = pathsOf(questions);
      const isKept = ({ question }: Path): boolean => ((mask >> (question % 8)) & 1) === 1;
      expect(keepPaths(orderPaths(paths), isKept)).toEqual(orderPaths(paths.filter(isKept)));
    }),
    { numRuns: 300 },
  );
});
