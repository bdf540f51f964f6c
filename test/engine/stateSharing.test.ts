/** What snapshots of recurrent states spare, and that they go where rows are needed. */
import { describe, expect, it } from 'vitest';
import { searchBeams } from '../../engine/beams.js';
import { Engine } from '../../engine/engine.js';
import type { GenerateRequest, RowRequest } from '../../engine/request.js';
import { drafterOf } from '../../draft/drafter.js';
import { mix, PATH_VOCAB, type PathModel, pathModel, type PathModelOptions } from '../support/pathModel.js';

const tokens = (seed: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => mix(seed, i) % PATH_VOCAB);
const HEAD = tokens(1, 64);

function engineOn(options: PathModelOptions): { readonly model: PathModel; readonly engine: Engine } {
  const model = pathModel(options);
  return { model, engine: Engine.of(model) };
}

/** The tokens that steps computed while `work` was done. */
async function computedIn(model: PathModel, work: () => Promise<unknown>): Promise<number> {
  const before = model.totals.tokens;
  await work();
  return model.totals.tokens - before;
}

const score = (engine: Engine, text: readonly number[], rows: readonly RowRequest[]) =>
  engine.submit({ kind: 'score', tokens: text, rows }).result();

/** What a request gives a model that shares nothing. */
const alone = async (request: GenerateRequest) => (await Engine.of(pathModel()).generate(request)).tokens;

describe('a text that begins as another one', () => {
  it('goes on where the other has ended', async () => {
    const { model, engine } = engineOn({ states: 8 });
    const first = await engine.generate({ prompt: HEAD.slice(0, 50), maxNewTokens: 10 });
    const prompt = [...HEAD.slice(0, 50), ...first.tokens.map(({ token }) => token), ...tokens(2, 5)];
    let second: unknown;
    const own = { prompt, maxNewTokens: 4 };
    // The last token of the first text was not computed, and the last of the second is not.
    expect(await computedIn(model, async () => (second = (await engine.generate(own)).tokens))).toBe(1 + 5 + 3);
    expect(second).toEqual(await alone(own));
    expect(model.stated.errors).toEqual([]);
  });

  it('goes on at the border before the end of the prompt that both have, once', async () => {
    const { model, engine } = engineOn({ states: 8 });
    const prompt = HEAD.slice(0, 50);
    await engine.generate({ prompt, maxNewTokens: 10 });
    expect(await computedIn(model, () => engine.generate({ prompt, maxNewTokens: 1 }))).toBe(2);
  });

  it('computes what was parted from before once again, and leaves a snapshot there for others', async () => {
    const { model, engine } = engineOn({ states: 8 });
    const ask = (seed: number) => () => engine.generate({ prompt: [...HEAD, ...tokens(seed, 20)], maxNewTokens: 1 });
    expect(await computedIn(model, ask(2))).toBe(84);
    expect(await computedIn(model, ask(3))).toBe(84);
    expect(await computedIn(model, ask(4))).toBe(20);
    expect(await computedIn(model, ask(5))).toBe(20);
  });

  it('waits for the snapshot where it will part from one that is computed', async () => {
    const { model, engine } = engineOn({ states: 20 });
    const requests = [2, 3, 4, 5].map((seed) => ({ prompt: [...HEAD, ...tokens(seed, 20)], maxNewTokens: 3 }));
    const found: unknown[] = [];
    const work = async () =>
      found.push(
        ...(await Promise.all(requests.map((request) => engine.generate(request)))).map((each) => each.tokens),
      );
    expect(await computedIn(model, work)).toBe(64 + 4 * (20 + 2));
    expect(found).toEqual(await Promise.all(requests.map(alone)));
  });

  it('computes one token of a prompt that others have as well', async () => {
    const { model, engine } = engineOn({ states: 20 });
    const request = { prompt: HEAD.slice(0, 60), maxNewTokens: 1, sampling: { temperature: 1, seed: 4 } };
    const work = () =>
      Promise.all(
        Array.from({ length: 5 }, (_, seed) => engine.generate({ ...request, sampling: { temperature: 1, seed } })),
      );
    expect(await computedIn(model, work)).toBe(60 + 4);
  });

  it('begins again where rows are not kept for snapshots', async () => {
    const { model, engine } = engineOn({ states: 1 });
    const ask = (seed: number) => () => engine.generate({ prompt: [...HEAD, ...tokens(seed, 20)], maxNewTokens: 1 });
    for (const seed of [2, 3, 4]) expect(await computedIn(model, ask(seed))).toBe(84);
    // The only row is where the last text has ended.
    const prompt = [...HEAD, ...tokens(4, 20), ...tokens(9, 7)];
    expect(await computedIn(model, () => engine.generate({ prompt, maxNewTokens: 1 }))).toBe(7);
    expect(model.stated.errors).toEqual([]);
  });

  it('has its rows answered by what is known of them, as far as it need not compute them again', async () => {
    const { model, engine } = engineOn({ states: 8 });
    const text = HEAD.slice(0, 40);
    const rows = [15, 20, 31].map((position) => ({ position, target: text[position + 1]! }));
    const first = await score(engine, text, rows);
    const work = async () => expect(await score(engine, text, rows)).toEqual(first);
    // It ends with the last row that is asked for. Those behind the border before that are computed again.
    expect(await computedIn(model, work)).toBe(16);
    // Another target after the last token of a page: states behind that are of no use.
    await engine.generate({ prompt: text, maxNewTokens: 1 });
    const other = [
      { position: 31, target: 3 },
      { position: 39, target: 5 },
    ];
    let found: unknown;
    expect(await computedIn(model, async () => (found = await score(engine, text, other)))).toBe(24);
    expect(found).toEqual(await score(Engine.of(pathModel()), text, other));
    expect(model.stated.errors).toEqual([]);
  });
});

