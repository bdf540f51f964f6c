import { describe, expect, it } from 'vitest';
import { fitsLeastCache } from '../../commands/cacheSize.js';
import { demandOf, likelyDemand } from '../../commands/promptTokens.js';

const LIMITS = { maxPositions: 8192, vocabSize: 100 };
const prompts = (...texts: string[]): Parameters<typeof likelyDemand>[0] =>
  texts.map((prompt, i) => ({ where: `prompt ${i + 1}`, prompt: { prompt } }));

describe('what prompts probably need, before they are tokenized', () => {
  it('is no less than what they need, of bytes', () => {
    const texts = ['Once upon a time', 'été', 'x'];
    const likely = likelyDemand(prompts(...texts), 100, LIMITS, 2)!;
    // A token for each byte, and one in front.
    const tokens = texts.map((text, i) => ({
      where: `prompt ${i + 1}`,
      tokens: Array.from({ length: Buffer.byteLength(text) + 1 }, () => 5),
    }));
    const demand = demandOf(tokens, 100, LIMITS, 2);
    for (const key of ['prompt', 'least', 'longest', 'total'] as const)
      expect(likely[key]).toBeGreaterThanOrEqual(demand[key]);
    expect(likely.where).toBe(demand.where);
    expect(fitsLeastCache(likely)).toBe(true);
  });

  it('takes token ids as they are, and knows nothing of conversations and of what fits no context', () => {
    const ids = { where: 'ids', prompt: { tokens: [1, 2, 3] } };
    expect(likelyDemand([ids], 10, LIMITS)).toEqual(demandOf([{ where: 'ids', tokens: [1, 2, 3] }], 10, LIMITS));
    expect(likelyDemand([ids, { where: 'chat', prompt: { messages: [] } }], 10, LIMITS)).toBeUndefined();
    expect(likelyDemand(prompts('x'.repeat(9000)), 10, LIMITS)).toBeUndefined();
    expect(likelyDemand([], 10, LIMITS)).toBeUndefined();
    expect(likelyDemand(prompts(''), 10, LIMITS)).toBeUndefined();
    expect(likelyDemand([{ where: 'ids', prompt: { tokens: [1, 100] } }], 10, LIMITS)).toBeUndefined();
  });

  it('is more than the smallest cache where many texts are generated', () => {
    expect(fitsLeastCache(likelyDemand(prompts('a', 'b'), 2000, LIMITS)!)).toBe(true);
    expect(fitsLeastCache(likelyDemand(prompts('a', 'b', 'c'), 2000, LIMITS)!)).toBe(false);
  });
});
