/** Chat completions that are searched for, over HTTP: an engine with a made-up generator and a made-up verifier. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { askOf } from '../../../search/asking.js';
import { searchProblem } from '../../../search/methods/searchProblem.js';
import type { SearchOptions } from '../../../search/options.js';
import type { ScoringFacts } from '../../../serve/models.js';
import { pathJudgeOf, stepWriterOf } from '../../../serve/search/models.js';
import { requireScoring } from '../../../serve/pooling/verifier.js';
import { pathModel } from '../../support/pathModel.js';
import { type Served, servedModels } from '../../support/servedModels.js';
import { chatFolder } from '../chat/scripted.js';
import { PLAIN } from '../chat/templates.js';

/** Its scores depend on every token of a path. */
const FACTS: ScoringFacts = { language: 'rlhflow', labels: [], bos: 1, pad: undefined };
const USER = [{ role: 'user', content: 'Two and two?' }];
const SEARCH = { method: 'beam', n: 4, width: 2, iterations: 3, step_tokens: 5 };

interface Searched {
  readonly model: string;
  readonly seed: number;
  readonly choices: readonly {
    readonly message: { readonly content: string };
    readonly delta: { readonly content?: string };
    readonly finish_reason: string | null;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly search: {
    readonly picked: number;
    readonly candidates: readonly {
      content: string;
      scores: readonly number[];
      score: number;
      finish_reason: string;
    }[];
    readonly notes: readonly string[];
    readonly drawn_steps: number;
    readonly drawn_tokens: number;
    readonly usage: Readonly<Record<string, { readonly model: string; readonly requests: number }>>;
  };
  readonly error: { readonly message: string; readonly param: string; readonly code: string | null };
}

let served: Served;
let url: string;
beforeAll(async () => {
  served = servedModels({
    folder: chatFolder(PLAIN),
    path: { maxLength: 600, cacheTokens: 16_384 },
    judge: {
      device: pathModel({ seed: 7, vocab: 4096, maxLength: 2000, cacheTokens: 16_384 }),
      scoring: FACTS,
      kind: 'text',
    },
  });
  ({ url } = await served.listen());
});
afterAll(() => served.close());

const post = (body: object, signal?: AbortSignal): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    ...{ method: 'POST', headers: { 'content-type': 'application/json' } },
    body: JSON.stringify({ messages: USER, seed: 5, ...body }),
    ...(signal === undefined ? {} : { signal }),
  });
const searched = async (body: object): Promise<{ status: number; body: Searched }> => {
  const response = await post(body);
  return { status: response.status, body: (await response.json()) as Searched };
};
const isIdle = (): Promise<void> =>
  expect
    .poll(() => [
      served.client.active,
      ...['model', 'judge'].flatMap((name) => [
        served.engine.statsOf(name).running,
        served.engine.statsOf(name).heldPages,
      ]),
    ])
    .toEqual([0, 0, 0, 0, 0]);

/** What the search room gives for it, with requests that go to the engine itself. */
async function expected(options: SearchOptions) {
  const ask = askOf(served.engine);
  const writer = stepWriterOf(served.model, ask, options);
  const judge = await pathJudgeOf(requireScoring(served.client, 'judge'), ask, options);
  return searchProblem({ id: 'x', problem: USER[0]!.content }, { writer, judge, options });
}

