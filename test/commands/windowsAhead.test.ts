import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { WindowsAhead } from '../../commands/tasksRun.js';
import type { TaskWindow } from '../../evaluate/windows.js';

const windowOf = (documents: number, fullness: number, isLast: boolean): TaskWindow => ({
  ...{ tasks: [], ended: [], documents, fullness, isLast },
  dataset: { questions: [], docs: [], total: 0, sha256: '' },
});

/** Windows that are so full, numbered by their documents, and what was read and tokenized of them behind the first. */
function begin(sizes: readonly number[], failsAt = Infinity) {
  const read: number[] = [];
  const tokenized: number[] = [];
  const window = (i: number): TaskWindow => windowOf(i, sizes[i]!, i === sizes.length - 1);
  async function* windows(): AsyncGenerator<TaskWindow> {
    for (let i = 1; i < sizes.length; i++) {
      await setImmediate();
      if (i === failsAt) throw new Error(`window ${i} cannot be read`);
      read.push(i);
      yield window(i);
    }
  }
  const ahead = new WindowsAhead(window(0), windows(), async (each) => {
    await setImmediate();
    tokenized.push(each.documents);
    return { window: each };
  });
  return { ahead, read, tokenized };
}

async function turns(count = 20): Promise<void> {
  for (let i = 0; i < count; i++) await setImmediate();
}

describe('windows ahead', () => {
  it('has small windows ready before they are asked for, until they fill the largest', async () => {
    const { ahead, read, tokenized } = begin([0.125, 0.25, 0.5, 0.25, 1, 1]);
    await turns();
    expect([read, tokenized]).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
    expect((await ahead.take()).window.documents).toBe(1);
    await turns();
    // What was taken may still be computed: it is let go when two others are taken.
    expect(read).toEqual([1, 2, 3]);
    await ahead.take();
    await turns();
    expect(tokenized).toEqual([1, 2, 3, 4]);
  });

  it('gives a window as soon as it is there, while others are being read', async () => {
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    async function* windows(): AsyncGenerator<TaskWindow> {
      await setImmediate();
      yield windowOf(1, 0.1, false);
      await held;
      yield windowOf(2, 0.1, true);
    }
    const ahead = new WindowsAhead(windowOf(0, 0.1, false), windows(), (window) => Promise.resolve({ window }));
    expect((await ahead.take()).window.documents).toBe(1);
    const second = ahead.take();
    release();
    expect((await second).window.documents).toBe(2);
  });

  it('reads no further where two windows fill more than one of the largest', async () => {
    const { ahead, read } = begin([0.5, 1, 1, 1]);
    await turns();
    await ahead.take();
    await turns();
    expect(read).toEqual([1]);
    expect((await ahead.take()).window.documents).toBe(2);
    await turns();
    expect(read).toEqual([1, 2]);
  });

  it('gives all windows in order, and reads nothing behind the last', async () => {
    const { ahead, read } = begin([0.1, 0.1, 0.9, 0.1, 0.1]);
    const documents: number[] = [];
    for (let isLast = false; !isLast;) {
      const { window } = await ahead.take();
      documents.push(window.documents);
      ({ isLast } = window);
    }
    await turns();
    expect([documents, read]).toEqual([
      [1, 2, 3, 4],
      [1, 2, 3, 4],
    ]);
  });

  it('reads nothing where the first is the last', async () => {
    const { read } = begin([0.1]);
    await turns();
    expect(read).toEqual([]);
  });

  it('throws what a window fails of where that window is taken', async () => {
    const { ahead } = begin([0.1, 0.1, 0.1], 2);
    await turns();
    expect((await ahead.take()).window.documents).toBe(1);
    await turns();
    await expect(ahead.take()).rejects.toThrow('window 2 cannot be read');
  });
});
