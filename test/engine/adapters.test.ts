/** Requests with adapters: slots, loads and pages, on a model whose every token depends on what its slot holds. */
import { describe, expect, it } from 'vitest';
import type { AdapterRef } from '../../engine/device.js';
import { Engine } from '../../engine/engine.js';
import type { RequestOptions } from '../../engine/request.js';
import { adapterOf, type PathAdapterOptions } from '../support/pathAdapters.js';
import { PATH_VOCAB, type PathModel, pathModel, type PathModelOptions } from '../support/pathModel.js';

const [A, B, C, D] = ['a', 'b', 'c', 'd'].map((name) => adapterOf(name)) as [
  AdapterRef,
  AdapterRef,
  AdapterRef,
  AdapterRef,
];
const PROMPT = Array.from({ length: 40 }, (_, i) => (7 * i) % PATH_VOCAB);

interface Opened {
  readonly engine: Engine;
  readonly model: PathModel;
  readonly text: (adapter?: AdapterRef, asked?: Asked) => Promise<readonly number[]>;
  /** Paths of what was loaded, in order. */
  readonly loads: () => string;
}
type Asked = { readonly prompt?: readonly number[]; readonly count?: number } & RequestOptions;

function open(adapters?: Partial<PathAdapterOptions>, options: PathModelOptions = {}): Opened {
  const model = pathModel({ ...options, adapters: { count: 2, ...adapters } });
  const engine = new Engine();
  engine.load('m', { replicas: [model], vocabSize: PATH_VOCAB });
  const text: Opened['text'] = async (adapter, { prompt = PROMPT, count = 4, ...asked } = {}) => {
    const { tokens } = await engine.generate({ prompt, maxNewTokens: count, adapter, ...asked });
    return tokens.map(({ token }) => token);
  };
  return { engine, model, text, loads: () => model.slots!.loads.map(({ path }) => path.at(-1)).join('') };
}

/** What a request gets that is the only one. */
const alone = (adapter?: AdapterRef, asked?: Asked): Promise<readonly number[]> => open().text(adapter, asked);
const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

describe('adapters of requests', () => {
  it('give texts of their own, beside each other and beside the base', async () => {
    const { text, model } = open();
    const own = await Promise.all([undefined, A, B, C].map((adapter) => alone(adapter)));
    expect(new Set(own.map(String)).size).toBe(4);
    expect(await Promise.all([undefined, A, B, C].map((adapter) => text(adapter)))).toEqual(own);
    expect(model.slots!.errors).toEqual([]);
  });

  it('change nothing of messages without them', async () => {
    const { engine, text } = open();
    const messages: unknown[] = [];
    const { model } = engine['models'].get('m')!.replicas['generators'][0]!;
    const { step } = model;
    Object.assign(model, { step: (message: object) => (messages.push(message), step(message as never)) });
    await text();
    expect(messages.every((message) => !('adapter' in (message as object)))).toBe(true);
    await text(A);
    expect(messages.at(-1)).toMatchObject({ adapter: new Int32Array([0]) });
  });

  it('are computed beside the base while they load', async () => {
    let arrive = (): void => undefined;
    const { text, model } = open({ wait: () => new Promise((resolve) => (arrive = resolve)) });
    const late = text(A);
    expect(await text(undefined, { count: 20 })).toHaveLength(20);
    expect(model.totals.steps).toBe(20);
    arrive();
    expect(await late).toEqual(await alone(A));
  });

  it.each([
    ['a hash that is none', { ...A, hash: 'A' }, /is no hash of an adapter/],
    ['a rank above that of slots', { ...A, rank: 17 }, /rank 17; slots of model "m" hold rank 16 at most/],
  ])('are refused for %s', (_, adapter, message) => {
    const { engine } = open();
    expect(() => engine.submit({ kind: 'generate', prompt: [1], maxNewTokens: 1, adapter })).toThrow(message);
  });

  it('are refused by a model without slots', () => {
    const engine = Engine.of(pathModel());
    expect(() => engine.submit({ kind: 'score', tokens: [1, 2], rows: [{ position: 0 }], adapter: A })).toThrow(
      /model "model" was opened without slots for adapters/,
    );
  });

  it('fail alone where they cannot be loaded, and are tried again', async () => {
    let isThere = false;
    const failing = (adapter: AdapterRef): string | undefined =>
      adapter === A && !isThere ? '/adapters/a is no longer there' : undefined;
    const { text, model } = open({ count: 1, fails: failing });
    const all = await Promise.allSettled([text(A), text(B), text(A), text()]);
    expect(all.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'rejected', 'fulfilled']);
    expect((all[0] as PromiseRejectedResult).reason).toMatchObject({ message: '/adapters/a is no longer there' });
    isThere = true;
    expect(await text(A)).toEqual(await alone(A));
    expect(model.slots!.errors).toEqual([]);
  });
});

