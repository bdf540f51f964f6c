/** Choices that are too long with their contexts. */
import { describe, expect, it } from 'vitest';
import { UserError } from '../../errors.js';
import { evaluate } from '../../evaluate/evaluate.js';
import { checkLengths, type PathLimit, truncateOverlong } from '../../evaluate/pathLengths.js';
import { contextOf } from '../../evaluate/tokenize.js';
import { fakeScorer, referenceScore } from './support/fakeScorer.js';
import { bareQuestion } from './support/questions.js';

describe('checkLengths', () => {
  const tokens = (n: number): Int32Array => new Int32Array(n);
  it('counts inputs, which exclude the last token of a choice', () => {
    const list = [
      { docId: 1, context: tokens(5), continuations: [tokens(3)] },
      { docId: 9, context: tokens(5), continuations: [tokens(1), tokens(4)] },
    ];
    const call = (most: number): PathLimit => ({ kind: 'call', tokens: most });
    checkLengths(list, call(8));
    expect(() => checkLengths(list, call(7))).toThrow(UserError);
    expect(() => checkLengths(list, call(7))).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('--docs :9,10:') as unknown }),
    );
    const first = list.map((question) => ({ ...question, docId: 0 }));
    expect(() => checkLengths(first, call(7))).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('--docs 1:)') as unknown }),
    );
    expect(() => checkLengths(list, call(7))).toThrow(/question 9, choice 1: 8 input tokens \(context 5, choice 4/);
  });

  it('says what limits a path and what makes room', () => {
    const list = [{ docId: 0, context: tokens(5), continuations: [tokens(4)] }];
    const said = {
      call: ['the largest micro-batch', '--sharing tree --prefixes keep'],
      context: ["the model's context", 'a model with a longer context'],
      keys: ['the longest list of keys', 'shorten its context'],
    } as const;
    for (const kind of ['call', 'context', 'keys'] as const) {
      const refused = () => checkLengths(list, { kind, tokens: 7 });
      expect(refused).toThrow(`but ${said[kind][0]} is 7`);
      expect(refused).toThrow(expect.objectContaining({ hint: expect.stringContaining(said[kind][1]) as unknown }));
    }
  });
});

describe('truncateOverlong', () => {
  const ids = (first: number, count: number): Int32Array => Int32Array.from({ length: count }, (_, i) => first + i);
  const question = { docId: 4, context: ids(1, 10), continuations: [ids(50, 1), ids(60, 3), ids(70, 6)] };

  it('keeps the last L + 1 tokens of context and choice, L of which are inputs', () => {
    const { questions, choices } = truncateOverlong([question], 10);
    expect(choices).toBe(2);
    const [cut] = questions;
    const contexts = [0, 1, 2].map((choice) => [...contextOf(cut!, choice)]);
    expect(contexts).toEqual([[...ids(1, 10)], [...ids(3, 8)], [...ids(6, 5)]]);
    for (const [choice, tokens] of question.continuations.entries()) {
      const whole = [...question.context, ...tokens];
      // As the public harness puts it: the last L + 1 of all tokens, without the very last.
      const inputs = whole.slice(-(10 + 1)).slice(0, -1);
      expect([...contexts[choice]!, ...tokens].slice(0, -1)).toEqual(inputs);
    }
    // A choice that fits keeps the same array, which is what makes it shared.
    expect(contextOf(cut!, 0)).toBe(question.context);
  });

  it('leaves alone what fits', () => {
    const list = [question];
    expect(truncateOverlong(list, 15)).toEqual({ questions: list, choices: 0 });
    expect(truncateOverlong(list, 15).questions).toBe(list);
  });

  it('leaves at least one token of the context, or refuses', () => {
    expect(contextOf(truncateOverlong([question], 6).questions[0]!, 2)).toEqual(ids(10, 1));
    expect(() => truncateOverlong([question], 5)).toThrow(
      'question 4, choice 2: 15 input tokens (context 10, choice 6, its last is only predicted), ' +
        "but the model's context is 5",
    );
  });

  it.each(['none', 'context', 'tree'] as const)(
    'scores the remaining tokens as separate sequences, sharing %s',
    async (sharing) => {
      const questions = [question, { docId: 5, context: ids(1, 4), continuations: [ids(9, 2), ids(9, 3)] }];
      const { questions: tokenized } = truncateOverlong(questions, 8);
      const { scores } = await evaluate({
        questions: tokenized.map(bareQuestion),
        tokenized,
        scorer: fakeScorer({ maxLength: 8 }),
        sharing,
      });
      for (const [i, { ll }] of scores.entries())
        for (const [choice, tokens] of questions[i]!.continuations.entries())
          expect(ll[choice]).toBe(referenceScore(contextOf(tokenized[i]!, choice), tokens).ll);
    },
  );
});