describe('rows of states', () => {
  it('are given to those that come first, and go on from where they were taken', async () => {
    const { model, engine } = engineOn({ states: 4 });
    const slow = engine.generate({ prompt: HEAD.slice(0, 40), maxNewTokens: 30, priority: 1 });
    await new Promise((resolve) => setTimeout(resolve, 5));
    const others = [2, 3, 4, 5].map((seed) => engine.generate({ prompt: tokens(seed, 20), maxNewTokens: 8 }));
    expect((await slow).tokens).toEqual(await alone({ prompt: HEAD.slice(0, 40), maxNewTokens: 30 }));
    await Promise.all(others);
    expect(engine.statsOf().preemptions).toBeGreaterThan(0);
    expect(model.stated.errors).toEqual([]);
  });

  it('of drafts that are right become those of the text, and nothing is computed again', async () => {
    const { model, engine } = engineOn({ states: 12 });
    const prompt = HEAD.slice(0, 20);
    const text = (await alone({ prompt, maxNewTokens: 40 })).map(({ token }) => token);
    const drafts = drafterOf((all) => text.slice(all.length - 20, all.length - 20 + 3));
    const computed = await computedIn(model, async () => {
      expect((await engine.generate({ prompt, maxNewTokens: 40, drafts })).tokens.map(({ token }) => token)).toEqual(
        text,
      );
    });
    expect(computed).toBe(20 + 39);
    expect(engine.statsOf().preemptions).toBe(0);
    expect(model.stated.errors).toEqual([]);
  });

  it('let a search of beams compute a few tokens of each path', async () => {
    const { model, engine } = engineOn({ states: 30 });
    const prompt = HEAD.slice(0, 50);
    const request = { prompt, maxNewTokens: 12, beams: 3 };
    let found: unknown;
    const computed = await computedIn(model, async () => (found = await searchBeams(engine, request)));
    expect(found).toEqual(await searchBeams(Engine.of(pathModel()), request));
    // Whole texts would be 1,900 tokens.
    expect(computed).toBeLessThan(50 + 36 * 9);
    expect(model.stated.errors).toEqual([]);
  });
});
