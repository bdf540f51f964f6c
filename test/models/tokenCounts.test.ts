/** Token counts of real questions compared with those of an independent harness (golden files). */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { openTokenizer } from '../../models/tokenizer/tokenizer.js';
import { hasShared, SHARED, skipReason } from './support.js';
import { casesHere } from '../support/thorough.js';

const QUESTIONS = 500;

interface Question {
  readonly activity_label: string;
  readonly ctx_a: string;
  readonly ctx_b: string;
  readonly endings: readonly string[];
}
interface Golden {
  readonly doc_id: number;
  readonly n_ctx: number;
  readonly n_cont: readonly number[];
}

const lines = <T>(text: string): T[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as T);
const preprocess = (text: string): string =>
  text
    .trim()
    .replaceAll(' [title]', '. ')
    .replace(/\[.*?\]/g, '')
    .replaceAll('  ', ' ');
const capitalize = (text: string): string => {
  const [first = '', ...rest] = text;
  return first.toUpperCase() + rest.join('').toLowerCase();
};

describe.skipIf(!hasShared)(skipReason('token counts against golden files'), () => {
  const questions = hasShared
    ? lines<Question>(gunzipSync(readFileSync(join(SHARED, 'data', 'hellaswag_val.jsonl.gz'))).toString()).slice(
        0,
        QUESTIONS,
      )
    : [];

  it.each(casesHere(['demo', 'mha-2m', 'gqa-4m'], 0))('%s', async (name) => {
    const tokenizer = openTokenizer(join(SHARED, 'checkpoints', name));
    const golden = lines<Golden>(readFileSync(join(SHARED, 'golden', `${name}.jsonl`), 'utf8')).slice(1, QUESTIONS + 1);
    const texts = questions.map((q) => {
      const context = preprocess(`${q.activity_label}: ${q.ctx_a} ${capitalize(q.ctx_b)}`);
      return [context, ...q.endings.map((ending) => `${context} ${preprocess(ending)}`)];
    });
    for (const [context] of texts) expect(context).not.toMatch(/\s$/); // There is no space to move to the continuation.
    const encoded = await tokenizer.encodeBatch(texts.flat());
    let at = 0;
    const counts = texts.map((row, i) => {
      const [context = [], ...whole] = encoded.slice(at, (at += row.length));
      return { doc_id: i, n_ctx: context.length, n_cont: whole.map((ids) => ids.length - context.length) };
    });
    expect(counts).toEqual(golden.map(({ doc_id, n_ctx, n_cont }) => ({ doc_id, n_ctx, n_cont })));
    expect(counts).toHaveLength(QUESTIONS);
  });
});
