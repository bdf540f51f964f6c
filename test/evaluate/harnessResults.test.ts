/** The blocks of results_*.json and the hashes of samples, equal with those that the public harness wrote. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { taskResults } from '../../evaluate/results.js';
import { sampleLines } from '../../evaluate/samples.js';
import { formatTable } from '../../evaluate/table.js';
import { type Answers, answersOfGroups, TaskTally } from '../../evaluate/taskAnswers.js';
import { datasetOfTasks, type RunTask } from '../../evaluate/windows.js';
import { readSplit } from '../../tasks/data/splits.js';
import { TaskLibrary } from '../../tasks/definition/library.js';
import { type TaskTree, tasksBelow } from '../../tasks/definition/settings.js';
import { type DocumentRequests, openTask } from '../../tasks/requests/task.js';
import type { TaskFigures } from '../../tasks/scores/aggregate.js';
import { TaskScores } from '../../tasks/scores/ofTask.js';
import { casesHere } from '../support/thorough.js';

const SHARED = fileURLToPath(new URL('../../../shared', import.meta.url));
const isAbsent = !existsSync(join(SHARED, 'golden/requests'));
if (isAbsent) process.stderr.write(`SKIPPED test/evaluate/harnessResults: ${SHARED} is absent\n`);

interface Run {
  readonly tasks: readonly string[];
  readonly num_fewshot: number | null;
  readonly limit: number | null;
  readonly file: string;
  readonly configs?: Readonly<Record<string, { metadata: Record<string, unknown>; process_results?: unknown }>>;
  readonly [block: string]: unknown;
}
interface Golden {
  readonly task: string;
  readonly doc_id: number;
  readonly resps: readonly (string | readonly [number, boolean])[];
  readonly doc_hash: string;
  readonly prompt_hash: string;
  readonly target_hash: string;
}

async function tasksOf(run: Run, library: TaskLibrary): Promise<(RunTask & { readonly total: number })[]> {
  const tasks: (RunTask & { readonly total: number })[] = [];
  let first = 0;
  for (const { name, settings } of tasksBelow(run.tasks.flatMap((each) => library.resolve(each)))) {
    const options = { shots: run.num_fewshot ?? undefined, limit: run.limit ?? undefined };
    const opened = await openTask(settings, readSplit.bind(undefined, join(SHARED, 'data/hub')), options);
    const documents: DocumentRequests[] = [];
    for await (const document of opened.documents()) documents.push(document);
    const total = await opened.total();
    tasks.push({ name, settings, scores: new TaskScores(settings), shots: opened.shots, total, documents, first });
    first += documents.length;
  }
  return tasks;
}

function answersOf(tasks: readonly RunTask[], golden: readonly Golden[]): Answers {
  const scores = new Map<number, { ll: number[]; greedy: boolean[] }>();
  const texts = new Map<number, string[][]>();
  for (const { task, doc_id, resps } of golden) {
    const number = tasks.find(({ name }) => name === task)!.first + doc_id;
    const pairs = resps.flatMap((each) => (typeof each === 'string' ? [] : [each]));
    if (pairs.length > 0) scores.set(number, { ll: pairs.map(([ll]) => ll), greedy: pairs.map(([, flag]) => flag) });
    else texts.set(number, [resps.map(String)]);
  }
  return { scores, texts };
}

/** The reference names files relative to its folder, and has functions as Python. */
function withoutPython(configs: Run['configs']): unknown {
  return Object.fromEntries(
    Object.entries(configs ?? {}).map(([name, { metadata, process_results, ...rest }]) => {
      const { config_source: _, ...own } = metadata;
      const named = process_results === undefined ? {} : { process_results: '!function utils.process_results_mc2' };
      return [name, { ...rest, ...named, metadata: own }];
    }),
  );
}

const RUNS = ['mmlu_5shot', 'gsm8k_5shot', 'gsm8k_cot_8shot', 'arc_challenge_0shot', 'truthfulqa_mc2_0shot'];
const BLOCKS = ['groups', 'group_subtasks', 'versions', 'n-shot', 'higher_is_better', 'n-samples'] as const;

describe.skipIf(isAbsent)('results in the layout of the public harness', () => {
  const library = new TaskLibrary([join(SHARED, 'data/lm_eval_tasks')]);

  it.each(casesHere(RUNS, 1, 4))('of %s', async (name) => {
    const { runs } = JSON.parse(readFileSync(join(SHARED, 'golden/requests/metrics.json'), 'utf8')) as {
      readonly runs: Readonly<Record<string, Run>>;
    };
    const run = runs[name]!;
    const text = gunzipSync(readFileSync(join(SHARED, 'golden/requests', run.file))).toString();
    const golden = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Golden);
    const tasks = await tasksOf(run, library);
    const answers = answersOf(tasks, golden);
    const samples: Golden[] = [];
    const measured = tasks.map((task) => {
      const tally = new TaskTally(task);
      for (const document of task.documents) {
        const lines = sampleLines(tally.add(document, answers));
        expect(lines).toHaveLength(task.scores.filters.length);
        samples.push(JSON.parse(lines[0]!) as Golden);
      }
      return tally.finish(task.total);
    });
    const nodes = run.tasks.flatMap((each) => library.resolve(each));
    const groups = answersOfGroups(nodes, new Map(measured.map((each) => [each.task.name, each])));
    const found = taskResults(measured, groups);
    for (const block of BLOCKS) expect(found[block], block).toEqual(run[block]);
    if (run.configs !== undefined) expect(found['configs']).toEqual(withoutPython(run.configs));
    expect((await datasetOfTasks(tasks)).total).toBe(golden.length);
    expect(formatTable(found).split('\n').length).toBeGreaterThan(2);
    for (const [i, { doc_hash, prompt_hash, target_hash }] of golden.entries())
      expect(samples[i], `${name} ${i}`).toMatchObject({ doc_hash, prompt_hash, target_hash });
  });
});

it('writes null where nothing is measured, as the public harness does', () => {
  const document: DocumentRequests = {
    ...{ docId: 0, document: new Map(), target: '', gold: '', choices: undefined, hasManyTargets: false },
    requests: [],
  };
  const [line] = sampleLines({
    document,
    responses: [['a text']],
    measured: [{ filter: 'none', filtered: ['a text'], values: new Map([['bypass', 0]]) }],
    hashes: { document: '', prompt: '', target: '' },
  });
  expect(JSON.parse(line!)).toMatchObject({ metrics: ['bypass'], bypass: null });
});

it('counts a task twice in a group of two groups that have it', () => {
  const leaf = (name: string): TaskTree => ({ kind: 'task', name, settings: new Map() });
  const group = (name: string, members: readonly TaskTree[]): TaskTree => ({
    ...{ kind: 'group', name, alias: undefined, members, metadata: new Map<string, never>() },
    aggregates: [{ metric: 'acc', weightBySize: true }],
  });
  const figures = (documents: number, value: number): TaskFigures => ({
    documents,
    figures: new Map([['acc,none', { value, error: null }]]),
  });
  const outer = group('outer', [group('one', [leaf('a'), leaf('b')]), group('two', [leaf('a')])]);
  const found = answersOfGroups(
    [outer],
    new Map([
      ['a', figures(10, 1)],
      ['b', figures(5, 0)],
    ]),
  );
  expect(found.map((each) => [each.group.name, each.documents, each.figures.get('acc,none')?.value])).toEqual([
    ['one', 15, 10 / 15],
    ['two', 10, 1],
    ['outer', 25, 20 / 25],
  ]);
});
