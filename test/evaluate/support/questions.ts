/** Questions for tests: random ones that share prefixes, and the tokenizer module that goes with them. */
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import type { Question } from '../../../evaluate/question.js';
import type { TokenizedQuestion } from '../../../evaluate/tokenize.js';

export const FAKE_TOKENIZER = {
  moduleUrl: new URL('./fakeTokenizer.mjs', import.meta.url).href,
  spec: {},
};
export const SUPPORT = fileURLToPath(new URL('.', import.meta.url));

/** A question whose text does not matter, because its tokens are given. */
export function bareQuestion({ docId, continuations }: TokenizedQuestion): Question {
  const choices = continuations.map((_tokens, i) => 'x'.repeat(1 + ((docId + i) % 4)));
  return {
    docId,
    doc: { id: docId },
    context: `question ${docId}`,
    choices,
    gold: docId % continuations.length,
    delimiter: ' ',
  };
}

/** A small vocabulary leads to common prefixes, equal choices and choices that are prefixes of another. */
const ids = (min: number, max: number): fc.Arbitrary<Int32Array> =>
  fc.array(fc.integer({ min: 0, max: 2 }), { minLength: min, maxLength: max }).map((list) => Int32Array.from(list));

/** Some contexts start with one of a few long stems, so that questions join. */
const context = fc
  .tuple(fc.constantFrom(0, 8, 12, 20), ids(1, 10))
  .map(([stem, rest]) => Int32Array.from([...Array.from({ length: stem }, (_, i) => i % 3), ...rest]));

export const randomQuestions = (maxQuestions = 14): fc.Arbitrary<TokenizedQuestion[]> =>
  fc
    .array(fc.tuple(context, fc.array(ids(1, 9), { minLength: 1, maxLength: 5 })), { maxLength: maxQuestions })
    .map((list) =>
      list.map(([tokens, continuations], docId) => ({ docId: docId * 3, context: tokens, continuations })),
    );
