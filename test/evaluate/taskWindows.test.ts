/** Documents of tasks in windows: all of them, in their order, and no more read than a window needs. */
import { describe, expect, it } from 'vitest';
import { countTokens, pathsOf } from '../../evaluate/pathOrder.js';
import { type Leaf, type TaskWindow, taskWindows, type WindowBounds, WINDOWS } from '../../evaluate/windows.js';
import type { Dict, PyValue } from '../../python/value.js';
import { openLibrary } from '../../tasks/builtin/index.js';
import { tasksBelow } from '../../tasks/definition/settings.js';
import { openTask } from '../../tasks/requests/task.js';
import { TaskScores } from '../../tasks/scores/ofTask.js';
import { thorough } from '../support/thorough.js';

const leaf = (name: string): Leaf => {
  const [node] = tasksBelow(openLibrary([]).resolve(name));
  return { ...node!, scores: new TaskScores(node!.settings) };
};
const LEAVES = ['mmlu_anatomy', 'mmlu_virology', 'mmlu_marketing'].map(leaf);

function* questions(count: number, about = 'Which is'): Generator<Dict> {
  for (let i = 0; i < count; i++)
    yield new Map<string, PyValue>([
      ['question', `${about} number ${i}?`],
      ['choices', ['one', 'two', 'three', 'four']],
      ['answer', i % 4],
    ]);
}

/** Windows of tasks with these numbers of documents, and how many rows had been read when each was made. */
async function windowsOf(
  counts: readonly number[],
  bounds: WindowBounds,
  limit?: number,
): Promise<{ readonly windows: readonly TaskWindow[]; readonly read: readonly number[] }> {
  let rows = 0;
  function* split(count: number): Generator<Dict> {
    for (const row of questions(count)) {
      rows++;
      yield row;
    }
  }
  const windows: TaskWindow[] = [];
  const read: number[] = [];
  const options = {
    open: ({ settings }: Leaf) =>
      openTask(settings, () => split(counts[LEAVES.findIndex((each) => each.settings === settings)]!), {
        shots: 0,
        limit,
      }),
    bounds,
    readsAll: (_leaf: Leaf, documents: number) => limit === undefined || documents < limit,
  };
  for await (const window of taskWindows(LEAVES.slice(0, counts.length), options)) {
    windows.push(window);
    read.push(rows);
  }
  return { windows, read };
}

const shape = ({ tasks, ended, isLast }: TaskWindow): unknown => [
  ...tasks.map(({ name, documents }) => `${name.slice(5, 6)} ${documents[0]!.docId}-${documents.at(-1)!.docId}`),
  ...ended.map(({ task }) => `${task.name.slice(5, 6)} ended`),
  ...(isLast ? ['last'] : []),
];

