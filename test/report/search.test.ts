/** Searches as pages hold them: figures by N, trees that are placed and cut, and two searches compared. */
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { compareFiles } from '../../evaluate/compare/compareRuns.js';
import { findRun } from '../../evaluate/compare/findRuns.js';
import { loadRuns } from '../../report/collect/loadRuns.js';
import { curvesOf, Searches } from '../../report/collect/search.js';
import { searchSizeOf, shownTree } from '../../report/collect/searchTree.js';
import { pathTo, placeSteps, type ShownTree } from '../../report/document/search.js';
import { temporaryFolder } from '../models/support.js';
import { madeSearch, writeSearch } from '../support/searches.js';

describe('figures by number of candidates', () => {
  it('are those whose names say so, in the order of the number, with errors where there are some', () => {
    const figures = { 'naive@16,none': 0.5, 'naive@2,none': 0.25, 'naive@2_stderr,none': 0.1, 'pass@4,strict': 1 };
    const others = {
      'exact_match,none': 0.5,
      'maj@2,none': 'N/A',
      'maj@x,none': 1,
      alias: 'a',
      'weighted@1,none': NaN,
    };
    expect(curvesOf({ figures: { ...figures, ...others } })).toEqual([
      {
        name: 'naive',
        points: [
          { n: 2, value: 0.25, error: 0.1 },
          { n: 16, value: 0.5, error: null },
        ],
      },
      { name: 'pass (strict)', points: [{ n: 4, value: 1, error: null }] },
    ]);
  });
});

describe('places of steps', () => {
  const steps = fc.array(fc.record({ from: fc.nat(), subtree: fc.nat({ max: 2 }) }), { maxLength: 60 }).map((all) => {
    const made: { parent: number | null; iteration: number; subtree: number }[] = [];
    for (const { from, subtree } of all) {
      const parent = made.length === 0 || from % 5 === 0 ? null : from % made.length;
      made.push({ parent, iteration: parent === null ? 0 : made[parent]!.iteration + 1, subtree });
    }
    return made;
  });

  it('are in the column of their iteration, each in a place of its own', () => {
    fc.assert(
      fc.property(steps, (made) => {
        const { columns, rows, width, height } = placeSteps(made);
        expect(new Set(made.map((_, i) => `${columns[i]} ${rows[i]}`)).size).toBe(made.length);
        made.forEach(({ parent }, i) => {
          if (parent !== null) expect(columns[i]).toBe(columns[parent]! + 1);
          expect(columns[i]).toBeLessThan(width);
          expect(rows[i]).toBeLessThan(height);
        });
      }),
    );
  });

  it('keep children of one subtree in the order of their parents', () => {
    const { tree } = madeSearch({ n: 16, width: 4, iterations: 6 });
    const { columns, rows } = placeSteps(tree);
    for (const [i, one] of tree.entries())
      for (const [j, other] of tree.entries())
        if (columns[i] === columns[j] && one.parent !== null && rows[one.parent]! < rows[other.parent!]!)
          expect(rows[i]).toBeLessThan(rows[j]!);
  });

  it('end where a file says that a step follows itself', () => {
    expect(pathTo([{ parent: null }, { parent: 0 }, { parent: 1 }], 2)).toEqual([0, 1, 2]);
    expect(pathTo([{ parent: 0 }], 0).length).toBeLessThan(4);
    expect(pathTo([], -1)).toEqual([]);
  });
});

describe('trees', () => {
  const sample = { doc: { problem: 'p' }, target: 't', answers: { answers: ['a', 7], right: [true, 'no'] } };

  it('have what a page needs, and of what is too much the beginning', () => {
    const made = madeSearch({ n: 4, width: 2, iterations: 3 });
    const whole = shownTree(sample, made);
    expect(whole).toMatchObject({ problem: 'p', target: 't', left: 0, cut: 0, picked: 0 });
    expect(whole.candidates.slice(0, 2)).toMatchObject([{ answer: 'a', isRight: true }, { isCompleted: true }]);
    expect(whole.candidates[1]).not.toHaveProperty('answer');
    expect(whole.steps).toHaveLength(made.tree.length);
    const step = made.tree[0]!;
    const many = { ...made, tree: Array.from({ length: 5000 }, () => ({ ...step, text: 'x'.repeat(10_000) })) };
    const cut = shownTree(sample, { ...many, candidates: [{ ...made.candidates[0]!, step: 4999 }] });
    expect(cut).toMatchObject({ left: 1000, picked: null, candidates: [], cut: 4000 * (10_000 - 8192) });
    expect(searchSizeOf({ ...sample, search: many })).toMatchObject({ steps: 5000, text: 'p' });
  });

  it('that are not as they are written are not shown', () => {
    const made = madeSearch({ n: 2, width: 2, iterations: 2 });
    expect(searchSizeOf(sample)).toBeUndefined();
    for (const search of [null, 1, [], { ...made, tree: [{ ...made.tree[0]!, parent: 5 }] }, { ...made, picked: 99 }])
      expect(searchSizeOf({ ...sample, search })).toBe('unread');
  });

  it('come in blocks, each problem in the one that the list names', () => {
    const search = (seed: number) => madeSearch({ n: 2, width: 2, iterations: 2, seed, text: 'x'.repeat(2000) });
    const problems = Array.from({ length: 40 }, (_, i) => ({ problem: `p${i}`, search: search(i) }));
    const searches = new Searches(loadRuns([writeSearch(join(temporaryFolder(), 'run'), [...problems, {}])]));
    const [task] = searches.document.tasks;
    expect(task).toMatchObject({
      task: 'math',
      asked: [
        ['method', 'beam'],
        ['n', '16'],
        ['width', '4'],
      ],
    });
    const blocks = new Map([...searches.blocks()].map(({ name, content }) => [name, content as ShownTree[]]));
    expect(blocks.size).toBe(3);
    task!.problems.slice(0, 40).forEach(({ block, place, text }, i) => {
      expect(text).toBe(`p${i}`);
      expect(blocks.get(`search.trees.${block}`)![place]!.problem).toBe(`p${i}`);
    });
    expect(task!.problems[40]).toMatchObject({ block: -1, steps: 0 });
  });
});

describe('two searches', () => {
  it('are compared question by question, and their settings are told apart', () => {
    const root = temporaryFolder();
    const problems = [1, 2, 3].map((seed) => ({ search: madeSearch({ n: 2, width: 2, iterations: 2, seed }) }));
    const one = writeSearch(join(root, 'one'), problems);
    const other = writeSearch(join(root, 'other'), problems, {}, { method: 'dvts', n: 16, width: 4 });
    const { unlike, tasks } = compareFiles(findRun(one), findRun(other));
    expect(unlike).toEqual([{ what: 'search: method', a: 'beam', b: 'dvts' }]);
    expect(tasks[0]!.questions).toMatchObject({ common: 3, otherPrompt: 0 });
    expect(tasks[0]!.isEqual).toBe(true);
  });
});
