/** The line that shows how the time until the first answer was spent. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, vi } from 'vitest';
import { clock, Phases, printPhases } from '../../driver/phases.js';

it('phases follow one another from the start of the process, with others in parallel', async () => {
  const phases = new Phases();
  phases.begin('open');
  let tokenized: (value: number) => void = () => undefined;
  const beside = phases.during(
    'tokenize',
    () =>
      new Promise<number>((resolve) => {
        tokenized = resolve;
      }),
  );
  await sleep(5);
  phases.begin('load');
  await sleep(5);
  phases.end();
  phases.end();
  await sleep(5);
  tokenized(7);
  expect(await beside).toBe(7);
  await expect(phases.during('fail', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  const { spans } = phases;
  expect(spans.map(({ name }) => name)).toEqual(['process', 'open', 'tokenize', 'load', 'fail']);
  const [process, open, tokenize, load] = spans;
  expect(process!.begin).toBe(performance.timeOrigin);
  for (const [before, after] of [
    [process, open],
    [open, load],
  ])
    expect(after!.begin).toBe(before!.end);
  expect(tokenize!.end).toBeGreaterThan(load!.end);
  for (const { begin, end } of spans) expect(end).toBeGreaterThanOrEqual(begin);
});

it('phases last as long as they last if the clock of the system goes back', () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  try {
    const phases = new Phases();
    const before = clock();
    phases.begin('open');
    vi.setSystemTime(Date.now() - 3_600_000);
    phases.end();
    expect(clock()).toBeGreaterThanOrEqual(before);
    const { begin, end } = phases.spans.find(({ name }) => name === 'open')!;
    expect(end).toBeGreaterThanOrEqual(begin);
  } finally {
    vi.useRealTimers();
  }
});

it('phases are printed in seconds since the command started, those of several devices merged', () => {
  const at = (name: string, begin: number, end: number): { name: string; begin: number; end: number } => ({
    name,
    begin: performance.timeOrigin + begin,
    end: performance.timeOrigin + end,
  });
  expect(printPhases([at('open', 100, 250)], [])).toBe('seconds since the command: open 0.10–0.25');
  expect(
    printPhases(
      [at('open', 100, 250)],
      [at('weights', 900, 2500), at('compile', 300, 1000), at('compile', 200, 900), at('weights', 1000, 2000)],
    ),
  ).toBe('seconds since the command: open 0.10–0.25; devices: compile 0.20–1.00, weights 0.90–2.50');
});