describe('a chat completion that is searched for', () => {
  it('has the picked text, all candidates with their scores, and what both models used', async () => {
    const { status, body } = await searched({ search: SEARCH, temperature: 1 });
    expect(status, JSON.stringify(body.error)).toBe(200);
    const options = { method: 'beam', n: 4, width: 2, iterations: 3, stepTokens: 5, temperature: 1, seed: 5 } as const;
    const own = await expected(options);
    const { search, usage, choices } = body;
    expect(search.candidates.map(({ content, scores, score }) => ({ content, scores, score }))).toEqual(
      own.candidates.map(({ text, scores, aggregate }) => ({ content: text, scores, score: aggregate })),
    );
    expect(search.candidates.length, search.notes.join()).toBeGreaterThan(1);
    expect(new Set(search.candidates.map(({ content }) => content)).size).toBeGreaterThan(1);
    expect(choices).toMatchObject([
      { message: { role: 'assistant', content: own.candidates[own.picked!]!.text }, finish_reason: 'length' },
    ]);
    expect(search).toMatchObject({
      ...{ method: 'beam', picked: own.picked, notes: own.notes },
      ...{ drawn_steps: own.drawnSteps, drawn_tokens: own.drawnTokens },
      usage: { generator: { model: 'demo' }, verifier: { model: 'judge', system_fingerprint: 'made-up' } },
    });
    expect(usage.completion_tokens).toBe(own.drawnTokens);
    expect(body).toMatchObject({ object: 'chat.completion', model: 'demo', seed: 5, system_fingerprint: 'made-up' });
    await isIdle();
  });

  it.each(['best-of-n', 'weighted', 'majority', 'dvts', 'rebase'])('searches by %s', async (method) => {
    const sampled = { method, n: 4, max_step_tokens: 8 };
    const search = method === 'dvts' || method === 'rebase' ? { ...SEARCH, method } : sampled;
    const [one, two] = await Promise.all([searched({ search }), searched({ search })]);
    expect(one.status, JSON.stringify(one.body.error)).toBe(200);
    expect(one.body.search.candidates.length).toBeGreaterThan(1);
    expect({ ...one.body, id: '', created: 0, usage: 0, search: { ...one.body.search, usage: 0 } }).toEqual({
      ...{ ...two.body, id: '', created: 0, usage: 0, search: { ...two.body.search, usage: 0 } },
    });
    await isIdle();
  });

  it('is streamed: signs of life, then the whole answer', async () => {
    const whole = await searched({ search: SEARCH });
    const response = await post({ search: SEARCH, stream: true, stream_options: { include_usage: true } });
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const lines = (await response.text()).split('\n\n').filter((line) => line !== '');
    const signs = lines.filter((line) => line.startsWith(': '));
    expect(signs.at(-1)).toBe(`: steps drawn: ${whole.body.search.drawn_steps}`);
    expect(lines.at(-1)).toBe('data: [DONE]');
    const chunks = lines.slice(signs.length, -1).map((line) => JSON.parse(line.slice('data: '.length)) as Searched);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(
      whole.body.choices[0]!.message.content,
    );
    expect(chunks.map(({ choices }) => choices[0]?.finish_reason)).toEqual([null, null, 'length', undefined]);
    expect(chunks[2]!.search.candidates).toEqual(whole.body.search.candidates);
    expect(chunks[3]!.usage.completion_tokens).toBe(whole.body.search.drawn_tokens);
  });

  it.each([true, false])('ends with its client, and leaves nothing behind (streamed: %s)', async (stream) => {
    const client = new AbortController();
    const answer = post({ search: { ...SEARCH, n: 64, iterations: 60, step_tokens: 8 }, stream }, client.signal);
    await expect.poll(() => served.client.active).toBeGreaterThan(3);
    client.abort();
    await expect(answer.then((response) => response.text())).rejects.toThrow();
    await isIdle();
  });

  it('has the system prompt of the conversation, or none, or that of searches', async () => {
    const system = (content: string) => ({ messages: [{ role: 'system', content }, ...USER], search: SEARCH });
    const answers = await Promise.all([
      searched({ search: SEARCH }),
      searched(system('Be quick.')),
      searched(system('')),
    ]);
    const prompts = answers.map(({ body }) => body.usage.prompt_tokens);
    expect(prompts[0]).toBeGreaterThan(prompts[1]!);
    expect(prompts[1]).toBeGreaterThan(prompts[2]!);
  });
});

