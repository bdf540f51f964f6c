/** Rows of given tokens: any, several at a position, computed or found beside pages; and beside each other. */
import { describe, expect, it } from 'vitest';
import { Engine } from '../../engine/engine.js';
import type { RowRequest } from '../../engine/request.js';
import { mix, PATH_VOCAB, pathModel, type PathModelOptions, randomNumbers } from '../support/pathModel.js';

const tokensOf = (seed: number, count: number): readonly number[] =>
  Array.from({ length: count }, (_, i) => mix(seed, i) % PATH_VOCAB);

const engineOf = (options: PathModelOptions = {}) => {
  const model = pathModel(options);
  const engine = new Engine();
  engine.load('model', { replicas: [model], vocabSize: PATH_VOCAB });
  const score = (tokens: readonly number[], rows: readonly RowRequest[]) =>
    engine.submit({ kind: 'score', tokens, rows }).result();
  return { engine, model, score };
};

/** Rows in any order, some of them alike. */
function randomRows(seed: number, length: number, count: number): readonly RowRequest[] {
  const random = randomNumbers(seed);
  const below = (most: number): number => Math.floor(random() * most);
  return Array.from({ length: count }, () => ({
    position: below(length),
    ...(below(3) === 0 ? { target: below(PATH_VOCAB) } : {}),
    ...(below(4) === 0 ? { top: 1 + below(5) } : {}),
  }));
}

const everyRow = (length: number): readonly RowRequest[] =>
  Array.from({ length: length - 1 }, (_, position) => ({ position }));

