/** Requests and events that go through a port. */
import { afterEach, describe, expect, it } from 'vitest';
import { MAX_DRAFTS } from '../../../draft/limits.js';
import { QueueFull } from '../../../engine/engine.js';
import { GivenUp, type RequestEvent } from '../../../engine/request.js';
import type { LinkedClient } from '../../../serve/link/client.js';
import { receivedError, sentError } from '../../../serve/link/failures.js';
import type { RunningRequest, ServedRequest } from '../../../serve/models.js';
import { counting, range } from '../../engine/counting.js';
import { pathModel } from '../../support/pathModel.js';
import { type Served, type ServedOptions, servedModels } from '../../support/servedModels.js';

const open: Served[] = [];
const served = (options: ServedOptions = {}): Served => {
  const one = servedModels(options);
  open.push(one);
  return one;
};
afterEach(async () => void (await Promise.all(open.splice(0).map((each) => each.close()))));

interface Reading {
  readonly running: RunningRequest;
  readonly events: RequestEvent[];
  readonly ended: Promise<Error | undefined>;
}

/** Reads a request to its end. `take`: what is done with events; by default they are acknowledged. */
function read(
  client: LinkedClient,
  request: ServedRequest,
  take: (running: RunningRequest, events: readonly RequestEvent[]) => void = (running, { length }) =>
    running.acknowledge(length),
): Reading {
  const events: RequestEvent[] = [];
  const left = new Set(range(0, request.kind === 'generate' ? (request.n ?? 1) : 1));
  let resolve: (error?: Error) => void = () => undefined;
  const ended = new Promise<Error | undefined>((done) => (resolve = done));
  const running = client.submit(request, {
    onEvents: (told) => {
      events.push(...told);
      for (const { kind, sample } of told) if (kind === 'end' || kind === 'failed') left.delete(sample);
      take(running, told);
      if (left.size === 0) resolve();
    },
    onRefused: resolve,
  });
  return { running, events, ended };
}

const generate = (rest: Partial<Extract<ServedRequest, { kind: 'generate' }>> = {}): ServedRequest => ({
  kind: 'generate',
  prompt: [5],
  maxNewTokens: 10,
  ...rest,
});

