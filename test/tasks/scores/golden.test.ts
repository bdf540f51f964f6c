/** Metrics, standard errors and groups of real tasks, equal with those of the public harness's own code. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { readSplit } from '../../../tasks/data/splits.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { tasksBelow } from '../../../tasks/definition/settings.js';
import { buildRequests } from '../../../tasks/requests/task.js';
import { figuresOfGroup, type TaskFigures } from '../../../tasks/scores/aggregate.js';
import type { Response } from '../../../tasks/scores/metrics.js';
import { type Measured, TaskScores } from '../../../tasks/scores/ofTask.js';
import { isThorough } from '../../support/thorough.js';

const SHARED = fileURLToPath(new URL('../../../../shared/', import.meta.url));
const isAbsent = !existsSync(join(SHARED, 'golden/requests'));
if (isAbsent) process.stderr.write(`SKIPPED test/tasks/scores/golden: ${SHARED} is absent\n`);

type Figures = Readonly<Record<string, unknown>>;
interface Run {
  readonly tasks: readonly string[];
  readonly num_fewshot: number | null;
  readonly limit: number | null;
  readonly file?: string;
  readonly results: Readonly<Record<string, Figures>>;
  readonly groups?: Readonly<Record<string, Figures>>;
}
interface Golden {
  readonly task: string;
  readonly doc_id: number;
  readonly resps: readonly (string | readonly [number, boolean])[];
  readonly filtered?: Readonly<Record<string, readonly string[]>>;
  readonly metrics: Readonly<Record<string, Figures>>;
}

/** The answers that the reference was made with. */
const invented = (docId: number, count: number): Response[] =>
  Array.from({ length: count }, (_, i) => ({
    ll: -((docId * 7 + i * 13) % 29) - 0.5 * i,
    isGreedy: (docId + i) % 3 === 0,
  }));

const show = (measured: readonly Measured[]): unknown =>
  Object.fromEntries(measured.map(({ filter, values }) => [filter, Object.fromEntries(values)]));

/** Equal, but for the last bit of NumPy's vectorized exp(), which no other library has. */
function near(value: unknown, name = 'truthfulqa_mc2'): unknown {
  if (!name.startsWith('truthfulqa_mc2')) return value;
  if (typeof value === 'number') return expect.closeTo(value, 15) as unknown;
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, near(item)]));
}

const isFigure = (key: string): boolean => key.includes(',');

function expectFigures({ documents, figures }: TaskFigures, expected: Figures, name: string): void {
  expect(documents, name).toBe(expected['sample_len']);
  const found: Record<string, unknown> = {};
  for (const [key, { value, error }] of figures) {
    found[key] = value;
    found[key.replace(',', '_stderr,')] = error ?? 'N/A';
  }
  expect(found, name).toEqual(
    near(Object.fromEntries(Object.entries(expected).filter(([key]) => isFigure(key))), name),
  );
}

describe.skipIf(isAbsent)('metrics of lm-evaluation-harness', () => {
  const folder = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);
  const { runs } = JSON.parse(readFileSync(join(SHARED, 'golden/requests/metrics.json'), 'utf8')) as {
    readonly runs: Readonly<Record<string, Run>>;
  };
  /** With many subjects, and shots beside; others hold few, or are shorter. */
  const LONG = [
    ...['mmlu_5shot', 'mmlu_limit_0.03_0shot', 'mmlu_all_0shot', 'mmlu_0shot'],
    ...['gsm8k_5shot', 'gsm8k_default', 'arc_challenge_5shot'],
  ];
  const all = isAbsent ? [] : Object.keys(runs);
  const names = isThorough ? all : all.filter((name) => !LONG.includes(name));

  it.each(names)('of %s are equal', async (name) => {
    const run = runs[name]!;
    const golden = new Map<string, Golden>();
    if (run.file !== undefined)
      for (const line of gunzipSync(readFileSync(join(SHARED, 'golden/requests', run.file)))
        .toString()
        .trim()
        .split('\n')) {
        const each = JSON.parse(line) as Golden;
        golden.set(`${each.task} ${each.doc_id}`, each);
      }
    const leaves = new Map<string, TaskFigures>();
    for (const { name: task, settings } of tasksBelow(run.tasks.flatMap((each) => folder.resolve(each)))) {
      const scores = new TaskScores(settings);
      const read = readSplit.bind(undefined, join(SHARED, 'data/hub'));
      const built = await buildRequests(settings, read, {
        shots: run.num_fewshot ?? undefined,
        limit: run.limit ?? undefined,
      });
      const measured = built.map((document) => {
        const expected = golden.get(`${task} ${document.docId}`);
        const texts = expected?.resps.filter((each): each is string => typeof each === 'string') ?? [];
        const answers = texts.length > 0 ? texts : invented(document.docId, document.requests.length);
        const found = scores.measure(
          document,
          answers.map((each) => [each]),
        );
        if (expected !== undefined) {
          expect(show(found), `${task} ${document.docId}`).toEqual(near(expected.metrics, task));
          if (expected.filtered !== undefined)
            expect(Object.fromEntries(found.map(({ filter, filtered }) => [filter, filtered]))).toEqual(
              expected.filtered,
            );
        }
        return found;
      });
      const figures = { documents: measured.length, figures: scores.figures(measured) };
      leaves.set(task, figures);
      expectFigures(figures, run.results[task]!, task);
    }
    for (const [group, expected] of Object.entries(run.groups ?? {})) {
      const [node] = folder.resolve(group);
      if (node?.kind !== 'group') throw new Error(`${group} is no group`);
      const own = tasksBelow([node]).map((task) => leaves.get(task.name)!);
      const found = figuresOfGroup(own, node.aggregates);
      const documents = own.reduce((sum, each) => sum + each.documents, 0);
      expectFigures({ documents, figures: found }, expected, group);
      expect(expected['sample_count']).toEqual({ 'acc,none': found.get('acc,none')?.documents });
    }
  });
});
