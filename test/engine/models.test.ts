/** Models of an engine, kinds of requests, and what is refused with one line. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import type { EngineRequest } from '../../engine/request.js';
import { counting, range } from './counting.js';

const generator = { kind: 'generate', model: 'generator', prompt: [1], maxNewTokens: 10 } as const;

function engineOfTwo() {
  const [a, b] = [counting(), counting({ isReward: true })];
  const closed: string[] = [];
  const engine = new Engine();
  const load = (name: string, { model }: typeof a): void =>
    void engine.load(name, {
      replicas: [model],
      vocabSize: 5000,
      close: () => Promise.resolve(void closed.push(name)),
    });
  load('generator', a);
  load('verifier', b);
  return { engine, a, b, closed, load };
}

describe('models of an engine', () => {
  it('compute side by side', async () => {
    const { engine } = engineOfTwo();
    const [texts, classes] = await Promise.all([
      engine.submit(generator).result(),
      engine.submit({ kind: 'reward', model: 'verifier', tokens: [3, 1, 4, 1, 5], positions: [4, 2, 2] }).result(),
    ]);
    expect(texts[0]!.tokens.map(({ token }) => token)).toEqual(range(2, 10));
    expect(classes.map(({ position, logits }) => [position, ...logits])).toEqual([
      [4, 5, 25],
      [2, 4, 16],
      [2, 4, 16],
    ]);
  });

  it('give the classes of tokens that others had, too', async () => {
    const { engine } = engineOfTwo();
    const reward = { kind: 'reward', model: 'verifier', tokens: range(1, 60), positions: [3, 20, 59] } as const;
    const rows = await engine.submit(reward).result();
    expect(rows.map(({ position, logits }) => [position, ...logits])).toEqual(
      [3, 20, 59].map((position) => [position, position + 1, (position + 1) ** 2]),
    );
    expect(await engine.submit(reward).result()).toEqual(rows);
    expect(await engine.submit({ ...reward, tokens: range(1, 70) }).result()).toEqual(rows);
  });

  it('come and go while others run', async () => {
    const { engine, closed, load } = engineOfTwo();
    const running = engine.submit({ ...generator, maxNewTokens: 100 }).result();
    await engine.unload('verifier');
    expect([engine.names, closed]).toEqual([['generator'], ['verifier']]);
    load('other', counting());
    const [other] = await engine.submit({ ...generator, model: 'other' }).result();
    expect(other!.tokens).toHaveLength(10);
    expect((await running)[0]!.tokens).toHaveLength(100);
    await engine.close();
    expect(closed).toEqual(['verifier', 'generator', 'other']);
  });

  it('are not unloaded while they are in use, unless what is in work may end', async () => {
    const { engine, closed } = engineOfTwo();
    const handle = engine.submit({ ...generator, maxNewTokens: 50 });
    await expect(engine.unload('generator')).rejects.toMatchObject({
      message: 'unload: model "generator" has 1 request in work',
      hint: 'cancel them, or wait for them: await engine.unload("generator", { drain: true })',
    });
    const leaving = engine.unload('generator', { drain: true });
    expect(() => engine.submit(generator)).toThrow('submit: model "generator" is being unloaded');
    expect(closed).toEqual([]);
    expect((await handle.result())[0]).toMatchObject({ reason: 'length' });
    const again = engine.close();
    await leaving;
    expect(closed).toContain('generator');
    await again;
    expect(closed.toSorted()).toEqual(['generator', 'verifier']);
  });

  it('end their requests when the engine is closed', async () => {
    const { engine, closed } = engineOfTwo();
    const handle = engine.submit({ ...generator, maxNewTokens: 900 });
    await engine.close();
    expect((await handle.result())[0]).toMatchObject({ reason: 'aborted' });
    expect(closed.toSorted()).toEqual(['generator', 'verifier']);
    expect(() => engine.submit(generator)).toThrow('submit: the engine is closed');
  });

  it('lose their device alone', async () => {
    const { engine, a, b } = engineOfTwo();
    a.lose(() => Promise.reject(new Error('no driver')));
    const reward = { kind: 'reward', model: 'verifier', tokens: [2, 3], positions: [1] } as const;
    const failing = engine.submit(generator).result();
    await expect(failing).rejects.toThrow('no driver');
    expect((await engine.submit(reward).result())[0]!.logits).toEqual(Float32Array.of(3, 9));
    expect(b.steps()).toBe(1);
  });
});

describe('rows of given tokens', () => {
  it('have log-probabilities, in the order of the request', async () => {
    const { engine } = engineOfTwo();
    const rows = [{ position: 2 }, { position: 0 }, { position: 3 }];
    const score = { kind: 'score', model: 'generator', tokens: [1, 2, 5, 6], rows } as const;
    expect(await engine.submit(score).result()).toEqual([
      { position: 2, logProb: -0, isArgmax: true, argmax: { token: 6, logProb: 0 } },
      { position: 0, logProb: -0, isArgmax: true, argmax: { token: 2, logProb: 0 } },
      { position: 3, argmax: { token: 7, logProb: 0 } },
    ]);
    const positions: number[] = [];
    for await (const event of engine.submit(score)) if (event.kind === 'row') positions.push(event.row.position);
    expect(positions).toEqual([0, 2, 3]);
  });
});

describe('requests that cannot mean anything', () => {
  const cases: readonly (readonly [string, Partial<EngineRequest> & { readonly kind: string }, string])[] = [
    ['an unknown model', { ...generator, model: 'judge' }, 'submit: there is no model "judge"'],
    ['no model where there are two', { ...generator, model: undefined }, 'submit: which model? The engine has'],
    ['a deadline that has passed', { ...generator, deadline: new Date(0) }, 'deadline: 1970-01-01T00:00:00.000Z has'],
    ['no time at all', { ...generator, deadline: 0 }, 'deadline: 0 ms from now has passed'],
    ['a priority between two', { ...generator, priority: 0.5 }, 'priority: 0.5: expected a whole number'],
    ['no place for events', { ...generator, maxHeld: 0 }, 'maxHeld: 0: expected a whole number from 1'],
    ['too many continuations', { ...generator, n: 1000 }, 'n: 1000: expected a whole number from 1 to 128'],
    ['less than no tokens', { ...generator, maxNewTokens: -1 }, 'maxNewTokens: -1: expected a whole number from 0'],
    ['rows from half a token on', { ...generator, scoreFrom: 1.5 }, 'scoreFrom: 1.5: expected a whole number from 1'],
    ['no tokens', { ...generator, prompt: [] }, 'a request without tokens'],
    ['a token that is none of the vocabulary', { ...generator, prompt: [1, 5000] }, 'token 5000: the model has 5,000'],
    ['a bias of such a token', { ...generator, sampling: { logitBias: [[6000, 1]] } }, 'token 6000: the model has 5,0'],
    ['a prompt beyond the context', { ...generator, prompt: range(0, 1001) }, "the model's context has 1000"],
    [
      'rows outside the tokens',
      { kind: 'score', model: 'generator', tokens: [1, 2], rows: [{ position: 2 }] },
      'rows: position 2 is outside the 2 tokens that are given',
    ],
    [
      'class rows of a vocabulary head',
      { kind: 'reward', model: 'generator', tokens: [1], positions: [0] },
      'reward: the model has a vocabulary head, and no classes',
    ],
    ['tokens of a head of classes', { ...generator, model: 'verifier' }, 'the model has a head of 2 classes and gives'],
  ];
  it.each(cases)('are refused with one line: %s', async (_, request, message) => {
    const { engine } = engineOfTwo();
    const other = engine.submit(generator).result();
    expect(() => engine.submit(request as EngineRequest)).toThrow(message);
    expect((await other)[0]!.tokens).toHaveLength(10);
    await engine.unload('generator');
  });
});
