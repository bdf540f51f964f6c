/** Requests that come and go, on models that count. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { Engine, QueueFull } from '../../engine/engine.js';
import type { RequestHandle } from '../../engine/handle.js';
import type { ContinuationRequest, Generated, RequestEvent } from '../../engine/request.js';
import { type Counting, counting, type CountingOptions, range } from './counting.js';

function engineOf(options: CountingOptions = {}, engineOptions = {}): Counting & { readonly engine: Engine } {
  const model = counting(options);
  const engine = new Engine(engineOptions);
  engine.load('m', { replicas: [model.model] });
  return { ...model, engine };
}

const generate = (engine: Engine, first: number, rest: Partial<ContinuationRequest> = {}): RequestHandle<'generate'> =>
  engine.submit({ kind: 'generate', prompt: [first], maxNewTokens: 10, ...rest });
const idsOf = ({ tokens }: Generated): number[] => tokens.map(({ token }) => token);
const textOf = async (handle: RequestHandle<'generate'>): Promise<[string, number[]]> => {
  const [text] = await handle.result();
  return [text!.reason, idsOf(text!)];
};
const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await nextTurn();
};

afterEach(() => void vi.useRealTimers());

describe('events of a request', () => {
  it('are its tokens and its end, in order', async () => {
    const { engine } = engineOf();
    const events: RequestEvent[] = [];
    for await (const event of generate(engine, 5, { maxNewTokens: 3 })) events.push(event);
    expect(events.map((event) => (event.kind === 'token' ? event.token.token : event.kind))).toEqual([6, 7, 8, 'end']);
  });

  it('are its end alone where it is quiet, and it ends at the token that its asker names', async () => {
    const { engine } = engineOf();
    const seen: number[] = [];
    const endsAt = (token: number): boolean => seen.push(token) === 3;
    const events: RequestEvent[] = [];
    for await (const event of generate(engine, 5, { isQuiet: true, endsAt })) events.push(event);
    expect(events).toMatchObject([
      { kind: 'end', result: { reason: 'stop', tokens: [{ token: 6 }, { token: 7 }, { token: 8 }] } },
    ]);
    expect(seen).toEqual([6, 7, 8]);
  });

  it('come from all of its continuations, which share the pages of the prompt', async () => {
    const { engine } = engineOf();
    const prompt = range(0, 33);
    const texts = await generate(engine, 0, { prompt, n: 3, maxNewTokens: 2 }).result();
    expect(texts.map(idsOf)).toEqual([1, 2, 3].map(() => [33, 34]));
    expect(texts.map(({ foundTokens }) => foundTokens)).toEqual([0, 32, 32]);
  });

  it('stop their own request while their reader is slow, and no step of others', async () => {
    const { engine } = engineOf();
    const slow = generate(engine, 1, { maxNewTokens: 100, maxHeld: 4 });
    expect(await textOf(generate(engine, 500, { maxNewTokens: 50 }))).toEqual(['length', range(501, 50)]);
    // Its sequence keeps its pages, and has computed four tokens; it goes on as they are read.
    const { computedTokens } = engine.countsOf();
    expect(computedTokens).toBe(4 + 50);
    const ids: number[] = [];
    for (let events = await slow.read(); events.length > 0; events = await slow.read()) {
      expect(events.length).toBeLessThanOrEqual(5);
      for (const event of events) if (event.kind === 'token') ids.push(event.token.token);
    }
    expect(ids).toEqual(range(2, 100));
    expect(engine.countsOf().computedTokens).toBe(150);
  });

  it('leave the pages of a request that nobody reads to others', async () => {
    const { engine } = engineOf({ cacheTokens: 64 });
    const slow = generate(engine, 1, { prompt: range(0, 20), maxNewTokens: 30, maxHeld: 4 });
    await turns(30);
    expect(await textOf(generate(engine, 500, { prompt: range(500, 40), maxNewTokens: 20 }))).toEqual([
      'length',
      range(540, 20),
    ]);
    expect(await textOf(slow)).toEqual(['length', range(20, 30)]);
    expect(engine.countsOf().preemptions).toBe(1);
  });

  it('end for a reader that leaves or throws, and for nobody else', async () => {
    const { engine } = engineOf();
    const other = textOf(generate(engine, 500, { maxNewTokens: 40 }));
    const left = generate(engine, 1, { maxNewTokens: 900 });
    for await (const event of left) if (event.kind === 'token' && event.token.token === 4) break;
    const thrown = generate(engine, 1, { maxNewTokens: 900 });
    const reading = (async () => {
      for await (const event of thrown) if (event.kind === 'token') throw new Error('cannot read this');
    })();
    await expect(reading).rejects.toThrow('cannot read this');
    expect(await other).toEqual(['length', range(501, 40)]);
    for (const handle of [left, thrown]) expect((await textOf(handle))[0]).toBe('aborted');
    await engine.unload('m');
  });

  it('are cut where the reader finds a stop, and what was computed meanwhile is dropped', async () => {
    const { engine, steps } = engineOf({ fails: new Set([9]) });
    const handle = generate(engine, 1, { maxNewTokens: 900 });
    const kinds: (string | number)[] = [];
    await turns(40);
    // It has failed by now, but the reader has not come so far.
    for await (const event of handle) {
      kinds.push(event.kind === 'token' ? event.token.token : event.kind);
      if (event.kind === 'token' && event.token.token === 4) handle.cut(0, 3, 'stop');
    }
    expect(kinds).toEqual([2, 3, 4, 'end']);
    expect(await textOf(handle)).toEqual(['stop', [2, 3, 4]]);
    const before = steps();
    await turns(20);
    expect(steps()).toBe(before);
  });

  it('say what cannot be computed, and others go on', async () => {
    const { engine } = engineOf({ fails: new Set([4]) });
    const other = textOf(generate(engine, 500));
    const events: string[] = [];
    for await (const event of generate(engine, 1)) events.push(event.kind);
    expect(events).toEqual(['token', 'token', 'token', 'failed']);
    await expect(generate(engine, 1).result()).rejects.toThrow('not finite');
    expect(await other).toEqual(['length', range(501, 10)]);
  });
});

describe('a request ends', () => {
  it('by a cancel in every state, and its pages are free within two steps', async () => {
    for (let at = 0; at < 12; at++) {
      const { engine, steps } = engineOf({ cacheTokens: 128, limits: { tokens: 16 } });
      const other = textOf(generate(engine, 500, { maxNewTokens: 30 }));
      // Fills all pages but two; its prompt takes six steps, and what comes next as many.
      const handle = generate(engine, 0, { prompt: range(0, 90), maxNewTokens: 6, maxHeld: 2 });
      await vi.waitUntil(() => steps() >= at, { interval: 0 });
      handle.cancel();
      await turns(1);
      const before = steps();
      const next = await textOf(generate(engine, 700, { prompt: range(700, 90), maxNewTokens: 1 }));
      expect(next).toEqual(['length', [790]]);
      expect(steps() - before).toBeLessThanOrEqual(2 + 6);
      expect((await textOf(handle))[0]).toBe('aborted');
      expect(await other).toEqual(['length', range(501, 30)]);
      expect(engine.countsOf().preemptions).toBe(0);
    }
  });

  it('by its signal, also before it has begun', async () => {
    const { engine, steps } = engineOf();
    const controller = new AbortController();
    const handle = generate(engine, 1, { maxNewTokens: 900, signal: controller.signal });
    await vi.waitUntil(() => steps() >= 3, { interval: 0 });
    controller.abort();
    const [reason, ids] = await textOf(handle);
    expect([reason, ids]).toEqual(['aborted', range(2, ids.length)]);
    expect(await textOf(generate(engine, 1, { signal: controller.signal }))).toEqual(['aborted', []]);
  });

  it('at its deadline, whether it runs, waits or is paused', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
    let goOn = (): void => undefined;
    const onStep = (_: unknown, step: number): Promise<void> | undefined =>
      step === 5 ? new Promise((resolve) => (goOn = resolve)) : undefined;
    const { engine, steps } = engineOf({ cacheTokens: 64, onStep });
    const runs = generate(engine, 1, { prompt: range(0, 40), maxNewTokens: 20, deadline: 50, maxHeld: 900 });
    const paused = generate(engine, 1, { maxNewTokens: 900, maxHeld: 1, deadline: new Date(Date.now() + 50) });
    const waits = generate(engine, 1, { prompt: range(200, 40), deadline: 50 });
    await vi.waitUntil(() => steps() >= 5, { interval: 0 });
    vi.advanceTimersByTime(50);
    goOn();
    for (const handle of [runs, waits, paused]) expect((await textOf(handle))[0]).toBe('deadline');
    expect(await textOf(generate(engine, 5, { deadline: 2 ** 40 }))).toEqual(['length', range(6, 10)]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('requests that wait', () => {
  it('begin in order of priority, then of arrival', async () => {
    const { engine } = engineOf({ cacheTokens: 32 });
    const order: string[] = [];
    const of = (name: string, priority: number): Promise<void> =>
      textOf(generate(engine, 1, { prompt: range(0, 20), maxNewTokens: 5, priority })).then(
        () => void order.push(name),
      );
    await Promise.all([of('first', 1), of('late', 5), of('second', 1), of('urgent', -3), of('normal', 0)]);
    expect(order).toEqual(['urgent', 'normal', 'first', 'second', 'late']);
  });

  it('keep their pages before those of lower priority', async () => {
    const { engine } = engineOf({ cacheTokens: 64 });
    const low = generate(engine, 100, { maxNewTokens: 40, priority: 1 });
    await turns(3);
    const high = generate(engine, 1, { maxNewTokens: 40 });
    const ended: string[] = [];
    await Promise.all([
      textOf(low).then((text) => (ended.push('low'), expect(text).toEqual(['length', range(101, 40)]))),
      textOf(high).then((text) => (ended.push('high'), expect(text).toEqual(['length', range(2, 40)]))),
    ]);
    expect(ended).toEqual(['high', 'low']);
    expect(engine.countsOf().preemptions).toBe(1);
  });

  it('are refused where too many wait', async () => {
    const { engine } = engineOf({}, { queueLimit: 3 });
    const taken = [1, 2, 3].map((first) => textOf(generate(engine, first)));
    expect(() => generate(engine, 4)).toThrow(QueueFull);
    expect(() => generate(engine, 4)).toThrow('submit: 3 wait for the model already, and the limit is 3');
    expect((await Promise.all(taken)).map(([reason]) => reason)).toEqual(['length', 'length', 'length']);
    expect(await textOf(generate(engine, 4))).toEqual(['length', range(5, 10)]);
  });
});
