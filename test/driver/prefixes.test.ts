/** When beginnings that questions have in common are worth memory for keys and values. */
import { describe, expect, it } from 'vitest';
import type { ModelLoading } from '../../driver/commands/loadModel.js';
import { mayKeepPrefixes, mayNeedCache } from '../../driver/commands/prefixes.js';
import { isWorthKeeping } from '../../eval/index.js';

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
    const loading = (maxPositions: number, leastCapacity = 64): ModelLoading =>
      ({
        checkpoint: { config: { maxPositions } },
        leastCapacity: () => leastCapacity,
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

  it('must save a tenth, and more than compiling further kernels costs', () => {
    expect(isWorthKeeping(9_000_000, 1_500_000)).toBe(true);
    expect(isWorthKeeping(9_000_000, 8_500_000)).toBe(false);
    expect(isWorthKeeping(90_000, 15_000)).toBe(false);
  });
});
