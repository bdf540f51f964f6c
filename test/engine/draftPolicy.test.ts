/** How many drafts steps take by themselves, on a made-up device with a clock of its own. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { H100_MS } from '../support/clockModel.js';
import { CPU, H100, rightly, tokensIn, TRAFFIC } from '../support/draftTraffic.js';
import { thorough } from '../support/thorough.js';

afterEach(() => {
  vi.restoreAllMocks();
});

const DEVICES = [
  [H100, 1, 300],
  [CPU, 4, 200],
] as const;

describe('as many drafts as pay', () => {
  thorough('are never slower than none by more than 1 %', async () => {
    for (const [device, batch, steps] of DEVICES) {
      const ms = steps * device.stepMs(batch, 0);
      const plain = await tokensIn(ms, device, batch);
      for (const [kind, traffic] of Object.entries(TRAFFIC)) {
        const { tokens } = await tokensIn(ms, device, batch, traffic);
        expect.soft(tokens / plain.tokens, `${kind}, ${batch} texts`).toBeGreaterThanOrEqual(0.99);
      }
    }
  });

  it('are worth what the notes calculate for free drafts, apart from the gap', async () => {
    const ms = 400 * H100_MS(1);
    const [plain, drafted] = [await tokensIn(ms, H100, 1), await tokensIn(ms, H100, 1, rightly(0.7))];
    expect(drafted.tokens / plain.tokens).toBeGreaterThan(2.5);
    expect(drafted.drafts).toMatchObject([{ drafter: 'made up' }]);
  });

  it('leave the steps of a model ahead of each other where nothing is proposed', async () => {
    const ms = 60 * H100_MS(8);
    const [plain, drafted] = [await tokensIn(ms, H100, 8), await tokensIn(ms, H100, 8, TRAFFIC['nothing is proposed'])];
    expect(drafted).toEqual(plain);
  });
});
