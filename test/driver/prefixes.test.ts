/** When beginnings that questions have in common are worth memory for keys and values. */
import { describe, expect, it } from 'vitest';
import { mayKeepPrefixes } from '../../driver/commands/prefixes.js';
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

  it('must save a tenth, and more than compiling further kernels costs', () => {
    expect(isWorthKeeping(9_000_000, 1_500_000)).toBe(true);
    expect(isWorthKeeping(9_000_000, 8_500_000)).toBe(false);
    expect(isWorthKeeping(90_000, 15_000)).toBe(false);
  });
});
