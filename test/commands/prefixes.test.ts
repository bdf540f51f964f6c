/** When beginnings that questions have in common are worth memory for keys and values. */
import { describe, expect, it } from 'vitest';
import type { ModelLoading } from '../../commands/loadModel.js';
import { compileAhead, mayKeepPrefixes, mayNeedCache } from '../../commands/prefixes.js';
import type { ScoreRequest } from '../../commands/runRequest.js';
import { isWorthKeeping } from '../../evaluate/pathOrder.js';

const asking = (contexts: readonly string[]): { readonly context: string }[] =>
  contexts.map((context) => ({ context }));
const SHOTS = 'A question with its answer, which all others see. '.repeat(8);
const tree = { sharing: 'tree' } as const;

describe('prefixes', () => {
  it('are looked at in tokens where texts have much in common', () => {
    expect(mayKeepPrefixes(tree, asking(['one', 'two', 'three'].map((own) => SHOTS + own)))).toBe(true);
    expect(mayKeepPrefixes(tree, asking(['one text', 'another text', 'and others']))).toBe(false);
    expect(mayKeepPrefixes(tree, [])).toBe(false);
  });

  it('are kept or repeated as asked for', () => {
    expect(mayKeepPrefixes({ ...tree, prefixes: 'keep' }, asking(['one', 'two']))).toBe(true);
    expect(mayKeepPrefixes({ ...tree, prefixes: 'repeat' }, asking([SHOTS, SHOTS]))).toBe(false);
    expect(mayKeepPrefixes({ sharing: 'none' }, asking([SHOTS, SHOTS]))).toBe(false);
    expect(() => mayKeepPrefixes({ sharing: 'none', prefixes: 'keep' }, [])).toThrow('have no beginning in common');
  });

  it('are looked at in tokens where a text may be longer than a call, by its bytes', async () => {
    const plan = { functions: [{ interface: { name: 'score' }, capacity: { extents: { T: 64 } } }] };
    let compiled = 0;
    const loading = (maxPositions: number, minCapacity = 64): ModelLoading =>
      ({
        checkpoint: { config: { maxPositions } },
        minCapacity: () => minCapacity,
        compile: () => Promise.resolve({ model: { plan }, compiled: ++compiled }),
      }) as unknown as ModelLoading;
    const asked = (context: string) => [
      { context: 'short', choices: ['a'] },
      { context, choices: ['a', 'bc'] },
    ];
    expect(await mayNeedCache(loading(512), tree, asked('x'.repeat(54)))).toBe(false);
    expect(compiled).toBe(0);
    expect(await mayNeedCache(loading(512), tree, asked('x'.repeat(55)))).toBe(true);
    expect(await mayNeedCache(loading(512), tree, asked('é'.repeat(28)))).toBe(true);
    expect(compiled).toBe(2);
    // An artifact of unknown calls; what is longer than the context is left out.
    expect(await mayNeedCache(loading(512, 32), tree, asked('x'.repeat(54)))).toBe(false);
    expect(compiled).toBe(3);
    expect(await mayNeedCache(loading(64), tree, asked('x'.repeat(900)))).toBe(false);
    for (const other of [{ prefixes: 'repeat' }, { sharing: 'context' }] as const)
      expect(await mayNeedCache(loading(512), { ...tree, ...other }, asked('x'.repeat(900)))).toBe(false);
  });

  it('get memory before tokens are known where more questions follow, by the length of texts', async () => {
    const asked: (number | undefined)[] = [];
    const ahead = (own: Partial<ScoreRequest>, text: number, isFirst: boolean, has = Infinity) => {
      const loading = {
        checkpoint: { config: { maxPositions: 8192 }, tensors: new Map(), model: {} },
        minCapacity: () => 1024,
        compile: (cacheTokens?: number) => {
          asked.push(cacheTokens);
          const rows = Math.min(has, cacheTokens ?? 0);
          return Promise.resolve({
            model: {
              target: { devices: { isHost: false, memoryBytes: () => Infinity } },
              plan: {
                weights: [],
                constants: [],
                functions: [],
                states: rows > 0 ? [{ name: 'k', rows, columns: 32, dtype: 'f32' }] : [],
              },
            },
          });
        },
      } as unknown as ModelLoading;
      const questions = [{ context: 'x'.repeat(text), choices: ['a'] }];
      return compileAhead(loading, { model: 'm', sharing: 'tree', ...own } as ScoreRequest, questions, isFirst);
    };
    // Room for questions of 4,096 tokens and a call, at least.
    expect(await ahead({}, 30, true)).toMatchObject({ isCertain: true });
    // Twice the longest so far: 3,000 tokens and a few; the context is the most.
    expect(await ahead({}, 9000, true)).toMatchObject({ isCertain: true });
    expect(await ahead({}, 60_000, true)).toMatchObject({ isCertain: true });
    expect(await ahead({ cacheTokens: 2048 }, 30, true)).toMatchObject({ isCertain: true });
    expect(asked.splice(0)).toEqual([8192, 8192, 16_384, 2048]);
    // Too little memory for what is there already.
    expect(await ahead({}, 9000, true, 512)).toMatchObject({ isCertain: false });
    expect(asked.splice(0)).toEqual([8192, undefined]);
    // Tokens decide, or nothing is kept.
    expect(await ahead({}, 30, false)).toMatchObject({ isCertain: false });
    expect(await ahead({ sharing: 'kv' }, 30, true)).toMatchObject({ isCertain: false });
    expect(await ahead({ prefixes: 'repeat' }, 30, true)).toMatchObject({ isCertain: true });
    expect(asked).toEqual([undefined, undefined, undefined]);
  });

  it('must save a tenth, and more than compiling further kernels costs', () => {
    expect(isWorthKeeping(9_000_000, 1_500_000)).toBe(true);
    expect(isWorthKeeping(9_000_000, 8_500_000)).toBe(false);
    expect(isWorthKeeping(90_000, 15_000)).toBe(false);
  });
});
