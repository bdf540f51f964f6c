/** Long work in parts. */
import { expect, it, vi } from 'vitest';
import { atOnce, inParts, once, type Parts, Pause } from '../../system/text.js';

it('is left every few milliseconds, and comes to the same at once', async () => {
  let now = 100,
    turns = 0,
    isDone = false;
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  /** Sixty parts of a millisecond each. */
  const work = function* (): Parts<number> {
    for (let part = 0; part < 60; part++, now++) yield;
    return turns;
  };
  const turn = (): void => {
    turns++;
    if (!isDone) setImmediate(turn);
  };
  expect(atOnce(work())).toBe(0);
  turn();
  expect(await inParts(work())).toBeGreaterThan(8);
  isDone = true;
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
