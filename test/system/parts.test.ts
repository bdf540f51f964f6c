/** Long work in parts. */
import { expect, it, vi } from 'vitest';
import { atOnce, inParts, once, Pause, type Parts } from '../../system/parts.js';

function* counting(milliseconds: number): Parts<number> {
  let parts = 0;
  for (const end = performance.now() + milliseconds; performance.now() < end; parts++) yield;
  return parts;
}

// Once more where something else had the processor.
it('is left every few milliseconds, and comes to the same at once', { retry: 3 }, async () => {
  let turns = 0,
    isDone = false;
  const turn = (): void => {
    turns++;
    if (!isDone) setImmediate(turn);
  };
  turn();
  expect(await inParts(counting(60))).toBeGreaterThan(10);
  isDone = true;
  expect(turns).toBeGreaterThan(2);
  expect(atOnce(counting(1))).toBeGreaterThan(0);
});

it('is done once for all who ask', async () => {
  let made = 0;
  const work = once(function* (): Parts<number> {
    yield;
    return ++made;
  });
  expect([await inParts(work()), atOnce(work()), await inParts(work())]).toEqual([1, 1, 1]);
});

it('passes errors on', async () => {
  const failing = function* (): Parts<number> {
    yield;
    throw new RangeError('too long');
  };
  expect(() => atOnce(failing())).toThrow('too long');
  await expect(inParts(failing())).rejects.toThrow('too long');
});

it('pauses when its time is over, and has time again', async () => {
  let now = 100;
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  const pause = new Pause();
  const due: boolean[] = [];
  for (const passed of [1, 3, 3]) {
    now += passed;
    due.push(pause.isDue);
  }
  await pause.take();
  due.push(pause.isDue);
  clock.mockRestore();
  expect(due).toEqual([false, false, true, false]);
});
