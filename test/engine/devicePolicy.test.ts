/** When a device drafts, and how deep, on a made-up device with a clock of its own. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { ClockOptions } from '../support/clockModel.js';
import { H100, tokensIn } from '../support/draftTraffic.js';
import { mix } from '../support/pathModel.js';
import { thorough } from '../support/thorough.js';

afterEach(() => {
  vi.restoreAllMocks();
});

/** Calls of the draft function take so long, and so many of its tokens are right. */
const drafting = (share: number, ms: number): ClockOptions => ({
  ...H100,
  draft: { ms, isRight: (token, position) => mix(token, position, 23) / 2 ** 32 < share },
});

/** Tokens with drafts of the device, for each without, and texts of steps that had drafts. */
async function compare(share: number, draftMs: number, batch: number, steps: number) {
  const ms = steps * H100.stepMs(batch, 0);
  const plain = await tokensIn(ms, H100, batch);
  const { tokens, drafts } = await tokensIn(ms, drafting(share, draftMs), batch, 'device');
  return { gain: tokens / plain.tokens, rounds: drafts[0]?.rounds ?? 0 };
}

describe('drafts of a device', () => {
  it('are made as deep as pays', async () => {
    expect((await compare(0.7, 0.3, 1, 400)).gain).toBeGreaterThan(1.8);
    expect((await compare(0.85, 0.3, 8, 150)).gain).toBeGreaterThan(2.2);
  });

  thorough('are tried ever more rarely where they do not pay', async () => {
    const [some, more] = [await compare(0, 0.3, 1, 500), await compare(0, 0.3, 1, 2000)];
    expect(some.gain).toBeGreaterThanOrEqual(0.99);
    expect(more.gain).toBeGreaterThanOrEqual(0.995);
    expect(more.rounds).toBeGreaterThan(some.rounds);
    expect(more.rounds).toBeLessThan(some.rounds + 16);
    // A draft function that takes as long as the model.
    expect((await compare(0.9, 4, 1, 500)).gain).toBeGreaterThanOrEqual(0.99);
  });
});
