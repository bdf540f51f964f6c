/** Simulated loads: memory that moves by itself against nine fixed splits (bench/memoryLoads.ts). */
import { describe, expect, test } from 'vitest';
import { FIXED_SHARES, loadsOf, simulate } from '../../bench/memoryLoads.js';
import { casesHere } from '../support/thorough.js';

const GB = 1e9;

/** Loads of texts, with memory for a third of them or less, and of a search whose paths fit. */
const CASES = [
  { name: 'steady', bytes: 4 * GB },
  { name: 'one at a time', bytes: 4 * GB },
  { name: 'phases', bytes: 4 * GB },
  { name: 'swings', bytes: 4 * GB },
  { name: 'bursts', bytes: 4 * GB },
  { name: 'search beside texts', bytes: 4 * GB },
  { name: 'search, 8 problems', bytes: 8 * GB },
  { name: 'steady', bytes: 8 * GB },
];

describe('memory that moves by itself', () => {
  test.each(casesHere(CASES))('is within 3 % of the best fixed split: $name, $bytes bytes', async ({ name, bytes }) => {
    const load = loadsOf(0.2).find((each) => each.name === name)!;
    const own = await simulate(load, bytes);
    let best = 0;
    for (const share of FIXED_SHARES) best = Math.max(best, (await simulate(load, bytes, share)).tokensPerSecond);
    expect(own.tokensPerSecond / best).toBeGreaterThan(0.97);
    // Memory does not swing.
    expect(own.moves / own.seconds).toBeLessThan(2);
  });

  test('is decided by the clock of the simulation alone', async () => {
    const load = loadsOf(0.05).find(({ name }) => name === 'swings')!;
    expect(await simulate(load, 4 * GB)).toEqual(await simulate(load, 4 * GB));
  });
});
