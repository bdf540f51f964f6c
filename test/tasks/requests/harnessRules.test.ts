/** Rules of the public harness that the real task files do not show: what its own code gives for files like these. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { PyValue } from '../../../python/value.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { tasksBelow } from '../../../tasks/definition/settings.js';
import { buildRequests, type DocumentRequests } from '../../../tasks/requests/task.js';
import { TaskScores } from '../../../tasks/scores/ofTask.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-rules-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

type Row = Readonly<Record<string, PyValue>>;

/** A task's requests and scores. */
async function open(lines: string, rows: readonly Row[], shots = 0, only?: ReadonlySet<number>) {
  writeFileSync(join(root, 't.yaml'), `task: t\ndataset_path: d\ntest_split: test\n${lines}`);
  const { settings } = tasksBelow(new TaskLibrary([root]).resolve('t'))[0]!;
  const documents = rows.map((row) => new Map(Object.entries(row)));
  const made = await buildRequests(settings, () => Promise.resolve(documents), { shots, only });
  return { made, scores: new TaskScores(settings) };
}

const asked = ({ requests }: DocumentRequests): unknown[] =>
  requests.map((request) =>
    request.kind === 'loglikelihood' ? [request.context, request.continuation] : request.kind,
  );

const CHOICES = 'output_type: multiple_choice\ndoc_to_text: q\ndoc_to_choice: ["no", "yes"]\n';

describe('choices', () => {
  it('are asked for by themselves behind the same delimiter', async () => {
    const metric = 'metric_list: [{metric: acc_mutual_info}]\n';
    const { made } = await open(`${CHOICES}doc_to_target: label\n${metric}`, [{ q: 'Q', label: 0 }]);
    expect(asked(made[0]!)).toEqual([
      ['Q', ' no'],
      ['Q', ' yes'],
      ['', ' no'],
      ['', ' yes'],
    ]);
  });

  it('are named by true and false, which are 1 and 0', async () => {
    const rows = [true, false, true].map((label) => ({ q: 'Q', label }));
    const { made, scores } = await open(`${CHOICES}doc_to_target: label\n`, rows, 1);
    expect(asked(made[0]!)[0]).toEqual([expect.stringMatching(/^Q (yes|no)\n\nQ$/), ' no']);
    const answers = [[{ ll: -2, isGreedy: false }], [{ ll: -1, isGreedy: true }]];
    const right = made.map((each) => scores.measure(each, answers)[0]!.values.get('acc'));
    expect(right).toEqual([1, 0, 1]);
    const always = await open(`${CHOICES}doc_to_target: true\n`, rows);
    expect(always.scores.measure(always.made[1]!, answers)[0]!.values.get('acc')).toBe(1);
  });
});

describe('answers that are lists', () => {
  const TEXTS = 'output_type: generate_until\ndoc_to_text: q\n';
  const right = async (lines: string, rows: readonly Row[], texts: readonly string[]): Promise<unknown[]> => {
    const { made, scores } = await open(TEXTS + lines, rows);
    return made.map((each, i) => scores.measure(each, [[texts[i]!]])[0]!.values.get('exact_match'));
  };

  it('are texts where the first document has one answer', async () => {
    const rows = ['x', '[1, 2]', '[1, 2]'].map((t) => ({ q: 'Q', t }));
    expect(await right('doc_to_target: "{{t}}"\n', rows, ['x', '[1, 2]', '1'])).toEqual([1, 1, 0]);
  });

  it('are right answers where the first document has a list, also of documents that are chosen', async () => {
    const rows = [['x'], ['a', 'b'], 'ab'].map((t) => ({ q: 'Q', t }));
    expect(await right('doc_to_target: t\n', rows, ['x', 'b', 'a'])).toEqual([1, 1, 1]);
    const { made } = await open(`${TEXTS}doc_to_target: t\n`, rows, 0, new Set([2]));
    expect(made.map(({ hasManyTargets }) => hasManyTargets)).toEqual([true]);
  });

  it('are compared as NumPy does: numbers alone equal no text', async () => {
    const rows = [
      [7, 1],
      [7, 'a'],
    ].map((t) => ({ q: 'Q', t }));
    expect(await right('doc_to_target: t\n', rows, ['7', '7'])).toEqual([0, 1]);
  });
});
