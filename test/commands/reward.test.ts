/** What `reward` reads: lines of a file, and solutions as tokens with the rows that have scores. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readRewardLines, type RewardInput } from '../../commands/rewardInput.js';
import { type SolutionWriter, tokenizeSolutions } from '../../commands/rewardTexts.js';
import { chooseVerifier } from '../../commands/verifier.js';
import { UserError } from '../../errors.js';
import type { ModelConfig } from '../../models/model/model.js';
import type { ChatTemplate } from '../../models/chat/template.js';
import * as layouts from '../../models/heads/layout.js';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.js';
import { isDict } from '../../python/value.js';
import { temporaryFolder } from '../models/support.js';

const rejected = async (run: () => Promise<unknown>): Promise<string> => {
  try {
    await run();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  throw new Error('nothing was refused');
};

describe('lines of solutions', () => {
  const read = async (...lines: readonly unknown[]) => {
    const path = join(temporaryFolder(), 'in.jsonl');
    writeFileSync(path, lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'));
    return readRewardLines(path);
  };

  it('are tokens, steps or messages, with an id or a number', async () => {
    const lines = await read(
      { question: 'Q', steps: ['a', ' b\n'] },
      { id: 'x', tokens: [1, 2], rows: [1, 0] },
      { id: 0, tokens: [3] },
      { messages: [{ role: 'user', content: 'Q' }], tools: null },
    );
    expect(lines.map(({ id, where }) => [id, where])).toEqual([
      [0, 'in.jsonl:1'],
      ['x', 'in.jsonl:2'],
      [0, 'in.jsonl:3'],
      [3, 'in.jsonl:4'],
    ]);
    expect(lines.slice(0, 3).map(({ input }) => input)).toEqual([
      { kind: 'steps', question: 'Q', steps: ['a', ' b\n'] },
      { kind: 'tokens', tokens: [1, 2], rows: [1, 0] },
      { kind: 'tokens', tokens: [3] },
    ]);
    expect(lines[3]?.input).toMatchObject({ kind: 'messages', prompt: { messages: [{ role: 'user', content: 'Q' }] } });
  });

  it.each([
    [[], 'expected a JSON object, got []'],
    [{ id: 1 }, 'there is nothing to score: no tokens, no question and no messages'],
    [{ tokens: [1], question: 'Q', steps: ['a'] }, 'tokens and question are given at once'],
    [{ tokens: [1], scores: [1] }, 'unknown field "scores" beside tokens'],
    [{ tokens: [] }, 'tokens: expected a list of 1 to 1048576 token ids'],
    [{ tokens: [1.5] }, 'tokens: expected a list of 1 to 1048576 token ids'],
    [{ tokens: [-1] }, 'tokens: expected a list of 1 to 1048576 token ids'],
    [{ tokens: [1, 2], rows: [2] }, 'rows: 2 is behind the last of 2 tokens'],
    [{ tokens: [1, 2], rows: [] }, 'rows: expected a list of positions of tokens, counted from 0'],
    [{ tokens: [1, 2], rows: [-1] }, 'rows: expected a list of positions of tokens, counted from 0'],
    [{ question: 'Q' }, 'steps: expected a list of 1 to 10000 texts'],
    [{ question: ' ', steps: ['a'] }, 'question: expected a text that is not empty'],
    [{ question: 'Q', steps: [] }, 'steps: expected a list of 1 to 10000 texts'],
    [{ question: 'Q', steps: ['a', ''] }, 'steps[1] is empty, and a score of it would say nothing: leave it out'],
    [{ question: 'Q', steps: ['a', 7] }, 'steps[1]: expected a text, got 7'],
    [{ id: {}, tokens: [1] }, 'id: expected a number, or a text of at most 1000 characters'],
    [{ messages: [{ role: 'user' }] }, 'messages: there is no content'],
    ['{"tokens": [1], "__proto__": {"rows": [0]}}', 'unknown field "__proto__" beside tokens'],
  ])('are refused in a line: %j', async (line, message) => {
    expect(await rejected(() => read({ tokens: [1] }, line))).toContain(`in.jsonl:2: ${message}`);
  });

  it('must be there', async () => {
    expect(await rejected(() => read(' '))).toContain('holds no solutions');
  });
});

/** A token for each character, by its code; `<…>` is one, and so is what `words` has. */
function tokenizerOf(...words: readonly string[]): Tokenizer {
  const encode = (text: string): number[] => {
    const parts = text.match(new RegExp([...words, '<[^>]*>', '[^]'].join('|'), 'gu')) ?? [];
    return parts.map((part) =>
      part.length === 1 ? part.charCodeAt(0) : 1000 + [...part].reduce((sum, each) => sum + each.charCodeAt(0), 0),
    );
  };
  return {
    encode: (text) => Promise.resolve([1, ...encode(text)]),
    encodeBatch: (texts) => Promise.resolve(texts.map(encode)),
    encodeWritten: (text) => Promise.resolve(encode(text)),
    detokenizer: () => {
      throw new Error('nothing is shown as text');
    },
  };
}

