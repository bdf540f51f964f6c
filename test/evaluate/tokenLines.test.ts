import { describe, expect, it } from 'vitest';
import type { TokenizedQuestion } from '../../evaluate/tokenize.js';
import { tokenLine, type TokenLine, tokensOfLines } from '../../evaluate/tokenLines.js';

const ids = (...values: number[]): Int32Array => Int32Array.from(values);
const textOf = (id: number): string | null => (id === 1 ? null : ` t${id}`);
const lineOf = (question: TokenizedQuestion, tokens: number[][] | undefined): TokenLine | undefined => {
  const line = tokenLine(70, question.docId, { tokens }, { questions: new Map([[question.docId, question]]), textOf });
  return line === undefined ? undefined : (JSON.parse(line) as TokenLine);
};

describe('lines of tokens', () => {
  it('name what choices begin with by its length, and every token of a choice', () => {
    const question = { docId: 3, context: ids(1, 5, 6), continuations: [ids(7, 8), ids(9)] };
    expect(lineOf(question, [[-1, -2], [-0.5]])).toEqual({
      doc_id: 70,
      shared_tokens: 3,
      choices: [
        { omitted_tokens: 0, tokens: [7, 8], texts: [' t7', ' t8'], logprobs: [-1, -2] },
        { omitted_tokens: 0, tokens: [9], texts: [' t9'], logprobs: [-0.5] },
      ],
    });
  });

  it('have the part in which contexts differ, cut on the left', () => {
    const long = Int32Array.from({ length: 400 }, (_, i) => i + 10);
    const question = {
      docId: 0,
      context: ids(2, 3, 4),
      contexts: [ids(2, 3, 4), ids(2, 3, ...long)],
      continuations: [ids(7), ids(7)],
    };
    const { shared_tokens, choices } = lineOf(question, [[-1], [-2]])!;
    expect(shared_tokens).toBe(2);
    expect(choices[0]).toMatchObject({ omitted_tokens: 0, tokens: [4, 7], logprobs: [-1] });
    expect(choices[1]).toMatchObject({ omitted_tokens: 144, tokens: [...long.subarray(144), 7], logprobs: [-2] });
    expect(new Set(tokensOfLines([question]))).toEqual(new Set([2, 3, 4, 7, ...long.subarray(144)]));
  });

  it('have null for tokens without a text, and are absent where tokens are not known', () => {
    const question = { docId: 0, context: ids(5), continuations: [ids(1)] };
    expect(lineOf(question, [[-3]])!.choices[0]!.texts).toEqual([null]);
    expect(lineOf(question, undefined)).toBeUndefined();
    expect(tokenLine(0, 9, { tokens: [[-3]] }, { questions: new Map(), textOf })).toBeUndefined();
  });
});
