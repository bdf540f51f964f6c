import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Question } from '../../evaluate/question.js';
import type * as TokenizeModule from '../../evaluate/tokenize.js';
import { tokenizeAll, type TokenizeOptions, tokenizeQuestions } from '../../evaluate/tokenize.js';
import { compileEval } from './support/compiled.js';
import { createTokenizer } from './support/fakeTokenizer.mjs';
import { FAKE_TOKENIZER } from './support/questions.js';
import { thorough } from '../support/thorough.js';

const question = (docId: number, context: string, ...choices: string[]): Question => ({
  docId,
  doc: {},
  context,
  choices,
  gold: 0,
  delimiter: ' ',
});
const many = Array.from({ length: 333 }, (_, i) =>
  question(i, `question number ${i} of them`, 'yes', `no ${'or maybe '.repeat(i % 5)}`, 'x'),
);
const encode = (text: string): number[] => createTokenizer({ batch: true }).encode(text) as number[];

/** The tokens that the semantics require, one question at a time. */
const expected = (questions: readonly Question[]): unknown[] =>
  questions.map(({ docId, context, choices }) => {
    const tokens = encode(context.trimEnd());
    return {
      docId,
      context: Int32Array.from(tokens),
      continuations: choices.map((choice) => Int32Array.from(encode(`${context} ${choice}`).slice(tokens.length))),
    };
  });

describe('tokenizeQuestions in this thread', () => {
  const tokenize = (
    questions: readonly Question[],
    options: Partial<TokenizeOptions> = {},
  ): ReturnType<typeof tokenizeQuestions> => tokenizeQuestions(questions, { tokenizer: FAKE_TOKENIZER, ...options });

  it.each([{}, { batch: true }])('gives context and continuations in order (tokenizer %j)', async (spec) => {
    expect(await tokenize(many, { tokenizer: { ...FAKE_TOKENIZER, spec }, chunk: 10 })).toEqual(expected(many));
  });

  it('moves spaces at the end of the context to the choices', async () => {
    const [spaced] = await tokenize([question(0, 'abc  ', 'de')]);
    const tight = encode('abc');
    expect([...(spaced?.context ?? [])]).toEqual(tight);
    expect([...(spaced?.continuations[0] ?? [])]).toEqual(encode('abc   de').slice(tight.length));
  });

  it('accepts an empty list', async () => {
    expect(await tokenize([])).toEqual([]);
  });

  it('names a question without tokens before its choices, or a choice without tokens', async () => {
    await expect(
      tokenize([question(3, '', 'a')], { tokenizer: { ...FAKE_TOKENIZER, spec: { bos: false } } }),
    ).rejects.toThrow(/question 3: the context has no tokens/);
    // BOS alone is enough context.
    expect((await tokenize([question(3, '', 'a')]))[0]?.context).toEqual(Int32Array.of(1));
    const swallowing = {
      moduleUrl: `data:text/javascript,export const createTokenizer = () => ({ encode: () => [1, 2] })`,
      spec: null,
    };
    await expect(tokenize([question(4, 'x', 'a', 'b')], { tokenizer: swallowing })).rejects.toThrow(
      /question 4, choice 0: the choice adds no token/,
    );
  });

  it('passes on what the tokenizer or its module throws', async () => {
    await expect(tokenize([question(0, 'POISON', 'a')])).rejects.toThrow('this text cannot be encoded');
    await expect(tokenize(many, { tokenizer: { ...FAKE_TOKENIZER, spec: { fail: true } } })).rejects.toThrow(
      'no such tokenizer',
    );
    await expect(
      tokenize(many, { tokenizer: { moduleUrl: 'data:text/javascript,export const x = 1', spec: 0 } }),
    ).rejects.toThrow('exports no createTokenizer');
  });
});

describe('tokenizeQuestions in worker threads (evaluate/ compiled to JavaScript)', () => {
  let folder = '';
  let compiled: typeof TokenizeModule;
  let tokenizer = FAKE_TOKENIZER;
  beforeAll(async () => {
    folder = compileEval();
    compiled = (await import(
      /* @vite-ignore */ pathToFileURL(join(folder, 'evaluate', 'tokenize.js')).href
    )) as typeof compiled;
    tokenizer = { moduleUrl: pathToFileURL(join(folder, 'fakeTokenizer.mjs')).href, spec: {} };
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it.each([1, 2, 5])('gives the same result with %i threads', async (workers) => {
    expect(await compiled.tokenizeQuestions(many, { tokenizer, workers, chunk: 7 })).toEqual(expected(many));
  });

  it('really runs in other threads', async () => {
    const path = join(folder, 'threadIds.mjs');
    writeFileSync(
      path,
      `import { threadId } from 'node:worker_threads';\nexport const createTokenizer = () => ({ ` +
        `encode: (text) => text.endsWith('mark') ? [1] : [1, threadId] });\n`,
    );
    const source = { moduleUrl: pathToFileURL(path).href, spec: null };
    const questions = many.map(({ docId }) => question(docId, 'mark', 'a'));
    const threads = new Set(
      (await compiled.tokenizeQuestions(questions, { tokenizer: source, chunk: 5 })).map(
        ({ continuations }) => continuations[0]?.[0],
      ),
    );
    expect(threads.size).toBe(2);
    expect(threads.has(0)).toBe(false);
  });

  thorough('accepts questions while it works', async () => {
    const pool = new compiled.QuestionTokenizer({ tokenizer, workers: 2, chunk: 3 });
    for (const [i, item] of many.entries()) {
      pool.add(item);
      if (i % 50 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    }
    expect((await pool.finish()).questions).toEqual(expected(many));
  });

  thorough('passes errors on with their hints, and ends its threads', async () => {
    const fail = compiled.tokenizeQuestions(many, { tokenizer: { ...tokenizer, spec: { fail: true } }, workers: 2 });
    await expect(fail).rejects.toMatchObject({ name: 'UserError', message: 'no such tokenizer', hint: 'look again' });
    await expect(
      compiled.tokenizeQuestions([...many, question(0, 'POISON', 'a'), ...many], { tokenizer, workers: 2, chunk: 5 }),
    ).rejects.toThrow('this text cannot be encoded');
    await expect(
      compiled.tokenizeQuestions(many, {
        tokenizer: { moduleUrl: pathToFileURL(join(folder, 'absent.mjs')).href, spec: 0 },
        workers: 2,
      }),
    ).rejects.toThrow(/absent\.mjs/);
    const dying = join(folder, 'dying.mjs');
    writeFileSync(dying, 'export const createTokenizer = () => ({ encode: () => process.exit(3) });\n');
    await expect(
      compiled.tokenizeQuestions(many, { tokenizer: { moduleUrl: pathToFileURL(dying).href, spec: 0 }, workers: 2 }),
    ).rejects.toThrow('a tokenizer thread ended early, exit code 3');
  });
});

it("the tokenizer's additions to every text are known", async () => {
  const { questions, added } = await tokenizeAll(many.slice(0, 3), { tokenizer: FAKE_TOKENIZER });
  expect(added).toEqual(encode(''));
  expect(questions.map(({ docId }) => docId)).toEqual([0, 1, 2]);
});
