/** Names of task files: tasks, groups, tags, includes and what groups pass down. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { TaskLibrary } from '../../tasks/definition/library.js';
import { type GroupNode, tasksBelow, withAsked, withoutRepeats } from '../../tasks/definition/settings.js';
import { parseYaml } from '../../tasks/definition/yaml.js';
import { toPlain } from './values.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-library-'));
afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

let folders = 0;
/** A library of these files. */
function library(files: Readonly<Record<string, string>>): TaskLibrary {
  const folder = join(root, String(folders++));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return new TaskLibrary([folder]);
}

const settings = (nodes: ReturnType<TaskLibrary['resolve']>, ...keys: string[]): unknown[] =>
  tasksBelow(nodes).map(({ name, settings: all }) => [name, ...keys.map((key) => all.get(key)?.value)]);

describe('a folder of task files', () => {
  it('has tasks, groups and tags, in whatever form they are written', () => {
    const all = library({
      'a.yaml': '"task": "a" # one\ntag:\n- t\n- u\ndataset_path: d\n',
      'b.yaml': "include: base\ntask: 'b'\n",
      base: 'tag: t\ndataset_path: e\ndescription: |\n  task: no\n',
      'c.yaml': 'dataset_path: >-\n  f\ngroup: c\ntask: [b, a]\n',
      'd.yaml': 'x: &tags [t, u]\ntag: *tags\ntask: d\n',
      'e.yaml': '{task: e, tag: u}\n',
      'f.yaml': 'task: null\n',
    });
    expect(all.unreadable).toEqual([]);
    expect([all.names('task'), all.names('group'), all.names('tag')]).toEqual([
      ['a', 'b', 'd', 'e'],
      ['c'],
      ['t', 'u'],
    ]);
    expect(settings(all.resolve('b'), 'dataset_path')).toEqual([['b', 'e']]);
    expect(tasksBelow(all.resolve('c')).map(({ name }) => name)).toEqual(['b', 'a']);
  });

  it.each(['../../out', 'a/b', 'a\\\\b', 'a\\nb', 'a\\0b', 'x'.repeat(201), 'é'.repeat(101), 'constructor'])(
    'has no task %j, after which no file or result can be named',
    (name) => {
      const written = `task: "${name}"\ndataset_path: d\n`;
      const all = library({ 'a.yaml': written, 'g.yaml': 'group: g\ntask: [{task: "c/d", dataset_path: d}]\n' });
      const [task] = all.names('task');
      expect(() => all.resolve(task!)).toThrow(/a\.yaml:1: task: ".* cannot name a task's files and results$/);
      expect(() => all.resolve('g')).toThrow(`task: "g::c/d" cannot name a task's files and results`);
    },
  );

  it('says of a name why its file cannot be read', () => {
    const all = library({
      'a.yaml': 'task: a\ninclude: none\n',
      'b.yaml': 'task: bb\n---\ntask: c\n',
      'long_b.yaml': 'task: long_b\ninclude: a.yaml\n',
      'abc.yaml': 'task: abc\ndataset_path: d\nmetadata: !!python/object/apply:f [1]\n',
    });
    expect(() => all.resolve('a')).toThrow(
      expect.objectContaining({ hint: expect.stringMatching(/: .*none: no such file$/) as string }) as Error,
    );
    // What a file includes is scanned for each that includes it, after a failure too.
    expect(all.unreadable.filter((message) => message.includes('include each other'))).toEqual([]);
    expect(all.unreadable).toContainEqual(expect.stringMatching(/b\.yaml: more than one document of YAML$/));
    expect(() => all.resolve('abc')).toThrow('abc.yaml:3: the tag "tag:yaml.org,2002:python/object/apply:f" is not');
  });

  it('has tasks of odd names', () => {
    const all = library({ 'a.yaml': 'task: "a b, é: -x"\ndataset_path: d\n' });
    expect(tasksBelow(all.resolve('a b, é: -x'))).toMatchObject([{ name: 'a b, é: -x' }]);
  });

  it('passes down what groups override, the innermost last', () => {
    const all = library({
      'a.yaml': 'task: a\ntag: t\ndataset_path: d\nnum_fewshot: 1\n',
      'b.yaml': 'task: b\ntag: t\ndataset_path: d\n',
      'g.yaml':
        'group: g\ngroup_alias: the group\nnum_fewshot: 2\ntask:\n- a\n- task: a\n  num_fewshot: 3\n- task: t\n' +
        '  num_fewshot: 4\n- group: inner\n  task: [b]\n  num_fewshot: 5\n- task: new\n  dataset_path: e\n' +
        'aggregate_metric_list:\n- metric: acc\n  weight_by_size: no\n  filter_list: [x, y]\n- metric: f1\n' +
        'metadata: {version: 2}\n',
    });
    const nodes = all.resolve('g');
    // If a group and a group inside it both have a key, the outer one wins, as in the public harness.
    // Three members have the name `a`, and the last of them is used.
    expect(settings(nodes, 'num_fewshot')).toEqual([
      ['a', 4],
      ['b', 4],
      ['b', 2],
      ['g::new', 2],
    ]);
    const group = nodes[0] as GroupNode;
    expect(group).toMatchObject({ kind: 'group', name: 'g', alias: 'the group' });
    expect(group.metadata.get('version')).toBe(2);
    expect(group.aggregates).toEqual([
      { metric: 'acc', weightBySize: false, filters: ['x', 'y'] },
      { metric: 'f1', weightBySize: true },
    ]);
    expect((group.members[2] as GroupNode).name).toBe('g::inner');
  });

  it.each([
    ['group: g\ntask: [g]\n', 'the group "g" contains itself'],
    ['group: g\ntask: [nothing]\n', 'no task, group or tag "nothing"'],
    ['group: g\ntask: [{x: 1}]\n', 'g.yaml:2: task: a member without "task" or "group"'],
    ['group: g\ntask: []\naggregate_metric_list: [{metric: acc, aggregation: median}]\n', 'g.yaml:3: aggregate_metric'],
    ['task: g\nclass: !function x.Y\n', 'g.yaml:2: class: a task that is written in Python'],
    ['task: g\nclasses: 1\n', 'g.yaml:2: classes: no key of a task'],
    ['task: g\ndescription: "x\n', 'g.yaml:3: not valid YAML'],
    [`task: g\nmetadata: ${'['.repeat(50_000)}\n`, 'g.yaml:2: not valid YAML: it is nested too deep'],
    ['task: g\ndescription: "x\n--- y"\n', 'g.yaml:2: not valid YAML'],
    ['task: g\ndescription: "x" "y\nz"\n', 'g.yaml:2: not valid YAML'],
    ['task: g\ndescription: {a: [b}]\n', 'g.yaml:2: not valid YAML'],
  ])('refuses %j', (text, message) => {
    expect(() => library({ 'g.yaml': text }).resolve('g')).toThrow(message);
  });

  it('reads quoted lines as PyYAML does, however they are indented', () => {
    const text = 'task: g\na:\n  - b: "x: \\"\ny\n\n  z\n"\n  - \'it\'\'s\n: fine\'\n  - "c\n  d"\ntag: u\n';
    const { values, lines } = parseYaml(text, 'g.yaml');
    expect(toPlain(values as never)).toEqual({
      task: 'g',
      a: [{ b: 'x: " y\nz ' }, "it's : fine", 'c d'],
      tag: 'u',
    });
    expect(lines.get('tag')).toBe(12);
  });

  it('suggests names, and says that a file cannot be read', () => {
    expect(() => library({ 'a.yaml': 'task: mmlu_law\n' }).resolve('law')).toThrow(
      expect.objectContaining({ hint: 'Similar names: mmlu_law' }) as Error,
    );
    expect(() => library({ 'a.yaml': 'task: hellaswag\n' }).resolve('hellswag')).toThrow(
      expect.objectContaining({ hint: 'Similar names: hellaswag' }) as Error,
    );
    expect(() => library({ 'a.yaml': 'task: t\n' }).resolve('my_tasks/')).toThrow('my_tasks: there is no such folder');
    const all = library({ 'a.yaml': 'task: *gone\n' });
    expect(() => all.resolve('a')).toThrow(
      expect.objectContaining({ hint: expect.stringContaining('a.yaml:1: ') as string }) as Error,
    );
    expect(() => new TaskLibrary([join(root, 'none')])).toThrow('no folder of task files');
  });

  it('of 3,000 files is scanned', () => {
    const files = Object.fromEntries(
      Array.from({ length: 3000 }, (_, i) => [
        `f/${i}.yaml`,
        `include: base\ntask: t${i}\ndescription: "${'long '.repeat(2000)}"\n`,
      ]),
    );
    library({ ...files, 'f/base': 'tag: all\n' });
    const all = new TaskLibrary([join(root, String(folders - 1))]);
    expect(tasksBelow(all.resolve('t7'))).toHaveLength(1);
    expect(all.names('task')).toHaveLength(3000);
  });
});

describe('YAML', () => {
  const read = (text: string): unknown => toPlain(parseYaml(text, 'x.yaml').values as never);

  it('has anchors, aliases and merge keys', () => {
    expect(read('a: &x {p: 1, q: 2}\nb: *x\nc: {<<: *x, q: 3}\nd: &x [y]\ne: *x\nf: {<<: [{g: 1}, {g: 2}]}\n')).toEqual(
      {
        a: { p: 1, q: 2 },
        b: { p: 1, q: 2 },
        c: { p: 1, q: 3 },
        d: ['y'],
        e: ['y'],
        f: { g: 1 },
      },
    );
  });

  it('does not grow without bound', () => {
    const levels = Array.from({ length: 12 }, (_, i) => `a${i + 1}: &a${i + 1} [${`*a${i},`.repeat(10)}]`);
    expect(() => read(`a0: &a0 x\n${levels.join('\n')}\n`)).toThrow('more than 500000 values');
    expect(() => read('a: &a [*a]\n')).toThrow(/x.yaml:1: /);
    expect(() => read('a: {<<: 3}\n')).toThrow('x.yaml:1: "<<" takes keys and values');
  });
});

describe('what can be asked for', () => {
  const all = library({
    'a_b.yaml': 'task: a_b\ntag: t\n',
    'a_c.yaml': 'include: base\ntask: a_c\n',
    base: 'dataset_path: d\n',
    'g.yaml': 'group: g\ntask: [a_b, a_c]\n',
    'sub/e.yaml': 'include: ../base\ntask: e\n',
    'sub/none.yaml': 'dataset_path: d\n',
  });
  const folder = join(root, String(folders - 1));

  it.each([
    ['a_*', ['a_b', 'a_c']],
    ['a_[!b]', ['a_c']],
    ['?', ['e', 'g', 'a_b']],
    [join(folder, 'a_c.yaml'), ['a_c']],
    [join(folder, 'a_?.yaml'), ['a_b', 'a_c']],
    [join(folder, 'g.yaml'), ['g']],
    [join(folder, 'sub', 'e.yaml'), ['e']],
  ])('%s', (name, expected) => {
    expect(all.resolve(name).map((node) => node.name)).toEqual(expected);
  });

  it.each([
    ['x*', 'no task, group or tag matches "x*"'],
    [join(folder, 'x.yaml'), 'there is no such task file'],
    [join(folder, 'x*.yaml'), 'there is no such task file'],
    [join(import.meta.filename, 'x.yaml'), 'there is no such task file'],
    [join(folder, 'sub'), 'neither "task" nor "group" names what it defines'],
  ])('%s is not there', (name, message) => {
    expect(() => all.resolve(name)).toThrow(message);
  });

  it('leaves out what is named again, by itself or within a group', () => {
    const names = (...asked: string[]): string[] =>
      withoutRepeats(asked.flatMap((name) => all.resolve(name))).map(({ name }) => name);
    expect(names('a_b', 'g', 'a_b')).toEqual(['g']);
    expect(names('e', 'e', 'a_b')).toEqual(['e', 'a_b']);
  });

  it('takes settings of generation over those of a task that generates', () => {
    const settings = new Map([['generation_kwargs', { value: new Map([['max_gen_toks', 5]]), where: 'f:1' }]]);
    const generation = new Map([['top_k', 3]]);
    expect(withAsked(settings, { generation }).get('generation_kwargs')?.value).toEqual(
      new Map([...[['max_gen_toks', 5] as const], ...generation]),
    );
    const choices = new Map([['output_type', { value: 'multiple_choice', where: 'f:1' }]]);
    expect(withAsked(choices, { generation, predictsOnly: true }).has('generation_kwargs')).toBe(false);
    expect(withAsked(choices, { predictsOnly: true }).get('metric_list')?.value).toEqual([
      new Map([['metric', 'bypass']]),
    ]);
  });
});