describe('what cannot be searched for', () => {
  const refused = async (body: object) => {
    const answer = await searched(body);
    return { status: answer.status, ...answer.body.error };
  };

  it.each([
    ['search', { search: 7 }, /^search: expected an object/],
    ['search.method', { search: {} }, /^search\.method: /],
    ['search.method', { search: { method: 'mcts' } }, /^search\.method: /],
    ['search.n', { search: { ...SEARCH, n: 0 } }, /^search\.n: expected a whole number from 1 to 4096/],
    [
      'search.step_tokens',
      { search: { ...SEARCH, step_tokens: 1.5 } },
      /^search\.step_tokens: expected a whole number/,
    ],
    ['search.stepTokens', { search: { ...SEARCH, stepTokens: 5 } }, /there is no such field: there are method, n, /],
    [
      'search.__proto__',
      { search: JSON.parse('{"method": "beam", "__proto__": 1}') as object },
      /there is no such field/,
    ],
    ['search.temperature', { search: { ...SEARCH, temperature: 1 } }, /it is a field of the body/],
    ['search.verifier', { search: { ...SEARCH, verifier: 7 } }, /expected the name of a model/],
    ['model', { search: { ...SEARCH, verifier: 'nobody' } }, /there is no model "nobody"/],
    ['model', { search: { ...SEARCH, verifier: 'demo' } }, /"demo" gives texts, and no scores/],
    ['search', { search: { ...SEARCH, method: 'dvts', n: 5 } }, /not a multiple of 2/],
    ['search', { search: { ...SEARCH, step_stop: 'x' } }, /not both/],
    ['search', { search: { ...SEARCH, n: 4096, iterations: 17 } }, /more than 65536 steps/],
    ['tools', { search: SEARCH, tools: [{ type: 'function', function: { name: 'now' } }] }, /^tools: not with search/],
    ['n', { search: SEARCH, n: 2 }, /search\.n says how many paths/],
    ['max_tokens', { search: SEARCH, max_tokens: 5 }, /search\.max_step_tokens/],
    ['response_format', { search: SEARCH, response_format: { type: 'json_object' } }, /not with search/],
    ['functions', { search: SEARCH, functions: [] }, /replaced by tools/],
    ['temperature', { search: SEARCH, temperature: -1 }, /^temperature: /],
    ['stream_options', { search: SEARCH, stream_options: {} }, /only with stream/],
    [
      'messages',
      { search: SEARCH, messages: [...USER, { role: 'assistant', content: 'Four' }] },
      /one message of a user/,
    ],
    ['messages', { search: SEARCH, messages: [{ role: 'user', content: ' ' }] }, /the question is empty/],
    ['messages', { search: SEARCH, messages: [{ role: 'user', content: 'word '.repeat(700) }] }, /context/],
  ])('%s', async (param, body, message) => {
    expect(await refused(body)).toMatchObject({
      status: param === 'model' && 'search' in body && JSON.stringify(body).includes('nobody') ? 404 : 400,
      param,
      message: expect.stringMatching(message),
    });
    await isIdle();
  });

  it('takes fields that ask for nothing', async () => {
    const nothing = {
      n: 1,
      top_k: -1,
      presence_penalty: 0,
      stop: [],
      tools: [],
      logprobs: false,
      user: 'me',
      stream: false,
    };
    expect((await searched({ search: SEARCH, ...nothing })).status).toBe(200);
  });

  it('says that a server without a verifier has none, and has majorities there', async () => {
    const alone = servedModels({ folder: chatFolder(PLAIN) });
    const { url: other } = await alone.listen();
    const ask = (search: object) =>
      fetch(`${other}/v1/chat/completions`, {
        ...{ method: 'POST', headers: { 'content-type': 'application/json' } },
        body: JSON.stringify({ messages: [{ role: 'system', content: '' }, ...USER], search }),
      });
    try {
      const refusal = await ask(SEARCH);
      expect([refusal.status, await refusal.text()]).toEqual([400, expect.stringContaining('no verifier')]);
      expect((await ask({ method: 'majority', n: 3, max_step_tokens: 8 })).status).toBe(200);
    } finally {
      await alone.close();
    }
  });
});
