/** Requests of a search through a server's client: they get what the engine gives, and all of them end. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GenerateError, type RequestEvent } from '../../../engine/request.js';
import { ApiError } from '../../../serve/apiError.js';
import type { ModelClient } from '../../../serve/models.js';
import { ClientAsks } from '../../../serve/search/clientAsk.js';
import { type Served, servedModels } from '../../support/servedModels.js';

const PROMPT = [5, 6, 7, 8, 9];
const asked = { kind: 'generate', model: 'model', prompt: PROMPT, maxNewTokens: 12 } as const;
const drawn = { ...asked, sampling: { temperature: 1, seed: 3 }, n: 2 };

let served: Served;
beforeAll(() => {
  served = servedModels();
});
afterAll(() => served.close());

const gathered = async (events: AsyncIterable<RequestEvent>): Promise<RequestEvent[]> => {
  const all: RequestEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
};
const tokensOf = (events: readonly RequestEvent[], sample = 0): readonly number[] =>
  events.flatMap((event) => (event.kind === 'token' && event.sample === sample ? [event.token.token] : []));
const idle = (): Promise<void> =>
  expect
    .poll(() => [served.client.active, served.engine.statsOf().running, served.engine.statsOf().heldPages])
    .toEqual([0, 0, 0]);

describe('a request of a search', () => {
  it('gets what the engine gives, and is counted', async () => {
    const asks = new ClientAsks(served.client);
    const events = await gathered(asks.ask(drawn));
    const own = await gathered(served.engine.submit(drawn));
    for (const sample of [0, 1]) expect(tokensOf(events, sample)).toEqual(tokensOf(own, sample));
    expect(events.filter(({ kind }) => kind === 'end')).toHaveLength(2);
    const { requests, promptTokens, generatedTokens } = asks.uses.get('model')!;
    expect({ requests, promptTokens, generatedTokens }).toEqual({
      ...{ requests: 1, promptTokens: 2 * PROMPT.length, generatedTokens: 24 },
    });
    await idle();
  });

  it('ends at the token that its asker names, with the tokens before', async () => {
    let count = 0;
    const endsAt = (): boolean => ++count === 3;
    const events = await gathered(new ClientAsks(served.client).ask({ ...asked, maxNewTokens: 200, endsAt }));
    const end = events.at(-1);
    expect(end?.kind === 'end' && [end.result.tokens.length, end.result.reason]).toEqual([3, 'stop']);
    await idle();
  });

  it.each(['its signal', 'a call', 'a reader who leaves'])('is ended by %s', async (by) => {
    const controller = new AbortController();
    const request = new ClientAsks(served.client).ask({ ...asked, maxNewTokens: 300, signal: controller.signal });
    for await (const event of request) {
      if (event.kind !== 'token') continue;
      if (by === 'a reader who leaves') break;
      if (by === 'a call') request.cancel();
      else controller.abort();
    }
    await idle();
  });

  it('is over at once where its signal was aborted before', async () => {
    const signal = AbortSignal.abort();
    const events = await gathered(new ClientAsks(served.client).ask({ ...asked, maxNewTokens: 300, signal }));
    expect(events.at(-1)).toMatchObject({ kind: 'end', result: { reason: 'aborted' } });
    await idle();
  });

  it('waits for room where the queue is full, but for the first of its search', async () => {
    const full = new ApiError(429, 'full', { code: 'queue_full' });
    let refusals = 3;
    const crowded: ModelClient = {
      ...{ models: served.client.models, stats: () => served.client.stats(), checkGrammar: async () => undefined },
      submit: (request, listener) => {
        if (refusals-- <= 0) return served.client.submit(request, listener);
        queueMicrotask(() => listener.onRefused(full));
        return { cancel: () => undefined, cut: () => undefined, acknowledge: () => undefined };
      },
    };
    const asks = new ClientAsks(crowded, 1);
    await expect(gathered(asks.ask(asked))).rejects.toBe(full);
    const [one, two] = await Promise.all([gathered(asks.ask(asked)), gathered(asks.ask(asked))]);
    expect(tokensOf(one)).toHaveLength(12);
    expect(tokensOf(two)).toEqual(tokensOf(one));

    refusals = Infinity;
    const controller = new AbortController();
    const stuck = gathered(asks.ask({ ...asked, signal: controller.signal }));
    await sleep(5);
    controller.abort();
    await expect(stuck).rejects.toBeInstanceOf(ApiError);
  });

  it('fails where others end it, as where the server closes', async () => {
    const own = servedModels();
    const request = new ClientAsks(own.client).ask({ ...asked, maxNewTokens: 300 });
    const reading = gathered(request);
    await expect.poll(() => own.engine.statsOf().running).toBe(1);
    await own.engine.close();
    await expect(reading).rejects.toMatchObject({ status: 503 });
    await own.close();
  });

  it('fails where the engine does', async () => {
    const request = new ClientAsks(served.client).ask({ ...asked, prompt: Array.from({ length: 500 }, () => 5) });
    await expect(gathered(request)).rejects.toThrow(GenerateError);
  });
});
