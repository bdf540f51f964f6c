/** Completions of a model whose answers depend on all that is asked: those that the engine gives, to the bit. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SamplingOptions } from '../../../engine/options.js';
import type { Generated } from '../../../engine/request.js';
import { LogProbLists } from '../../../serve/completions/logProbs.js';
import { tokenTexts } from '../../../serve/tokenTexts.js';
import { type Served, servedModels } from '../../support/servedModels.js';
import { type AnswerChoice, chunks, complete, joined, type LogProbs } from './client.js';

const EOS = [2, 77, 900];

let served: Served;
let url: string;

beforeAll(async () => {
  served = servedModels({ eosTokenIds: EOS, path: { cacheTokens: 1 << 15 } });
  ({ url } = await served.listen());
});
afterAll(() => served.close());

interface Case {
  readonly body: Readonly<Record<string, unknown>>;
  readonly sampling: SamplingOptions;
  readonly more?: {
    readonly minNewTokens?: number;
    readonly stopTokens?: ReadonlySet<number>;
    readonly allowedTokens?: readonly number[];
  };
}

const prompt = (seed: number): readonly number[] =>
  Array.from({ length: 5 + seed }, (_, i) => (seed * 97 + i * i) % 4000);

const CASES: readonly Case[] = [
  { body: { temperature: 0 }, sampling: { temperature: 0 } },
  { body: { seed: 4 }, sampling: { temperature: 1, seed: 4 } },
  {
    body: { seed: -9_007_199_254_740_991, temperature: 0.7 },
    sampling: { temperature: 0.7, seed: -9_007_199_254_740_991 },
  },
  { body: { seed: 2 ** 62, top_k: 5, n: 3 }, sampling: { temperature: 1, seed: 2 ** 62, topK: 5 } },
  { body: { seed: 1, top_p: 0.5, min_p: 0.1 }, sampling: { temperature: 1, seed: 1, topP: 0.5, minP: 0.1 } },
  {
    body: { seed: 3, repetition_penalty: 1.2, presence_penalty: 0.5, frequency_penalty: -0.5 },
    sampling: { temperature: 1, seed: 3, repetitionPenalty: 1.2, presencePenalty: 0.5, frequencyPenalty: -0.5 },
  },
  {
    body: { seed: 5, logit_bias: { 7: 3, 9: -100 } },
    sampling: {
      temperature: 1,
      seed: 5,
      logitBias: [
        [7, 3],
        [9, -100],
      ],
    },
  },
  { body: { seed: 6, ignore_eos: true }, sampling: { temperature: 1, seed: 6 }, more: { stopTokens: new Set() } },
  {
    body: { seed: 6, min_tokens: 9, stop_token_ids: [5, 6] },
    sampling: { temperature: 1, seed: 6 },
    more: { minNewTokens: 9, stopTokens: new Set([...EOS, 5, 6]) },
  },
  {
    body: { seed: 7, allowed_token_ids: [900, 12, 13, 14, 15], n: 2 },
    sampling: { temperature: 1, seed: 7 },
    more: { allowedTokens: [900, 12, 13, 14, 15] },
  },
  { body: { temperature: 0, logprobs: 4 }, sampling: { temperature: 0, topLogProbs: 4 } },
  { body: { seed: 8, logprobs: 1, n: 2 }, sampling: { temperature: 1, seed: 8, topLogProbs: 1 } },
];

const MAX_TOKENS = 24;

/** A choice as the engine's own continuation says it. */
function wanted({ tokens, reason }: Generated, { topLogProbs = 0 }: SamplingOptions): Partial<AnswerChoice> {
  const texts = tokenTexts(served.model.texts.detokenizer);
  const stream = served.model.texts.detokenizer.stream();
  const last = tokens.at(-1)!.token;
  const shown = reason === 'eos' ? tokens.slice(0, -1) : tokens;
  return {
    text: shown.map(({ token }) => stream.push(token)).join('') + stream.end(),
    token_ids: tokens.map(({ token }) => token),
    finish_reason: reason === 'eos' ? 'stop' : 'length',
    stop_reason: reason === 'eos' && !EOS.includes(last) ? last : null,
    logprobs: {
      tokens: tokens.map(({ token }) => texts.textOf(token)),
      // JSON has no −0.
      token_logprobs: tokens.map(({ logProb }) => logProb + 0),
      top_logprobs: tokens.map(({ token, logProb, top = [] }) => {
        const own = top.slice(0, topLogProbs).filter((each) => each.token !== token);
        const all = [...own, { token, logProb }].sort((a, b) => a.logProb - b.logProb);
        return Object.fromEntries(all.map((each) => [texts.textOf(each.token), each.logProb + 0]));
      }),
      text_offset: expect.anything() as readonly number[],
    },
  };
}

const bodyOf = ({ body }: Case, i: number) => ({
  ...{ prompt: prompt(i), max_tokens: MAX_TOKENS, logprobs: 0, return_token_ids: true },
  ...body,
});

