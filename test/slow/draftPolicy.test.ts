/** Drafts that pay for themselves at every batch, on a made-up device with a clock of its own. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { CPU, H100, tokensIn, TRAFFIC } from '../support/draftTraffic.js';

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
