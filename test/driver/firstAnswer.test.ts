import { expect, it, vi } from 'vitest';
import { clock, Phases } from '../../driver/phases.js';
import { FirstAnswer } from '../../driver/startUp.js';

it('the first answer is told of once, with the phases of devices as they are by then', () => {
  const detail = vi.fn();
  const phases = new Phases();
  const first = new FirstAnswer(phases, { detail });
  const now = clock();
  const executor = { phases: [{ name: 'weights', begin: now, end: now }] };
  // Nothing has begun.
  first.came(executor);
  expect([first.start, detail.mock.calls]).toEqual([undefined, []]);
  first.onProgress(executor);
  expect(first.start).toBeUndefined();
  first.onProgress(executor);
  const { start } = first;
  expect(start?.phases.map(({ process, phase }) => `${process} ${phase}`)).toEqual([
    ...['command process', 'device process weights', 'command first micro-batch'],
  ]);
  expect(detail.mock.calls.map(([line]) => String(line).split(' ').slice(0, 3).join(' '))).toEqual([
    ...['first answer after', 'seconds since the'],
  ]);
  // A run of tasks may generate behind what it has scored.
  first.onProgress(executor);
  first.begin('first token');
  first.came(executor);
  expect(first.start).toBe(start);
  expect([detail.mock.calls.length, phases.spans.map(({ name }) => name)]).toEqual([
    ...[2, ['process', 'first micro-batch']],
  ]);
});