describe('slots', () => {
  it('are loaded once for all requests of an adapter', async () => {
    const { text, loads } = open();
    await Promise.all(Array.from({ length: 30 }, (_, i) => text(i % 2 === 0 ? A : B, { prompt: [i] })));
    expect(loads()).toBe('ab');
  });

  it('go from the least recently used adapter', async () => {
    const { text, loads, model } = open();
    for (const adapter of [A, B, A, C, A, B, C]) await text(adapter);
    // C takes B's, B takes C's, C takes A's.
    expect(loads()).toBe('abcbc');
    expect(model.slots!.contents).toEqual([C.path, B.path]);
  });

  it('are not taken from requests that come together with one that needs a slot', async () => {
    const { text, loads } = open();
    await Promise.all([text(A), text(B)]);
    await Promise.all([text(C), text(A), text(B)]);
    expect(loads()).toBe('abc');
  });

  it('are kept while a text is written, and texts of other adapters wait without holding anybody up', async () => {
    const { text, loads } = open({ count: 1 });
    const order: string[] = [];
    const long = text(A, { count: 60 }).then(() => order.push('a'));
    await turns(6);
    const other = text(B).then(() => order.push('b'));
    await text().then(() => order.push('base'));
    await text(A, { count: 2 }).then(() => order.push('a, later'));
    await Promise.all([long, other]);
    expect([order, loads()]).toEqual([['base', 'a, later', 'a', 'b'], 'ab']);
  });

  it('come to an adapter whose text waits, however many others ask for those that are there', async () => {
    const { text } = open({ count: 2 });
    let begun = 0;
    let isOver = false;
    const stream = async (adapter: AdapterRef, i: number): Promise<void> => {
      while (!isOver && begun < 400) {
        begun++;
        await text(adapter, { prompt: [begun % 90], count: 9 + i });
      }
    };
    const streams = [A, A, A, B, B, B].map(stream);
    await turns(20);
    const before = begun;
    expect(await text(C)).toEqual(await alone(C));
    const overtaking = begun - before;
    isOver = true;
    await Promise.all(streams);
    expect(overtaking).toBeGreaterThan(10);
    expect(overtaking).toBeLessThan(60);
  });

  it('are taken from requests of a lower priority, and from those whose readers are behind', async () => {
    const { engine, text, loads } = open({ count: 1 });
    const low = text(A, { count: 80, priority: 1 });
    await turns(8);
    expect([await text(B), loads()]).toEqual([await alone(B), 'aba']);
    expect(await low).toEqual(await alone(A, { count: 80 }));
    const behind = engine.submit({ kind: 'generate', prompt: PROMPT, maxNewTokens: 30, adapter: C, maxHeld: 4 });
    await turns(30);
    expect([await text(D), loads()]).toEqual([await alone(D), 'abacd']);
    expect((await behind.result())[0]!.tokens.map(({ token }) => token)).toEqual(await alone(C, { count: 30 }));
    expect(loads()).toBe('abacdc');
  });

  it('are empty in another process, and are loaded again', async () => {
    const { text, model, loads } = open({}, { lostAt: new Set([5]) });
    const all = await Promise.all([text(A, { count: 10 }), text(B, { count: 10 }), text(undefined, { count: 10 })]);
    expect(all).toEqual(await Promise.all([A, B, undefined].map((adapter) => alone(adapter, { count: 10 }))));
    expect([loads(), model.slots!.errors]).toEqual(['abab', []]);
  });

  it('are loaded again where the device ends meanwhile, until an adapter has ended three', async () => {
    const once = open({ lostAt: new Set([0]) });
    expect(await once.text(A)).toEqual(await alone(A));
    expect(once.loads()).toBe('aa');
    const always = open({ lostAt: new Set([0, 1, 2]) });
    await expect(always.text(A)).rejects.toThrow(/ended 3 devices/);
    expect(await always.text()).toEqual(await alone());
    expect(await always.text(B)).toEqual(await alone(B));
  });

  it('blame what they load as well as the step beside it, where the device ends', async () => {
    const { text } = open({ lostAt: new Set([0, 1, 2]) });
    const long = text(undefined, { count: 100 }).catch(() => undefined);
    await turns(5);
    await expect(text(A)).rejects.toThrow(/ended 3 devices/);
    await long;
    expect(await text()).toEqual(await alone());
  });
});

