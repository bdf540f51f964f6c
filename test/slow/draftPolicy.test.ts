/** Drafts that pay for themselves at every batch, on a made-up device with a clock of its own. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { ClockOptions } from '../support/clockModel.js';
import { CPU, H100, rightly, tokensIn, TRAFFIC } from '../support/draftTraffic.js';

afterEach(() => {
  vi.restoreAllMocks();
});

/** What is expected at least of some traffic by batch, as a share of the tokens without drafts. */
const GAINS: Readonly<Record<string, Readonly<Record<number, number>>>> = {
  'H100 seven of ten are right': { 1: 2.5, 8: 2.2, 64: 1.3 },
  'H100 all are right': { 1: 10, 8: 7, 64: 2.3 },
  'CPU seven of ten are right': { 1: 2, 8: 1.15 },
};

describe.each([
  ['H100', H100],
  ['CPU', CPU],
] as const)('as many drafts as pay on %s', (name, device) => {
  it.each([1, 2, 8, 64, 256])(
    'are never slower than none by more than 1 %%: %i texts',
    async (batch) => {
      const ms = (batch >= 64 ? 400 : 1200) * device.stepMs(batch, 0);
      const plain = await tokensIn(ms, device, batch);
      const gains = [];
      for (const [kind, traffic] of Object.entries(TRAFFIC)) {
        const { tokens } = await tokensIn(ms, device, batch, traffic);
        gains.push(`${kind}: ${(tokens / plain.tokens).toFixed(3)}`);
        const least = GAINS[`${name} ${kind}`]?.[batch] ?? 0.99;
        expect.soft(tokens / plain.tokens, kind).toBeGreaterThanOrEqual(least);
      }
      console.log(`${name}, ${batch} texts: ${gains.join('; ')}`);
    },
    600_000,
  );
});

/** 8 billion weights on an H200 by the tokens of a step: 65 rows take the kernels of 128. */
const STAIRS = [
  [64, 5.4],
  [128, 6.9],
  [192, 8.7],
  [256, 9.3],
  [384, 12.5],
  [512, 14],
  [1024, 25],
] as const;

describe('as many drafts as pay on stairs', () => {
  it('are found though the first step of each size is held up', async () => {
    const device = (): ClockOptions => {
      const known = new Set<number>();
      const stepMs = (tokens: number): number => {
        const [size, ms] = STAIRS.find(([most]) => tokens <= most) ?? STAIRS.at(-1)!;
        const heldUp = size > 64 && !known.has(size) ? 25 : 0;
        known.add(size);
        return ms + heldUp;
      };
      return { stepMs, gapMs: 1.7 };
    };
    const ms = 900 * 5.4;
    const [plain, drafted] = [await tokensIn(ms, device(), 64), await tokensIn(ms, device(), 64, rightly(0.7))];
    expect(drafted.tokens / plain.tokens).toBeGreaterThan(1.03);
  }, 600_000);
});