describe('rows', () => {
  it.each<readonly [string, PathModelOptions]>([
    ['a large memory', {}],
    ['small steps', { limits: { tokens: 11, rows: 7, filtered: 3, entries: 100 } }],
    ['few pages, and steps that overlap', { cacheTokens: 16 * 10, limits: { keptRows: 64, tokens: 30 } }],
    ['a device that ends', { lostAt: new Set([2, 9]) }],
  ])('are what they are alone, with %s', async (_name, options) => {
    const requests = Array.from({ length: 10 }, (_, i) => {
      const tokens = [...tokensOf(i % 2, 3 + 9 * i), ...tokensOf(50 + i, 5)];
      return { tokens, rows: randomRows(i, tokens.length, 1 + 3 * i) };
    });
    const alone = [];
    for (const { tokens, rows } of requests)
      for (const row of rows) alone.push(...(await engineOf().score(tokens, [row])));
    const { engine, score } = engineOf(options);
    const generated = engine.submit({ kind: 'generate', prompt: tokensOf(0, 30), maxNewTokens: 40 }).result();
    for (let turn = 0; turn < 2; turn++) {
      const all = await Promise.all(requests.map(({ tokens, rows }) => score(tokens, rows)));
      expect(all.flat()).toEqual(alone);
    }
    expect((await generated)[0]!.reason).toBe('length');
    await engine.close();
  });

  it('are asked for by position and target, with the most likely token and more of them', async () => {
    const { score } = engineOf();
    const tokens = tokensOf(4, 20);
    const rows = [{ position: 19 }, { position: 3 }, { position: 3, target: 5, top: 2 }, { position: 19, target: 1 }];
    const [last, follows, other, behind] = await score(tokens, rows);
    expect(last).toEqual({ position: 19, argmax: expect.anything() });
    expect(follows).toMatchObject({ position: 3, logProb: expect.any(Number), isArgmax: false });
    expect(other!.logProb).not.toBe(follows!.logProb);
    expect(other!.argmax).toEqual(follows!.argmax);
    expect(other!.top!.length).toBe(2);
    expect(behind).toMatchObject({ position: 19, logProb: expect.any(Number) });
  });

  it('are computed of no more tokens than needed, and not again where they were', async () => {
    const { model, score } = engineOf();
    const tokens = tokensOf(9, 70);
    const computed = async (rows: readonly RowRequest[], of = tokens): Promise<number> => {
      const before = model.totals.tokens;
      await score(of, rows);
      return model.totals.tokens - before;
    };
    expect(await computed([{ position: 20 }])).toBe(21);
    // What follows a token that is the last of the request is not known to be what follows it in another.
    expect(await computed(everyRow(70))).toBe(69);
    expect(await computed(everyRow(70))).toBe(1);
    expect(await computed([{ position: 44 }, { position: 12 }])).toBe(0 + 1);
    // Another target, or more tokens than the most likely one, lie beside no page.
    expect(await computed([{ position: 44, target: 3 }])).toBe(1);
    expect(await computed([{ position: 30, top: 3 }, { position: 40 }])).toBe(11);
    // One that begins alike is computed from where it differs.
    const other = [...tokens.slice(0, 53), ...tokensOf(77, 9)];
    expect(await computed(everyRow(62), other)).toBe(62 - 1 - 52);
  });

  it('are known of what was generated', async () => {
    const { engine, model, score } = engineOf();
    const prompt = tokensOf(2, 21);
    const [text] = await engine.submit({ kind: 'generate', prompt, maxNewTokens: 40 }).result();
    const before = model.totals.tokens;
    const tokens = [...prompt, ...text!.tokens.map(({ token }) => token)];
    const rows = Array.from({ length: 40 }, (_, i) => ({ position: 20 + i }));
    const scores = await score(tokens, rows);
    expect(scores.map(({ logProb, isArgmax }) => [logProb, isArgmax])).toEqual(
      text!.tokens.map(({ logProb }) => [logProb, true]),
    );
    expect(model.totals.tokens - before).toBe(1);
  });

  it('go with their pages, and are computed again', async () => {
    const { model, score } = engineOf({ cacheTokens: 16 * 8 });
    const [first, second] = [tokensOf(1, 100), tokensOf(2, 100)];
    const wanted = await score(first, everyRow(100));
    const before = model.totals.tokens;
    await score(second, everyRow(100));
    expect(await score(first, everyRow(100))).toEqual(wanted);
    expect(model.totals.tokens - before).toBeGreaterThan(99 + 64);
  });

  it('are refused in one line where they are not computed', () => {
    const { score } = engineOf();
    const tokens = tokensOf(1, 10);
    const refused = (rows: readonly RowRequest[]) => {
      try {
        void score(tokens, rows);
        return undefined;
      } catch (error) {
        return error instanceof Error ? error.message : error;
      }
    };
    expect(refused([{ position: 10 }])).toBe('rows: position 10 is outside the 10 tokens that are given');
    expect(refused([{ position: 2, target: 97 }])).toBe('token 97: the model has 97 tokens');
    expect(refused([{ position: 2, top: 21 }])).toBe('rows: top: 21: expected a whole number from 0 to 20');
    expect(refused(Array.from({ length: 33 }, () => ({ position: 4 })))).toBe('rows: more than 32 rows at position 4');
  });

  it('that are filtered do not starve: 600 texts, of which a step chooses 16 from logits', async () => {
    const { engine, model } = engineOf({ cacheTokens: 16 * 2000, limits: { filtered: 16, tokens: 700 } });
    const requests = Array.from({ length: 600 }, (_, i) => {
      const prompt = tokensOf(i, 3);
      const sampling = { temperature: 1, topP: 0.9, seed: i };
      return engine.submit({ kind: 'generate', prompt, maxNewTokens: 4, sampling });
    });
    const steps: number[] = [];
    await Promise.all(requests.map((request) => request.result().then(() => steps.push(model.totals.steps))));
    expect(model.totals.filtered).toBe(16);
    // 600 texts of 4 tokens are 2,400 rows: as many steps as have room for them, about.
    expect(model.totals.steps).toBeLessThan((600 * 4) / 16 + 20);
    await engine.close();
  });
});