describe('pages', () => {
  it('are shared by what adapters contain, and by nothing else', async () => {
    const { engine, text, model } = open();
    const found = async (adapter?: AdapterRef): Promise<number> => {
      const { foundTokens, tokens } = await engine.generate({ prompt: PROMPT, maxNewTokens: 1, adapter });
      expect(tokens.map(({ token }) => token)).toEqual(await alone(adapter, { count: 1 }));
      return foundTokens;
    };
    expect([await found(), await found(A), await found(B)]).toEqual([0, 0, 0]);
    expect([await found(), await found(A), await found(B)]).toEqual([39, 39, 39]);
    // The same content under another name; another content under the same name.
    expect(await found(adapterOf('a', '/copies/of-a'))).toBe(39);
    expect(await found(adapterOf('a, trained again', A.path))).toBe(0);
    expect(await text(A)).toEqual(await alone(A));
    expect(model.slots!.errors).toEqual([]);
  });

  it('are given up for one adapter, and stay for others', async () => {
    const { engine } = open();
    const ask = (adapter?: AdapterRef) => engine.generate({ prompt: PROMPT, maxNewTokens: 1, adapter });
    for (const adapter of [undefined, A, B]) await ask(adapter);
    engine.discard({ tokens: PROMPT, from: 0, adapter: A });
    const found = [];
    for (const adapter of [undefined, A, B]) found.push((await ask(adapter)).foundTokens);
    expect(found).toEqual([39, 0, 39]);
  });
});

describe('an adapter that nobody asks for any more', () => {
  it('leaves its slot when its last request has ended, and is loaded again if it is asked for again', async () => {
    const { engine, text, loads, model } = open();
    await text(B);
    const long = text(A, { count: 30 });
    await turns(10);
    let isOver = false;
    const over = engine.unloadAdapter(A.hash).then(() => (isOver = true));
    await text(B);
    expect(isOver).toBe(false);
    expect(await long).toEqual(await alone(A, { count: 30 }));
    await over;
    expect(engine.statsOf().adapters!.adapters).toEqual([{ hash: B.hash, loaded: 1, running: 0, waiting: 0 }]);
    // B is used less recently, and stays.
    await text(B);
    await text(C);
    expect(model.slots!.contents).toEqual([B.path, C.path]);
    expect(await text(A)).toEqual(await alone(A));
    expect(loads()).toBe('baca');
  });

  it('stays for a request that came meanwhile', async () => {
    const { engine, text } = open({ count: 1 });
    const first = text(A, { count: 10 });
    const over = engine.unloadAdapter(A.hash);
    await turns(6);
    const second = text(A, { count: 40 });
    await first;
    await over;
    expect(engine.statsOf().adapters).toMatchObject({ adapters: [{ hash: A.hash, loaded: 1 }], evictions: 0 });
    expect(await second).toEqual(await alone(A, { count: 40 }));
  });
});

describe('stats', () => {
  it('say what is loaded, and who runs and waits', async () => {
    const { engine, text } = open({ count: 1, rank: 32 });
    expect(engine.statsOf().adapters).toEqual({
      ...{ slots: 1, rank: 32, adapters: [], loads: 0, failures: 0, evictions: 0 },
    });
    const texts = [A, A, B, undefined].map((adapter) => text(adapter, { count: 20 }));
    await turns(10);
    const stats = engine.statsOf();
    expect(structuredClone(stats)).toEqual(stats);
    expect([stats.running, stats.waiting]).toEqual([3, 1]);
    const expected = [
      { hash: A.hash, loaded: 1, running: 2, waiting: 0 },
      { hash: B.hash, loaded: 0, running: 0, waiting: 1 },
    ];
    expect(stats.adapters).toMatchObject({ loads: 1, adapters: expected.sort((a, b) => (a.hash < b.hash ? -1 : 1)) });
    await Promise.all(texts);
    expect(engine.statsOf().adapters).toMatchObject({ loads: 2, evictions: 1, failures: 0 });
    expect(Engine.of(pathModel()).statsOf()).not.toHaveProperty('adapters');
  });
});

describe('replicas', () => {
  it('are asked that have the adapter, while that is not too much for them', async () => {
    const models = [1, 2].map(() => pathModel({ adapters: { count: 1 } }));
    const engine = new Engine();
    engine.load('m', { replicas: models });
    const ask = (adapter?: AdapterRef, prompt = PROMPT) => engine.generate({ prompt, maxNewTokens: 4, adapter });
    await Promise.all([ask(A), ask(B)]);
    for (let i = 0; i < 4; i++) await Promise.all([ask(B, [i]), ask(A, [i]), ask(undefined, [i])]);
    expect(models.map(({ slots }) => slots!.loads.map(({ path }) => path))).toEqual([[A.path], [B.path]]);
    // More than a load costs is shared out.
    const many = Array.from({ length: 60 }, (_, i) =>
      ask(
        A,
        Array.from({ length: 60 }, (_each, k) => (i + k) % 90),
      ),
    );
    await Promise.all(many);
    expect(models[1]!.slots!.contents).toEqual([A.path]);
    for (const { slots } of models) expect(slots!.errors).toEqual([]);
  });
});