describe('completions', () => {
  it('have the tokens and log-probabilities of the engine, alone and beside others, streamed or not', async () => {
    const all = await Promise.all(
      CASES.map(async ({ sampling, more, body }, i) => {
        const { n = 1 } = body as { readonly n?: number };
        const stopTokens = new Set(EOS);
        const asked = { prompt: prompt(i), n, maxNewTokens: MAX_TOKENS, stopTokens, sampling, ...more };
        const found = await served.engine.submit({ kind: 'generate', ...asked }).result();
        return found.map((each) => wanted(each, sampling));
      }),
    );
    for (const [i, each] of CASES.entries())
      expect((await complete(url, bodyOf(each, i))).choices, JSON.stringify(each.body)).toMatchObject(all[i]!);
    const beside = await Promise.all(
      CASES.map(async (each, i) =>
        i % 2 === 0 ? (await complete(url, bodyOf(each, i))).choices : joined(await chunks(url, bodyOf(each, i))),
      ),
    );
    expect(beside).toMatchObject(all);
    const streamed = await Promise.all(CASES.map(async (each, i) => joined(await chunks(url, bodyOf(each, i)))));
    expect(streamed).toMatchObject(all);
  });

  it('report the seed that was drawn, with which the answer comes again', async () => {
    const first = await complete(url, { prompt: prompt(3), max_tokens: 12, n: 2 });
    const other = await complete(url, { prompt: prompt(3), max_tokens: 12, n: 2 });
    expect(first.seed).not.toBe(other.seed);
    expect(first.choices).not.toEqual(other.choices);
    const again = await complete(url, { prompt: prompt(3), max_tokens: 12, n: 2, seed: first.seed });
    expect(again.choices).toEqual(first.choices);
    expect(first.choices[0]!.text).not.toBe(first.choices[1]!.text);
    const [chunk] = await chunks(url, { prompt: prompt(3), max_tokens: 1 });
    expect(chunk!.seed).toEqual(expect.any(Number));
  });

  it('are the likeliest of those that were drawn', async () => {
    const asked = { prompt: prompt(9), seed: 11, max_tokens: 10, logprobs: 0 };
    const drawn = await complete(url, { ...asked, n: 5 });
    const mean = ({ logprobs }: AnswerChoice): number =>
      logprobs!.token_logprobs.reduce((sum: number, each) => sum + each!, 0) / logprobs!.token_logprobs.length;
    const ranked = [...drawn.choices].sort((a, b) => mean(b) - mean(a)).slice(0, 2);
    const best = await complete(url, { ...asked, n: 2, best_of: 5 });
    expect(best.choices.map(({ text }) => text)).toEqual(ranked.map(({ text }) => text));
    expect(best.choices.map(({ index }) => index)).toEqual([0, 1]);
    expect(best.usage!.completion_tokens).toBe(drawn.usage!.completion_tokens);
  });

  it('have rows of the prompt: by echo, by id, with more likely tokens', async () => {
    const tokens = prompt(20);
    const rows = tokens.slice(1).map((_, position) => ({ position, top: 3 }));
    const found = await served.engine.submit({ kind: 'score', tokens, rows }).result();
    const echoed = await complete(url, { prompt: tokens, echo: true, logprobs: 3, max_tokens: 2, seed: 1, n: 2 });
    for (const { logprobs } of echoed.choices) {
      expect(logprobs!.token_logprobs.slice(0, tokens.length)).toEqual([
        null,
        ...found.map(({ logProb }) => logProb! + 0),
      ]);
      expect(logprobs!.tokens.length).toBe(tokens.length + 2);
    }
    const asked = { prompt: tokens, prompt_logprobs: 3, max_tokens: 2, seed: 1 };
    const [choice] = (await complete(url, asked)).choices;
    const maps = choice!.prompt_logprobs!;
    expect(maps.length).toBe(tokens.length);
    expect(maps[0]).toBeNull();
    const texts = tokenTexts(served.model.texts.detokenizer);
    for (const [i, { logProb, top }] of found.entries()) {
      const target = tokens[i + 1]!;
      const own = maps[i + 1]!;
      expect(own[target]).toMatchObject({ logprob: logProb! + 0, decoded_token: texts.textOf(target) });
      for (const [rank, each] of top!.entries())
        if (each.token !== target) expect(own[each.token]).toMatchObject({ logprob: each.logProb + 0, rank: rank + 1 });
    }
    // Rows of a prompt do not change what follows it.
    expect(choice!.text).toBe((await complete(url, { prompt: tokens, max_tokens: 2, seed: 1 })).choices[0]!.text);
    const streamed = joined(
      await chunks(url, { prompt: tokens, echo: true, logprobs: 3, max_tokens: 2, seed: 1, n: 2 }),
    );
    expect(streamed).toEqual(echoed.choices);
  });

  it('show the likelier of two tokens with one text', () => {
    // Neither is a token of the vocabulary, so that both are written as nothing.
    const lists = new LogProbLists(tokenTexts(served.model.texts.detokenizer), false);
    lists.add({ token: 5000, logProb: -3 }, [{ token: 5001, logProb: -1 }], 0);
    lists.add({ token: 5000, logProb: -1 }, [{ token: 5001, logProb: -3 }], 0);
    const { top_logprobs: tops } = JSON.parse(LogProbLists.json([lists])) as LogProbs;
    expect(tops).toEqual([{ '': -1 }, { '': -1 }]);
  });

  it('find prompts again, and say so', async () => {
    const tokens = prompt(60);
    await complete(url, { prompt: tokens, max_tokens: 1 });
    const { usage } = await complete(url, { prompt: tokens, max_tokens: 1 });
    expect(usage!.prompt_tokens_details.cached_tokens).toBeGreaterThan(40);
  });

  it('end where the client goes', async () => {
    const before = served.engine.countsOf().calls;
    const gone = new AbortController();
    const response = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: prompt(1), max_tokens: 390, ignore_eos: true, stream: true }),
      signal: gone.signal,
    });
    const reader = response.body!.getReader();
    await reader.read();
    gone.abort();
    await reader.closed.catch(() => undefined);
    await expect.poll(() => served.client.active).toBe(0);
    expect(served.engine.countsOf().calls - before).toBeLessThan(390);
  });
});