describe('windows of documents', () => {
  it('double, end with tasks where they are half full, and hold every document once', async () => {
    const { windows, read } = await windowsOf([11, 3, 9], { whole: 4, first: 4, most: 8, characters: 1e9 });
    expect(windows.map(shape)).toEqual([
      ['a 0-3'],
      ['a 4-10', 'a ended'],
      ['v 0-2', 'm 0-4', 'v ended'],
      ['m 5-8', 'm ended', 'last'],
    ]);
    expect(windows.map(({ dataset }) => dataset.docs)).toEqual([
      [{ first: 0, end: 4 }],
      [{ first: 4, end: 11 }],
      [{ first: 11, end: 19 }],
      [{ first: 19, end: 23 }],
    ]);
    const numbers = windows.flatMap(({ dataset }) => dataset.questions.map(({ docId }) => docId));
    expect(numbers).toEqual(Array.from({ length: 23 }, (_, i) => i));
    // Equal texts in another place have another hash: each window has a journal of its own.
    expect(new Set(windows.map(({ dataset }) => dataset.sha256)).size).toBe(4);
    // One more document than a window holds says that it is not the last.
    expect(read.slice(0, 2)).toEqual([5, 12]);
  });

  it('are small at first where there are more documents than one window may hold alone', async () => {
    const bounds = { whole: 8, first: 2, most: 16, characters: 1e9 };
    const { windows, read } = await windowsOf([5, 3, 9], bounds);
    expect(windows.map(shape)).toEqual([
      ['a 0-1'],
      ['a 2-4', 'a ended'],
      ['v 0-2', 'm 0-4', 'v ended'],
      ['m 5-8', 'm ended', 'last'],
    ]);
    // So many are read before the first is given away.
    expect(read[0]).toBe(9);
    const alone = await windowsOf([5, 3], bounds);
    expect(alone.windows.map(shape)).toEqual([['a 0-4', 'v 0-2', 'a ended', 'v ended', 'last']]);
  });

  it('end the reading when nobody takes further ones', async () => {
    let isOpen = false;
    function* rows(): Generator<Dict> {
      isOpen = true;
      try {
        yield* questions(50);
      } finally {
        isOpen = false;
      }
    }
    const windows = taskWindows(LEAVES.slice(0, 1), {
      open: ({ settings }) => openTask(settings, () => rows(), { shots: 0 }),
      bounds: { whole: 8, first: 2, most: 4, characters: 1e9 },
    });
    await windows.next();
    expect(isOpen).toBe(true);
    await windows.return(undefined);
    expect(isOpen).toBe(false);
  });

  thorough('that are small at first take hardly more tokens', async () => {
    const leaves = tasksBelow(openLibrary([]).resolve('mmlu')).map((node): Leaf => ({
      ...node,
      scores: new TaskScores(node.settings),
    }));
    /** Letters as tokens: what all windows compute where each computes common beginnings once. */
    const tokens = async (bounds: WindowBounds): Promise<number> => {
      let shared = 0;
      const options = {
        open: ({ settings, name }: Leaf) => {
          // Subjects of 20 to 400 documents.
          const count = 20 + (leaves.findIndex((each) => each.name === name) % 20) ** 2;
          return openTask(
            settings,
            (_dataset, _config, split) => questions(split === 'dev' ? 5 : count, name.repeat(2)),
            { shots: 5 },
          );
        },
        bounds,
      };
      for await (const { dataset } of taskWindows(leaves, options))
        shared += countTokens(
          pathsOf(
            dataset.questions.map(({ docId, context, choices }) => ({
              docId,
              context: Int32Array.from(Buffer.from(context)),
              continuations: choices.map((choice) => Int32Array.from(Buffer.from(choice))),
            })),
          ),
        ).shared;
      return shared;
    };
    const least = await tokens({ whole: 1e6, first: 1e6, most: 1e6, characters: 1e9 });
    const few = await tokens(WINDOWS);
    expect(few).toBeGreaterThan(least);
    expect(few / least).toBeLessThan(1.01);
  });

  it('are given away when every document that was made is written', async () => {
    let made = 0,
      written = 0;
    const windows = taskWindows(LEAVES.slice(0, 1), {
      open: async ({ settings }) => {
        const opened = await openTask(settings, () => questions(9), { shots: 0 });
        async function* documents(): ReturnType<typeof opened.documents> {
          for await (const each of opened.documents()) {
            made++;
            yield each;
          }
        }
        return { ...opened, documents };
      },
      write: (document) => {
        written++;
        return Promise.resolve(document);
      },
      bounds: { whole: 2, first: 2, most: 4, characters: 1e9 },
    });
    const seen: (readonly [number, number])[] = [];
    for await (const _ of windows) seen.push([made, written]);
    expect(seen).toEqual([
      [3, 3],
      [7, 7],
      [9, 9],
    ]);
  });

  it('end where their prompts have many characters', async () => {
    const { windows } = await windowsOf([6], { whole: 100, first: 100, most: 100, characters: 100 });
    expect(windows.length).toBeGreaterThan(2);
    expect(windows.reduce((sum, { documents }) => sum + documents, 0)).toBe(6);
  });

  it('know how many documents there are before a limit', async () => {
    const { windows } = await windowsOf([7, 0, 2], { whole: 100, first: 100, most: 100, characters: 1e9 }, 3);
    expect(windows.map(shape)).toEqual([['a 0-2', 'm 0-1', 'a ended', 'v ended', 'm ended', 'last']]);
    const totals = await Promise.all(windows[0]!.ended.map(({ total }) => total()));
    expect(totals).toEqual([7, 0, 2]);
  });

  it('are one without documents', async () => {
    const { windows } = await windowsOf([0], { whole: 4, first: 4, most: 8, characters: 1e9 });
    expect(windows.map(shape)).toEqual([['a ended', 'last']]);
  });
});
