/** Events for a reader that may be slow, or leave. */
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { eventsOf } from '../../library/generate.js';

/** Tells numbers for as long as it may; counts how many it has told. */
function numbers(): { readonly events: AsyncGenerator<number, void>; told(): number; readonly ended: Promise<void> } {
  let told = 0;
  let hasEnded = (): void => undefined;
  const ended = new Promise<void>((resolve) => (hasEnded = resolve));
  const events = eventsOf<number>(async (tell, signal) => {
    while (!signal.aborted) {
      await setImmediate();
      for (let i = 0; i < 100 && !signal.aborted; i++) await tell(told++);
    }
    hasEnded();
  });
  return { events, told: () => told, ended };
}

const turns = async (count: number): Promise<void> => {
  for (let i = 0; i < count; i++) await setImmediate();
};

describe('events', () => {
  it('wait for a reader that does not read', async () => {
    const { events, told, ended } = numbers();
    expect((await events.next()).value).toBe(0);
    await turns(100);
    const most = told();
    expect(most).toBeLessThanOrEqual(2200);
    await turns(100);
    expect(told()).toBe(most);
    // It goes on as it is read, in order and without a gap.
    for (let i = 1; i < 5000; i++) expect((await events.next()).value).toBe(i);
    expect(told()).toBeGreaterThan(most);
    await turns(100);
    await events.return();
    await ended;
  });

  it('end for a reader that leaves while they wait for it', async () => {
    const { events, ended } = numbers();
    for await (const event of events) {
      expect(event).toBe(0);
      await turns(100);
      break;
    }
    await ended;
  });

  it('hand on what went wrong, after what came before it', async () => {
    const events = eventsOf<number>(async (tell) => {
      await tell(1);
      throw new Error('went wrong');
    });
    expect((await events.next()).value).toBe(1);
    await expect(events.next()).rejects.toThrow('went wrong');
  });
});
