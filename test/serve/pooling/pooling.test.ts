/** Scores over HTTP, of a made-up head of two classes: a row's token, and the square of it. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sigmoid, softmax } from '../../../models/heads/head.js';
import type { ScoringFacts } from '../../../serve/models.js';
import { counting } from '../../engine/counting.js';
import { scriptedModel } from '../../support/scriptedModel.js';
import { type Served, servedModels, type ServedOptions } from '../../support/servedModels.js';
import { post, refused } from '../completions/client.js';

interface Scores {
  readonly data: readonly { readonly index: number; readonly score: number }[];
}
interface Pooled {
  readonly id: string;
  readonly object: string;
  readonly model: string;
  readonly data: readonly { readonly index: number; readonly data: readonly (number | readonly number[])[] }[];
  readonly usage: { readonly prompt_tokens: number; readonly total_tokens: number };
}

const FACTS: ScoringFacts = { head: 'token classification', labels: ['bad', 'good'], bos: 1, pad: undefined };

let served: Served;
let url: string;
const others: Served[] = [];

const serve = async (scoring: ScoringFacts | undefined, options: ServedOptions): Promise<string> => {
  const own = servedModels({ ...options, ...(scoring === undefined ? {} : { scoring }) });
  others.push(own);
  return (await own.listen()).url;
};

const reward = (fails?: ReadonlySet<number>): ServedOptions => ({
  kind: 'reward',
  device: counting({ isReward: true, ...(fails === undefined ? {} : { fails }) }).model,
});

beforeAll(async () => {
  served = servedModels({ ...reward(new Set([66])), scoring: FACTS });
  ({ url } = await served.listen());
});
afterAll(async () => {
  await served.close();
  for (const each of others) await each.close();
});

async function ask<T>(path: string, body: Readonly<Record<string, unknown>>, at = url): Promise<T> {
  const response = await post(at, path, body);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${response.status}: ${text}`);
  return JSON.parse(text) as T;
}

const second = (token: number): number => softmax([token, token ** 2])[1]!;

describe('scores', () => {
  it('stand at the rows that a body names, and at the ends of steps', async () => {
    const { data, usage, object, id, model } = await ask<Pooled>('/pooling', { input: [1, 5, 2], rows: [2, 0, 2] });
    expect({ data, object, model }).toEqual({
      data: [{ index: 0, object: 'pooling', data: [second(2), second(1), second(2)] }],
      object: 'list',
      model: 'demo',
    });
    expect(id).toMatch(/^pool-/);
    expect(usage).toMatchObject({ prompt_tokens: 3, total_tokens: 3 });
    const steps = await ask<Pooled>('/pooling', { question: 'One', steps: ['a', 'b'] });
    const [newline] = await served.model.texts.encode(['\n'], false);
    expect(steps.data[0]!.data).toEqual([second(newline![0]!), second(newline![0]!)]);
  });

  it('are rows of every token where that is asked for', async () => {
    const asked = { input: [[1, 5], [2]], task: 'token_classify' };
    const { data } = await ask<Pooled>('/pooling', asked);
    expect(data.map(({ data: own }) => own)).toEqual([[softmax([1, 1]), softmax([5, 25])], [softmax([2, 4])]]);
    const raw = await ask<Pooled>('/pooling', { ...asked, use_activation: false });
    expect(raw.data[0]!.data).toEqual([
      [1, 1],
      [5, 25],
    ]);
  });

  it('name a class', async () => {
    const { data } = await ask<{ readonly data: readonly object[] }>('/classify', {
      input: [
        [1, 5],
        [7, 1],
      ],
    });
    expect(data).toEqual([
      { index: 0, label: 'good', probs: softmax([5, 25]), num_classes: 2 },
      { index: 1, label: 'bad', probs: [0.5, 0.5], num_classes: 2 },
    ]);
    const text = await ask<{ readonly data: readonly object[] }>('/classify', { input: 'Some text' });
    expect(text.data.length).toBe(1);
  });

  it('compare texts, and put documents in order', async () => {
    const outcome = await serve({ ...FACTS, head: 'sequence classification' }, reward());
    const of = async (text: string): Promise<number> => {
      const [tokens] = await served.model.texts.encode([text], false);
      return second(tokens!.at(-1)!);
    };
    const { data } = await ask<Scores>('/score', { text_1: 'Q', text_2: ['one', 'two'] }, outcome);
    expect(data.map(({ score }) => score)).toEqual([await of('Q\none'), await of('Q\ntwo')]);
    const pairs = await ask<Scores>('/v1/score', { text_1: ['A', 'B'], text_2: ['one', 'two'] }, outcome);
    expect(pairs.data).toEqual(data);
    const documents = ['one', { text: 'two' }, 'three!'];
    const all = [await of('Q\none'), await of('Q\ntwo'), await of('Q\nthree!')];
    const { results } = await ask<{ readonly results: readonly { index: number; relevance_score: number }[] }>(
      '/v2/rerank',
      { query: 'Q', documents, top_n: 2 },
      outcome,
    );
    const order = [0, 1, 2].sort((a, b) => all[b]! - all[a]! || a - b);
    expect(results.map(({ index }) => index)).toEqual(order.slice(0, 2));
    expect(results.map(({ relevance_score: own }) => own)).toEqual(order.slice(0, 2).map((i) => all[i]));
  });

  it('are those of verdicts, of a language model', async () => {
    const facts = { language: 'math-shepherd', labels: [], bos: 1, pad: undefined };
    const device = scriptedModel({ next: (token) => token, logProb: (token, target) => -(token + 2 * target) / 64 });
    const language = await serve(facts, { device });
    const [right, wrong] = await served.model.texts.encode(['+', '-'], false);
    const { data } = await ask<Pooled>('/pooling', { input: [1, 5, 9], rows: [2, 1, 2] }, language);
    const score = sigmoid((-2 * (right!.at(-1)! - wrong!.at(-1)!)) / 64);
    expect(data[0]!.data).toEqual([score, score, score]);
    // It goes on writing texts as well.
    expect((await post(language, '/v1/completions', { prompt: [5], max_tokens: 1, temperature: 0 })).status).toBe(200);
  });

  it.each<readonly [string, Readonly<Record<string, unknown>>, string]>([
    ['/pooling', {}, 'expected one of input, messages, and question with steps'],
    ['/pooling', { input: [5], question: 'a' }, 'expected one of input'],
    ['/pooling', { question: 'a' }, 'steps: expected a list of texts'],
    ['/pooling', { input: [5, 6] }, 'do not say where steps end'],
    ['/pooling', { input: [5, 6], rows: [2] }, 'rows: 2 is behind the last'],
    ['/pooling', { input: [[5], [6]], rows: [0] }, 'rows: only with one input'],
    ['/pooling', { input: [5000], rows: [0] }, 'input: there is no token 5000'],
    ['/pooling', { input: [5], task: 'embed' }, 'task: expected score'],
    ['/pooling', { messages: [{ role: 'user', content: 'a' }] }, 'reads no conversations'],
    ['/score', { text_1: ['a', 'b'], text_2: ['a', 'b', 'c'] }, 'text_1 has 2 texts and text_2 3'],
    ['/rerank', { query: 'a', documents: [] }, 'documents: expected at least one'],
    ['/v1/completions', { prompt: [5] }, 'gives scores, and no texts'],
  ])('of %s refuse %j', async (path, body, message) => {
    expect(await refused(url, body, path)).toMatchObject({ status: 400, message: expect.stringContaining(message) });
  });

  it('are refused where a model has none, or a value is not finite', async () => {
    const failed = await refused(url, { input: [[5, 66], [7]], rows: undefined, task: 'token_classify' }, '/pooling');
    expect(failed.status).toBe(500);
    expect((await ask<Pooled>('/pooling', { input: [5], rows: [0] })).data.length).toBe(1);
    const text = await serve(undefined, {});
    const refusal = await refused(text, { input: [5], rows: [0] }, '/pooling');
    expect(refusal).toMatchObject({ status: 400, message: expect.stringContaining('gives texts, and no scores') });
    const long = Array.from({ length: 2000 }, () => 5);
    expect(await refused(url, { input: long, rows: [0] }, '/pooling')).toMatchObject({
      code: 'context_length_exceeded',
    });
  });
});
