/**
 * Blocks of results_*.json and lines of samples of tasks and groups of every kind, as the public harness's own code
 * gives them for the same files, documents and answers.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { taskResults } from '../../evaluate/results.js';
import { sampleLines } from '../../evaluate/samples.js';
import { formatTable } from '../../evaluate/table.js';
import { answersOfGroups, type TaskAnswers, TaskTally } from '../../evaluate/taskAnswers.js';
import { TaskLibrary } from '../../tasks/definition/library.js';
import { tasksBelow, withAsked } from '../../tasks/definition/settings.js';
import { buildRequests } from '../../tasks/requests/task.js';
import { TaskScores } from '../../tasks/scores/ofTask.js';

type Block = Readonly<Record<string, unknown>>;
interface Expected {
  readonly samples: Readonly<Record<string, readonly string[]>>;
  readonly [block: string]: Block;
}
interface Golden {
  readonly files: Readonly<Record<string, string>>;
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  /** By document, what every task that generates was answered. */
  readonly texts: readonly string[];
  /** By document and choice. */
  readonly likelihoods: readonly (readonly (readonly [number, boolean])[])[];
  readonly run: Expected & {
    readonly configs: Block;
    readonly hashes: Block;
    /** Cells of the tables of results and of groups, without space around them. */
    readonly tables: readonly (readonly (readonly string[])[])[];
  };
  readonly predicted: Expected;
}

const golden = JSON.parse(readFileSync(new URL('harnessBlocks.json', import.meta.url), 'utf8')) as Golden;
const root = mkdtempSync(join(tmpdir(), 'tilewright-blocks-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});
for (const [name, text] of Object.entries(golden.files)) writeFileSync(join(root, name), text);

async function answered(predictsOnly: boolean) {
  const nodes = new TaskLibrary([root]).resolve('outer');
  const rows = golden.rows.map((row) => new Map(Object.entries(row)));
  const tasks: TaskAnswers[] = [];
  const samples: Record<string, string[]> = {};
  for (const node of tasksBelow(nodes)) {
    const settings = withAsked(node.settings, { predictsOnly });
    const scores = new TaskScores(settings);
    const documents = await buildRequests(settings, () => Promise.resolve(rows));
    const shots = node.name === 'text' ? 1 : 0;
    const tally = new TaskTally({ name: node.name, settings, scores, shots, first: 0 });
    for (const document of documents) {
      const asked = golden.likelihoods[document.docId]!.slice(0, document.requests.length);
      const lines = sampleLines(
        tally.add(document, {
          scores: new Map([[document.docId, { ll: asked.map(([ll]) => ll), greedy: asked.map(([, flag]) => flag) }]]),
          texts: new Map([[document.docId, [[golden.texts[document.docId]!]]]]),
        }),
      );
      if (document.docId === 1) samples[node.name] = lines;
    }
    tasks.push(tally.finish(rows.length, 1000));
  }
  return {
    tasks,
    samples,
    found: taskResults(tasks, answersOfGroups(nodes, new Map(tasks.map((t) => [t.task.name, t])))),
  };
}

/** Numbers to 12 digits: sums may differ in the last bit. */
const near = (value: unknown): unknown =>
  typeof value === 'number' && !Number.isInteger(value)
    ? (expect.closeTo(value, 12) as unknown)
    : typeof value === 'object' && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).map(([key, item]) => [key, near(item)]))
      : value;

describe('a run of groups of groups and tasks of every kind', () => {
  it('has the blocks, samples and hashes of the public harness', async () => {
    const { tasks, samples, found } = await answered(false);
    const { run } = golden;
    for (const block of ['results', 'groups', 'versions', 'n-shot', 'higher_is_better', 'n-samples', 'group_subtasks'])
      expect(found[block], block).toEqual(near(run[block]));
    expect(Object.keys(found['group_subtasks'] as Block)).toEqual(Object.keys(run['group_subtasks']!));
    expect(samples).toEqual(run.samples);
    expect(Object.fromEntries(tasks.map(({ task, hash }) => [task.name, hash]))).toEqual(run.hashes);
    const configs = found['configs'] as Readonly<Record<string, Block>>;
    for (const [name, generation] of Object.entries(run.configs))
      expect(configs[name]?.['generation_kwargs'] ?? null, name).toEqual(generation);
  });

  it('is shown in the tables of the public harness', async () => {
    const { found } = await answered(false);
    const tables = formatTable(found)
      .split('\n\n')
      .map((table) => table.split('\n').map((line) => line.slice(1, -1).split('|')))
      .map(([head, _rule, ...rows]) => [head!, ...rows].map((cells) => cells.map((cell) => cell.trim())));
    expect(tables).toEqual(golden.run.tables);
  });

  it('has them where nothing is measured', async () => {
    const { samples, found } = await answered(true);
    const { samples: expected, ...blocks } = golden.predicted;
    for (const [block, content] of Object.entries(blocks)) expect(found[block], block).toEqual(content);
    expect(samples).toEqual(expected);
  });
});