/** Writes `<role>content<end>`. */
const template = {
  render: ({ messages }: { readonly messages: readonly unknown[] }) =>
    Promise.resolve(
      messages.map((each) => (isDict(each as never) ? turnOf(each as ReadonlyMap<string, string>) : '')).join(''),
    ),
} as unknown as ChatTemplate;
const turnOf = (message: ReadonlyMap<string, string>): string =>
  `<${message.get('role')!}>${message.get('content')!}<end>`;

const LIMITS = { vocabSize: 100_000, maxPositions: 1000 };

async function laidOut(layout: layouts.Layout, input: RewardInput, more: Partial<SolutionWriter> = {}) {
  const tokenizer = tokenizerOf('ки');
  const [plus, minus] = [43, 45];
  const own = { tokenizer, template, layout, bos: 1, pad: 0, verdicts: [plus, minus] as const, ...more };
  const [solution] = await tokenizeSolutions([{ where: 'in.jsonl:1', id: 0, input }], own, LIMITS);
  return solution!;
}

const steps = (question: string, ...list: readonly string[]): RewardInput => ({ kind: 'steps', question, steps: list });

describe('solutions as tokens', () => {
  it('have one BOS before pieces, and none where a template writes', async () => {
    const pieces = await laidOut(layouts.LINES, steps('Q', 'a'));
    expect(pieces).toMatchObject({ tokens: [1, 81, 97, 10], rows: [3] });
    const chat = await laidOut(layouts.OUTCOME, steps('Q', 'a', 'b'));
    const { encodeWritten } = tokenizerOf();
    expect(chat.tokens).toEqual(await encodeWritten('<user>Q<end><assistant>a\nb<end>'));
    expect(chat.rows).toEqual([chat.tokens.length - 1]);
    const plain = await laidOut(layouts.OUTCOME, steps('Q', 'a', 'b'), { template: undefined });
    expect(plain.tokens).toEqual([1, 81, 10, 97, 10, 98]);
    expect((await laidOut(layouts.LINES, steps('Q', 'a'), { bos: undefined })).tokens).toEqual([81, 97, 10]);
  });

  it('have a score at each separator', async () => {
    const { tokens, rows } = await laidOut(layouts.QWEN_PROCESS, steps('Q', 'a', 'b'));
    const separator = (await tokenizerOf().encodeWritten(layouts.QWEN_SEPARATOR))[0];
    expect(rows.map((row) => tokens[row])).toEqual([separator, separator]);
    expect(await rejected(() => laidOut(layouts.QWEN_PROCESS, steps('Q', `a${layouts.QWEN_SEPARATOR}b`)))).toBe(
      'in.jsonl:1: the separator "<extra_0>" stands at 2 places, and there is 1 step',
    );
    expect(await rejected(() => laidOut(layouts.MATH_SHEPHERD, steps('ки', 'a')))).toBe(
      'in.jsonl:1: the separator "ки" stands at 2 places, and there is 1 step',
    );
    expect(await rejected(() => laidOut(layouts.MATH_SHEPHERD, steps('Q', 'a'), { tokenizer: tokenizerOf() }))).toBe(
      'in.jsonl:1: the separator "ки" is 2 tokens of this tokenizer, not one',
    );
    const apart = tokenizerOf('ки');
    const twice: Tokenizer = {
      ...apart,
      encodeWritten: async (text) => (text === '\n' ? [9601, 10] : apart.encodeWritten(text)),
    };
    expect(await rejected(() => laidOut(layouts.SKYWORK, steps('Q', 'a'), { tokenizer: twice }))).toBe(
      'in.jsonl:1: the separator "\\n" is 2 tokens of this tokenizer, not one',
    );
  });

  it('have a score at the end of each piece', async () => {
    expect((await laidOut(layouts.SKYWORK, steps('Q', 'ab', 'c'))).rows).toEqual([5, 7]);
    const { tokens, rows } = await laidOut(layouts.REASON_EVAL, steps('Q', 'ab', 'c'));
    expect(rows).toEqual([tokens.length - 2, tokens.length - 1]);
  });

  it('have a score before each verdict, whatever else the text says', async () => {
    const { tokens, rows } = await laidOut(layouts.RLHFLOW, steps('1 + 1 - 0', '+', 'a + b', '-'));
    const user = (await tokenizerOf().encodeWritten('<assistant>'))[0];
    expect(rows).toHaveLength(3);
    for (const row of rows) expect([tokens[row], tokens[row + 1]]).toEqual([user, 43]);
    const wrong = { verdicts: [44, 45] as const };
    expect(await rejected(() => laidOut(layouts.RLHFLOW, steps('Q', 'a'), wrong))).toContain(
      '"+" and "-" are not one token each where the chat template puts them',
    );
    const messages = (...contents: readonly string[]): RewardInput => ({
      kind: 'messages',
      prompt: { messages: contents.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content })) },
    });
    expect((await laidOut(layouts.RLHFLOW, messages('Q a', '+', 'b', '+'))).rows).toHaveLength(2);
    expect(await rejected(() => laidOut(layouts.RLHFLOW, messages('Q', 'a')))).toContain('messages[1]: this verifier');
    expect(await rejected(() => laidOut(layouts.SKYWORK, messages('Q', 'a')))).toContain('reads no conversations');
    const { rows: last, tokens: all } = await laidOut(layouts.OUTCOME, messages('Q', 'a'));
    expect(last).toEqual([all.length - 1]);
  });

  it('keep token ids, and find the last one that is no pad', async () => {
    const given = (tokens: readonly number[], rows?: readonly number[]): RewardInput =>
      rows === undefined ? { kind: 'tokens', tokens } : { kind: 'tokens', tokens, rows };
    expect((await laidOut(layouts.OUTCOME, given([1, 7, 0, 8, 0, 0]))).rows).toEqual([3]);
    expect((await laidOut(layouts.OUTCOME, given([1, 7, 0]), { pad: undefined })).rows).toEqual([2]);
    expect((await laidOut(layouts.OUTCOME, given([1, 7, 0], [2, 2, 0]))).rows).toEqual([2, 2, 0]);
    expect(await rejected(() => laidOut(layouts.OUTCOME, given([0, 0])))).toContain('all tokens are the one');
    expect(await rejected(() => laidOut(layouts.SKYWORK, given([1, 7])))).toContain('do not say where steps end');
    expect(await rejected(() => laidOut(layouts.OUTCOME, given([100_000])))).toContain('the model has 100000 tokens');
    const long = Array.from({ length: 1001 }, () => 5);
    expect(await rejected(() => laidOut(layouts.OUTCOME, given(long)))).toContain('a solution of 1,001 tokens');
    expect(
      await rejected(() => laidOut(layouts.OUTCOME, steps('Q', 'a'), { template: undefined, bos: 200_000 })),
    ).toContain('token 200000');
  });
});

describe('what a model is asked as', () => {
  const config = { architecture: 'LlamaForCausalLM' } as ModelConfig;
  const classes = { ...config, architecture: 'LlamaForScores', head: { kind: 'value', layers: [] } };

  it('follows from its class, a flag or the name of its folder', () => {
    expect(chooseVerifier({ path: '/m/a', config: classes }).language).toBeUndefined();
    expect(chooseVerifier({ path: '/m/a', config }, 'rlhflow').language?.name).toBe('rlhflow');
    const found = chooseVerifier({ path: '/m/Math-Shepherd-Mistral-7B-PRM', config });
    expect(found.language?.name).toBe('math-shepherd');
    expect(found.note).toContain('by its name');
    expect(chooseVerifier({ path: '/m/rlhflow-prm/model.gguf', config }, 'math-shepherd').language?.name).toBe(
      'math-shepherd',
    );
  });

  it('is refused where nothing says so, with what there is', () => {
    expect(() => chooseVerifier({ path: '/rlhflow/a', config })).toThrow('nothing says that it is a verifier');
    expect(() => chooseVerifier({ path: '/m/a', config: classes }, 'rlhflow')).toThrow('says itself what its scores');
  });
});
