/** GPQA: choices in the order that CPython's generator draws, as the harness's functions had them after seed 0. */
import { describe, expect, it } from 'vitest';
import type { Dict, PyValue } from '../../../python/value.js';
import { gpqaDocument } from '../../../tasks/hooks/documents.js';
import { HookProblem } from '../../../tasks/hooks/hook.js';
import { Shuffles } from '../../../tasks/requests/seeds.js';

const DOCUMENTS: readonly Dict[] = ['right', '  7 [a]', 'x  y', 'z'].map(
  (right) =>
    new Map<string, PyValue>([
      ['Correct Answer', right],
      ['Incorrect Answer 1', 'x [note] y'],
      ['Incorrect Answer 2', null],
      ['Incorrect Answer 3', 'a  b [title] c'],
    ]),
);
const LEADERBOARD = [
  ['a b. c', 'x y', ' ', 'right', '(D)'],
  ['x y', ' ', '7 ', 'a b. c', '(C)'],
  ['x y', 'a b. c', ' ', 'x y', '(A)'],
  [' ', 'x y', 'z', 'a b. c', '(C)'],
];
/** The next task of the same run. */
const WITH_LIST = [
  ['a b. c', 'x [note] y', 'right', ' ', '(C)'],
  ['7 [a]', ' ', 'a b. c', 'x [note] y', '(A)'],
  ['a b. c', 'x [note] y', 'x y', ' ', '(C)'],
  ['z', ' ', 'a b. c', 'x [note] y', '(A)'],
];

const call = (action: () => Dict): Dict => action();

describe('GPQA', () => {
  it('shuffles as the harness does, each split once', async () => {
    const shuffles = new Shuffles();
    const leaderboard = gpqaDocument({ dropsNotes: true });
    const first = await shuffles.documents(leaderboard, 'main', DOCUMENTS, call);
    const columns = ['choice1', 'choice2', 'choice3', 'choice4', 'answer'];
    expect(first.map((document) => columns.map((name) => document.get(name)))).toEqual(LEADERBOARD);
    const second = await shuffles.documents(gpqaDocument({ hasList: true }), 'main', DOCUMENTS, call);
    expect(second.map((document) => [...(document.get('choices') as string[]), document.get('answer')])).toEqual(
      WITH_LIST,
    );
    expect(await shuffles.documents(leaderboard, 'main', [], call)).toBe(first);
    expect((await new Shuffles(1).documents(leaderboard, 'main', DOCUMENTS, call))[0]).not.toEqual(first[0]);
  });

  it('says what a document lacks', async () => {
    const run = gpqaDocument({});
    await expect(new Shuffles().documents(run, 'main', [new Map()], call)).rejects.toThrow(HookProblem);
  });
});
