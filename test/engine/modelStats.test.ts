/** What an engine counts of a model: moments of sequences, pages, steps. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { Engine } from '../../engine/engine.js';
import { countOf } from '../../system/buckets.js';
import { counting, range } from './counting.js';

/** A clock that goes on by a second with each step of the device. */
function clockOf(): { readonly step: () => void; seconds: number } {
  const clock = { seconds: 0, step: () => void (clock.seconds += 1) };
  vi.spyOn(performance, 'now').mockImplementation(() => 1000 * clock.seconds);
  return clock;
}

describe('the stats of a model', () => {
  it('are those of an idle one before anything has come', () => {
    const engine = Engine.of(counting({ cacheTokens: 160 }).model);
    const stats = engine.statsOf();
    expect(stats).toMatchObject({ running: 0, waiting: 0, paused: 0, pages: 10, heldPages: 0, steps: 0 });
    expect(countOf(stats.queueSeconds)).toBe(0);
    // They go to another thread.
    expect(structuredClone(stats)).toEqual(stats);
  });

  it('say how long sequences waited, until their first token and behind it', async () => {
    const clock = clockOf();
    // Ten steps of the first leave no pages for the second.
    const { model } = counting({ cacheTokens: 32, onStep: clock.step });
    const engine = Engine.of(model);
    const texts = [
      engine.generate({ prompt: range(0, 20), maxNewTokens: 10 }),
      engine.generate({ prompt: range(500, 20), maxNewTokens: 4 }),
    ];
    await Promise.all(texts);
    const { queueSeconds, prefillSeconds, decodeSeconds, inferenceSeconds, stepTokens, steps } = engine.statsOf();
    expect([queueSeconds, prefillSeconds, decodeSeconds, inferenceSeconds].map(countOf)).toEqual([2, 2, 2, 2]);
    expect([queueSeconds.sum, prefillSeconds.sum, decodeSeconds.sum]).toEqual([10, 2, 9 + 3]);
    expect(inferenceSeconds.sum).toBe(14);
    expect([steps, countOf(stepTokens), stepTokens.sum]).toEqual([14, 14, 20 + 9 + 20 + 3]);
  });

  it('count tokens of prompts once, and those that were found', async () => {
    const engine = Engine.of(counting({ cacheTokens: 1024 }).model);
    const prompt = range(0, 33);
    await engine.submit({ kind: 'generate', prompt, n: 3, maxNewTokens: 2 }).result();
    expect(engine.statsOf()).toMatchObject({ promptTokens: 99, foundTokens: 64, running: 0, heldPages: 0 });
  });

  it('show who runs, waits and is paused', async () => {
    const engine = Engine.of(counting({ cacheTokens: 64 }).model);
    const slow = engine.submit({ kind: 'generate', prompt: range(0, 30), maxNewTokens: 30, maxHeld: 2 });
    for (let i = 0; i < 20; i++) await nextTurn();
    expect(engine.statsOf()).toMatchObject({ running: 0, waiting: 0, paused: 1, heldPages: 2, preemptions: 0 });
    slow.cancel();
    await slow.result();
    expect(engine.statsOf()).toMatchObject({ paused: 0, heldPages: 0 });
    expect(countOf(engine.statsOf().decodeSeconds)).toBe(1);
  });

  it('count a sequence once that was computed again by another device', async () => {
    const { model, lose } = counting({ cacheTokens: 256 });
    lose(() => Promise.resolve());
    const engine = Engine.of(model);
    await engine.generate({ prompt: range(0, 20), maxNewTokens: 3 });
    const stats = engine.statsOf();
    expect(stats).toMatchObject({ promptTokens: 20, steps: 3 });
    expect(countOf(stats.queueSeconds)).toBe(1);
  });
});
