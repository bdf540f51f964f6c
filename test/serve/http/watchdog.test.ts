/** Whether an engine comes on, on a clock that tests set. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { EngineProgress } from '../../../engine/engine.js';
import { Watchdog } from '../../../serve/http/watchdog.js';

const HANG_MS = 10_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** What was told at every second, `+` where the engine is alive. `progress`: what it says at each of them. */
async function told(active: number, seconds: number, progress: (second: number) => EngineProgress | undefined) {
  let second = 0;
  let text = '';
  const watched = {
    active,
    progress: () => {
      const now = progress(second);
      // A thread that hangs says nothing.
      return now === undefined ? new Promise<never>(() => undefined) : Promise.resolve(now);
    },
  };
  const dog = new Watchdog(watched, HANG_MS, (isAlive) => (text += isAlive ? '+' : '-'));
  for (second = 1; second <= seconds; second++) await vi.advanceTimersByTimeAsync(1000);
  dog.close();
  await vi.advanceTimersByTimeAsync(5000);
  return text;
}

const progress = (steps: number, busy = 1, isLost = false): EngineProgress => ({ steps, busy, isLost });

describe('an engine', () => {
  it('without requests is alive, whatever it says', async () => {
    expect(await told(0, 15, () => undefined)).toBe('+'.repeat(15));
  });

  it('is alive while devices answer steps, and while all readers are behind', async () => {
    expect(await told(1, 25, (second) => progress(Math.floor(second / 8)))).toBe('+'.repeat(25));
    expect(await told(1, 25, () => progress(7, 0))).toBe('+'.repeat(25));
  });

  it('hangs where there is work and no step, until there is one', async () => {
    expect(await told(1, 16, (second) => progress(second < 14 ? 5 : 6))).toBe(`${'+'.repeat(10)}----++`);
  });

  it('hangs where its thread says nothing', async () => {
    expect(await told(1, 14, () => undefined)).toBe(`${'+'.repeat(9)}-----`);
  });

  it('is dead without a device', async () => {
    for (const active of [0, 1])
      expect(await told(active, 4, (second) => progress(second, active, second >= 2))).toBe('++--');
  });
});
