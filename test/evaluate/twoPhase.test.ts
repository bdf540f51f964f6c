/** Scoring in two phases: every token of every choice is scored after its own path, and every context computed once. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { measureTree, type Path } from '../../evaluate/tree.js';
import { twoPhase, type TwoPhaseOptions } from '../../evaluate/twoPhase.js';
import { checkCalls, someQuestions } from '../support/pathCalls.js';

const check = (paths: readonly Path[], options: TwoPhaseOptions): ReturnType<typeof checkCalls> =>
  checkCalls(paths, twoPhase(paths, options), options.limits);

/** Questions with four choices of three tokens after contexts of ten. */
const questions = (count: number): Path[] =>
  Array.from({ length: count }, (_, question) => {
    const context = Int32Array.from({ length: 10 }, (__, i) => 100 * question + i);
    return [0, 1, 2, 3].map((choice): Path => ({
      question,
      choice,
      context,
      continuation: Int32Array.of(choice, 5, 6),
    }));
  }).flat();

const roomy = { tokens: 1000, keys: 100_000, rows: 1000, cacheRows: 2000 };

describe('scoring in two phases', () => {
  it('computes what sharing contexts computes, within any limits', () => {
    fc.assert(
      fc.property(
        someQuestions,
        fc.integer({ min: 3, max: 30 }),
        fc.integer({ min: 4, max: 12 }),
        fc.integer({ min: 8, max: 40 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 30 }),
        fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined }),
        (paths, tokens, rows, contextRows, sequences, prefillTokens, states) => {
          const own = states === undefined ? {} : { states };
          const limits = { tokens, rows, keys: 12 + rows, cacheRows: tokens + contextRows, ...own };
          expect(check(paths, { limits, sequences, prefillTokens }).tokens).toBe(measureTree(paths, 'context').tokens);
        },
      ),
      { numRuns: 1000, seed: 19 },
    );
  });

  it('has a call of contexts and a call of choices where both fit', () => {
    expect(check(questions(5), { limits: roomy })).toEqual({ tokens: 5 * (10 + 4 * 2), calls: 2 });
  });

  it('fills fixed batches with sequences, and cuts contexts into small calls', () => {
    // Two, two and one question: a call of contexts each, and calls of at most two choices.
    expect(check(questions(5), { limits: roomy, sequences: 2 }).calls).toBe(3 + 4 + 4 + 2);
    // Two contexts in each small call; the choices of all questions together.
    expect(check(questions(5), { limits: roomy, prefillTokens: 25 }).calls).toBe(3 + 1);
    // A context that is longer than a small call has one of its own.
    expect(check(questions(5), { limits: roomy, prefillTokens: 4 }).calls).toBe(5 + 1);
  });

  it('cuts contexts that are longer than a call, and puts their ends into calls with others', () => {
    const limits = { ...roomy, tokens: 8 };
    // Eight tokens, two, eight and two; then the choices of four at a time.
    expect(check(questions(2), { limits })).toEqual({ tokens: 2 * (10 + 4 * 2), calls: 2 * 2 + 2 });
    const brief = Int32Array.of(7, 7);
    const uneven = questions(2).map((path) => (path.question === 1 ? { ...path, context: brief } : path));
    expect(check(uneven, { limits }).calls).toBe(2 + 2);
  });

  it('has a row of states for each context of a group', () => {
    expect(check(questions(5), { limits: { ...roomy, states: 5 } }).calls).toBe(2);
    expect(check(questions(5), { limits: { ...roomy, states: 2 } }).calls).toBe(2 * 3);
  });

  it('refuses a choice that fits no call, and a context that fits no cache', () => {
    const refused = (limits: TwoPhaseOptions['limits']) => () => check(questions(1), { limits });
    expect(refused({ ...roomy, tokens: 1 })).toThrow(UserError);
    expect(refused({ ...roomy, tokens: 1 })).toThrow('question 0, choice 0: 10 tokens of context and 3 of the choice');
    expect(refused({ ...roomy, cacheRows: 18 })).toThrow('over a cache of 18');
    expect(refused({ ...roomy, cacheRows: 20 })).not.toThrow();
  });
});