describe('a request through a port', () => {
  it('has the events that it has in the engine, to the bit', async () => {
    const requests: ServedRequest[] = [
      generate({ n: 3, sampling: { temperature: 1, seed: 7, topLogProbs: 4 } }),
      generate({ prompt: range(1, 40), scoreFrom: 1, maxNewTokens: 4 }),
      { kind: 'score', tokens: range(1, 30), rows: range(0, 30).map((position) => ({ position, top: position % 3 })) },
    ];
    const { client, engine } = served();
    for (const request of requests) {
      const through = read(client, request);
      expect(await through.ended).toBeUndefined();
      const own: RequestEvent[] = [];
      for await (const event of engine.submit(request)) own.push(event);
      const plain = (events: readonly RequestEvent[]) =>
        events
          .map((event) => ({
            ...event,
            ...(event.kind === 'end' ? { result: { ...event.result, foundTokens: 0 } } : {}),
          }))
          .sort((a, b) => a.sample - b.sample);
      expect(plain(through.events)).toEqual(plain(own));
    }
  });

  it('takes fewer steps where its text is expected, and has the same tokens', async () => {
    const request = (rest: Partial<Extract<ServedRequest, { kind: 'generate' }>> = {}) =>
      generate({ prompt: range(1, 40), maxNewTokens: 64, sampling: { temperature: 0.8, seed: 5 }, ...rest });
    const run = async (drafts: ServedOptions['drafts'], prediction?: readonly number[], more = {}) => {
      const device = pathModel({ vocab: 4096 });
      const { client } = served({ device, ...(drafts === undefined ? {} : { drafts }) });
      const asked = request({
        ...more,
        ...(prediction === undefined ? {} : { prediction: Int32Array.from(prediction) }),
      });
      const { events, ended } = read(client, asked);
      expect(await ended).toBeUndefined();
      const tokens = events.flatMap((event) => (event.kind === 'token' ? [event.token] : []));
      return { tokens, steps: device.totals.steps };
    };
    const plain = await run(undefined);
    const text = plain.tokens.map(({ token }) => token);
    const edited = text.toSpliced(20, 1, 7, 8);
    // Without a number, steps are as long as pays on this machine.
    expect((await run({}, text)).tokens).toEqual(plain.tokens);
    const all = { tokens: MAX_DRAFTS };
    expect(await run(all, text)).toEqual({ tokens: plain.tokens, steps: 1 + Math.ceil(63 / (MAX_DRAFTS + 1)) });
    const { tokens, steps } = await run(all, edited);
    expect(tokens).toEqual(plain.tokens);
    expect(steps).toBeLessThan(12);
    // Who serves without drafts does so whatever is asked.
    expect(await run(undefined, text)).toEqual(plain);
    const few = { allowedTokens: range(0, 50) };
    expect(await run(all, text, few)).toEqual(await run(undefined, undefined, few));
  });

  it('has rows of classes', async () => {
    const { client } = served({ device: counting({ isReward: true }).model, kind: 'reward' });
    const { events, ended } = read(client, { kind: 'reward', tokens: [3, 4, 5], positions: [0, 2] });
    expect(await ended).toBeUndefined();
    const rows = events.flatMap((event) =>
      event.kind === 'classes' ? [[event.row.position, ...event.row.logits]] : [],
    );
    expect(rows).toEqual([
      [0, 3, 9],
      [2, 5, 25],
    ]);
  });

  it('ends where it is cut, once, and others of the request go on', async () => {
    const { client } = served({ device: counting().model });
    const request = generate({ n: 2, maxNewTokens: 50 });
    const { events, ended } = read(client, request, (running, told) => {
      running.acknowledge(told.length);
      if (told.some((event) => event.kind === 'token' && event.sample === 0 && event.token.token === 8))
        running.cut(0, 2);
    });
    await ended;
    const ends = events.flatMap((event) => (event.kind === 'end' ? [event] : []));
    expect(ends.map(({ sample, result }) => [sample, result.reason, result.tokens.length])).toEqual([
      [0, 'stop', 2],
      [1, 'length', 50],
    ]);
  });

  it('stops its own sequence while its events are not acknowledged', async () => {
    const { client } = served({ device: counting().model });
    const slow = read(client, generate({ maxNewTokens: 900, maxHeld: 8 }), () => undefined);
    await expect.poll(() => slow.events.length).toBe(8);
    await read(client, generate({ prompt: [400], maxNewTokens: 300 })).ended;
    expect(slow.events).toHaveLength(8);
    expect((await client.stats())[0]).toMatchObject({ running: 0, paused: 1 });
    slow.running.acknowledge(8);
    await expect.poll(() => slow.events.length).toBe(16);
    slow.running.cancel();
    await slow.ended;
    expect(slow.events.at(-1)).toMatchObject({ kind: 'end', result: { reason: 'aborted' } });
    expect(client.active).toBe(0);
  });

  it('is refused with the status of the reason', async () => {
    const { client } = served({ device: counting({ maxLength: 20 }).model, queue: { requests: 2, tokens: 100 } });
    const statusOf = async (request: ServedRequest) => {
      const error = await read(client, request).ended;
      return error !== undefined && 'status' in error ? [error.status, error.message] : undefined;
    };
    expect(await statusOf(generate({ prompt: range(0, 21) }))).toEqual([
      400,
      "A prompt of 21 tokens; the model's context has 20.",
    ]);
    expect(await statusOf(generate({ prompt: [5000] }))).toEqual([400, 'token 5000: the model has 4,096 tokens']);
    const several = read(client, generate({ n: 2 }));
    expect((await statusOf(generate()))?.[0]).toBe(429);
    await several.ended;
    const first = [read(client, generate()), read(client, generate())];
    expect(await statusOf(generate())).toEqual([429, 'Too many requests wait for the model. Try again later.']);
    await Promise.all(first.map(({ ended }) => ended));
    expect(client.waiting).toEqual({ requests: 0, tokens: 0 });
    expect(await statusOf(generate())).toBeUndefined();
  });

  it('fails by an error that names a status', async () => {
    const { client } = served({ device: counting({ fails: new Set([7]) }).model });
    const { events, ended } = read(client, generate());
    await ended;
    expect(events.at(-1)).toMatchObject({ kind: 'failed', error: { status: 500 } });
  });

  it('is told why by the class of the error, which does not cross threads', () => {
    const told = (error: unknown) => {
      const { status, options } = receivedError(structuredClone(sentError(error)));
      return [status, options.code, options.isFinal];
    };
    const nonFinite = Object.assign(new Error('row 3 of layer 2'), { name: 'NonFiniteError' });
    expect(told(nonFinite)).toEqual([500, 'non_finite', true]);
    expect(told(new GivenUp('its steps ended 3 devices'))).toEqual([500, undefined, true]);
    expect(told(new QueueFull('submit: 5 wait'))).toEqual([429, 'queue_full', undefined]);
    expect(told(new TypeError('/a/path of ours'))).toEqual([500, undefined, undefined]);
    expect(sentError(new TypeError('/a/path of ours')).message).not.toContain('/a/path');
  });

  it('ends where its reader throws, and others go on', async () => {
    const { client } = served({ device: counting().model });
    const other = read(client, generate({ prompt: [400], maxNewTokens: 40 }));
    const broken = read(client, generate({ maxNewTokens: 900 }), (running, told) => {
      running.acknowledge(told.length);
      if (told.some(({ kind }) => kind === 'token')) throw new Error('an error of an endpoint');
    });
    await broken.ended;
    expect(broken.events.at(-1)).toMatchObject({ kind: 'failed', error: { status: 500 } });
    await other.ended;
    expect(other.events).toHaveLength(41);
    expect(client.active).toBe(0);
    await expect.poll(async () => (await client.stats())[0]).toMatchObject({ running: 0, waiting: 0, paused: 0 });
  });

  it('fails when the engine is lost', async () => {
    const { client } = served({ device: counting({ onStep: () => new Promise(() => undefined) }).model });
    const { events, ended } = read(client, generate());
    client.close();
    await ended;
    expect(events).toMatchObject([{ kind: 'failed', error: { status: 503 } }]);
  });
});
