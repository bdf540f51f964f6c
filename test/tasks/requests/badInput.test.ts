/** Task files and data that cannot be used: one clear line each. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type Dict, Float, type PyValue } from '../../../python/value.js';
import { openSplit } from '../../../tasks/data/splits.js';
import { TaskLibrary } from '../../../tasks/definition/library.js';
import { type TaskSettings, tasksBelow } from '../../../tasks/definition/settings.js';
import { parseYaml, plainScalar } from '../../../tasks/definition/yaml.js';
import { buildRequests, openTask } from '../../../tasks/requests/task.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-tasks-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

const BASE = 'dataset_path: d\ntest_split: test\noutput_type: multiple_choice\ndoc_to_choice: [x, y]\n';
const ROWS: readonly Dict[] = ['a', 'b'].map(
  (q, i) =>
    new Map<string, PyValue>([
      ['q', q],
      ['label', i],
    ]),
);

function settingsOf(folder: string, task: string): TaskSettings {
  return tasksBelow(new TaskLibrary([join(root, folder)]).resolve(task))[0]!.settings;
}

let tasks = 0;
/** Requests of a task with these lines. */
function build(lines: string, shots = 0): ReturnType<typeof buildRequests> {
  const folder = `task${tasks++}`;
  write(`${folder}/t.yaml`, `task: t\n${lines}`);
  const read = (): Promise<readonly Dict[]> => Promise.resolve(ROWS);
  return buildRequests(settingsOf(folder, 't'), read, { shots });
}

describe('a split without rows', () => {
  it('is named with its task and file', async () => {
    write('empty/t.yaml', `task: t\n${BASE}doc_to_text: q\ndoc_to_target: label\n`);
    write('empty/x.jsonl', '');
    const options = new Map([['data_files', join(root, 'empty/x.jsonl')]]);
    const read = (): AsyncGenerator<Dict> => openSplit({}, 'json', undefined, 'test', options);
    await expect(buildRequests(settingsOf('empty', 't'), read)).rejects.toThrow(
      /t\.yaml.*: the split "test" has no rows: .*\/empty\/x\.jsonl$/,
    );
  });
});

describe('settings of data', () => {
  it.each([
    ['dataset_path: json\n', 'dataset_path: "json" needs dataset_kwargs with data_files of the split "test"'],
    [
      'dataset_path: json\ndataset_kwargs: {field: x}\n',
      'dataset_kwargs: "field" is not supported; there are data_files',
    ],
    ['dataset_path: a b\n', 'dataset_path: "a b" is no name of a data set'],
  ])('%j are named with their file', async (lines, message) => {
    write('settings/a.yaml', `task: a\ntest_split: test\ndoc_to_text: q\ndoc_to_target: q\n${lines}`);
    const read = openSplit.bind(undefined, { root, hubCaches: [] });
    const opened = await openTask(settingsOf('settings', 'a'), (...asked) => read(...asked));
    const line = lines.includes('kwargs') ? 6 : 5;
    await expect(opened.documents().next()).rejects.toThrow(`settings/a.yaml:${line}: ${message}`);
  });
});

describe('a task file', () => {
  it.each([
    ['doc_to_texts: q\n', 't.yaml:2: doc_to_texts: no key of a task that is supported'],
    [
      `${BASE}doc_to_text: !function utils.f\ndoc_to_target: label\n`,
      'doc_to_text: the Python function utils.f is not supported',
    ],
    [
      `${BASE}doc_to_text: "{{q|shout}}"\ndoc_to_target: label\n`,
      "t.yaml:6: doc_to_text: TemplateAssertionError: No filter named 'shout'",
    ],
    [
      `${BASE}doc_to_text: "{{missing}}"\ndoc_to_target: label\n`,
      "doc_to_text, document 0: UndefinedError: 'missing' is undefined",
    ],
    [`${BASE}doc_to_target: label\n`, 'doc_to_text or doc_to_target is missing'],
    [`${BASE}doc_to_text: q\ndoc_to_target: label\nfewshot_config: {sampler: balanced}\n`, 'no sampler balanced'],
    ['output_type: multiple_choice\n', 'dataset_path is missing'],
    ['dataset_path: d\n', 'neither test_split nor validation_split'],
  ])('with %j is refused', async (lines, message) => {
    await expect(async () => build(lines)).rejects.toThrow(message);
  });

  it('asks for more shots than there are', async () => {
    await expect(build(`${BASE}doc_to_text: q\ndoc_to_target: label\n`, 3)).rejects.toThrow(
      '3 shots asked, but there are 2 examples',
    );
  });

  it('does not include itself or leave its folder', () => {
    write('cycle/a.yaml', 'include: b.yaml\ntask: a\n');
    write('cycle/b.yaml', 'include: a.yaml\ntask: b\n');
    write('cycle/c.yaml', 'include: ../../../etc/passwd\ntask: c\n');
    write('cycle/d.yaml', 'task: d\n x: : y\n');
    const folder = new TaskLibrary([join(root, 'cycle')]);
    expect(() => folder.resolve('a')).toThrow('no task, group or tag "a"');
    expect(() => folder.resolve('c')).toThrow('no task, group or tag "c"');
    expect(() => folder.resolve('d')).toThrow('no task, group or tag');
    expect(folder.unreadable).toHaveLength(4);
  });

  it('is YAML 1.1 as PyYAML reads it', () => {
    expect(
      ['yes', 'off', 'y', 'n', '~', '010', '1_000', '0x1F', '1e3', '1.0', '-.inf', '1:30'].map(plainScalar),
    ).toEqual([true, false, 'y', 'n', null, 8, 1000, 31, '1e3', new Float(1), new Float(-Infinity), 90]);
    expect(parseYaml('a: !!null\nb: !!str 1\n', 'x.yaml').values).toEqual(
      new Map([
        ['a', null],
        ['b', '1'],
      ] as const),
    );
    expect(() => parseYaml('a: *b\n', 'x.yaml')).toThrow('x.yaml:1: ');
    expect(() => parseYaml('- a\n', 'x.yaml')).toThrow('x.yaml: expected keys and values');
    expect(() => parseYaml('a: !!python/object:os.system x\n', 'x.yaml')).toThrow('is not supported');
    expect(() => parseYaml(`a: ${'['.repeat(100)}${']'.repeat(100)}\n`, 'x.yaml')).toThrow('nested more than 40 deep');
  });
});

describe('documents that are asked for by number', () => {
  const settings = (): TaskSettings => {
    write('only/t.yaml', `task: t\n${BASE}doc_to_text: q\ndoc_to_target: label\n`);
    return settingsOf('only', 't');
  };
  const made = async (only: ReadonlySet<number>): Promise<unknown[]> => {
    const found: unknown[] = [];
    const { documents } = await openTask(settings(), () => Promise.resolve(ROWS), { only, limit: 1 });
    for await (const { docId, index, document } of documents()) found.push([docId, index, document.get('q')]);
    return found;
  };

  it('are made alone', async () => {
    expect(await made(new Set([1]))).toEqual([[0, 1, 'b']]);
    expect(await made(new Set([1, 0]))).toEqual([
      [0, 0, 'a'],
      [1, 1, 'b'],
    ]);
  });

  it('must be there', async () => {
    await expect(made(new Set([0, 7]))).rejects.toThrow('document 7 is asked for, and there are 2, from 0');
  });
});
