/** Two runs compared from their files: which questions, which figures, and files that are amiss. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { comparisonText } from '../../cli/compareText.js';
import { compare } from '../../commands/compare.js';
import { UserError } from '../../errors.js';
import type { Comparison } from '../../evaluate/compare/compareRuns.js';
import { letter } from '../../report/document/questions.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-compare-'));
afterAll(() => rmSync(root, { recursive: true }));

const DATE = '2026-01-31T10-20-30.123000';
let made = 0;
/** A line of a file: a question, the log-likelihoods of its choices, and the right one. */
interface Line {
  readonly id?: number;
  readonly text?: string;
  readonly ll?: readonly (number | string)[];
  readonly gold?: number;
  readonly more?: object;
}

const sample = (i: number, { id = i, text = `question ${i}`, ll = [], gold = 0, more = {} }: Line): object => ({
  doc_id: id,
  doc: { text },
  target: String(gold),
  arguments: Object.fromEntries(ll.map((_, c) => [`gen_args_${c}`, { arg_0: text, arg_1: ` ${c}` }])),
  resps: ll.map((each) => [[String(each), 'False']]),
  filtered_resps: ll.map((each) => [String(each), 'False']),
  filter: 'none',
  metrics: ['acc'],
  acc: ll.indexOf(ll.reduce((most, each) => (Number(each) > Number(most) ? each : most), ll[0] ?? 0)) === gold ? 1 : 0,
  ...more,
});

const jsonl = (lines: readonly object[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join('');
const write = (tasks: Readonly<Record<string, readonly object[]>>, results: object = {}): string => {
  const folder = join(root, `run${made++}`, 'model');
  mkdirSync(folder, { recursive: true });
  for (const [task, lines] of Object.entries(tasks))
    writeFileSync(join(folder, `samples_${task}_${DATE}.jsonl`), jsonl(lines));
  const blocks = Object.fromEntries(Object.entries(tasks).map(([task, lines]) => [task, { sample_len: lines.length }]));
  writeFileSync(join(folder, `results_${DATE}.json`), JSON.stringify({ results: blocks, ...results }));
  return join(folder, '..');
};
const lines = (...all: readonly Line[]): object[] => all.map((line, i) => sample(i, line));
const task = (comparison: Comparison) => comparison.tasks[0]!;
const problem = (call: () => unknown): string => {
  try {
    call();
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
  throw new Error('nothing was refused');
};

describe('choices', () => {
  const a = write({ t: lines({ ll: [-1, -2] }, { ll: [-1, -1.5] }, { ll: [-3, -2] }, { ll: [-4, -9], gold: 1 }) });
  const b = write({ t: lines({ ll: [-1, -2] }, { ll: [-2.5, -1.5] }, { ll: [-1.75, -2] }, { ll: [-4, -9], gold: 1 }) });

  it('are counted with their leads, and log-likelihoods with the place of the worst', () => {
    const { questions, metrics, likelihoods, choices } = task(compare(a, b));
    expect(questions.common).toBe(4);
    expect(metrics[0]).toMatchObject({ metric: 'acc', a: 0.5, b: 0.5, flips: { rightToWrong: 1, wrongToRight: 1 } });
    expect(metrics[0]!.test).toEqual({ name: 'exact McNemar', p: 1 });
    expect(likelihoods).toEqual({
      ...{ count: 8, equal: 6, notFinite: 0, meanAbsolute: 2.75 / 8, mean: -0.25 / 8 },
      worst: { difference: 1.5, docId: 1, choice: 0 },
    });
    expect(choices!.changed).toEqual([
      { docId: 1, a: 0, b: 1, marginA: 0.5, marginB: 1 },
      { docId: 2, a: 1, b: 0, marginA: 1, marginB: 0.25 },
    ]);
    expect(choices!.marginsOfChanged).toEqual({ least: 0.5, median: 0.75, greatest: 1 });
  });

  it('are equal to the bit where the runs are', () => {
    const same = compare(a, a);
    expect(task(same)).toMatchObject({ isEqual: true, choices: { changed: [] } });
    expect(same.summary).toBe('B and A answer the same, to the bit, in all 4 questions');
  });

  it('whose log-likelihoods are no numbers are left out and counted', () => {
    const odd = write({ t: lines({ ll: ['nan', -2] }, { ll: [-1, '-inf'] }, { ll: [-3, -2] }, { ll: [-4, -9] }) });
    const { likelihoods, choices } = task(compare(a, odd));
    expect(likelihoods).toMatchObject({ count: 6, notFinite: 2, equal: 6 });
    expect(choices).toMatchObject({ questions: 3, changed: [] });
  });

  it('of −inf are below every other, and of equal ones the first is taken', () => {
    const [zero, nan] = ['-inf', 'nan'];
    const before = write({ t: lines({ ll: [-1, zero] }, { ll: [zero, zero] }, { ll: [zero, -2] }, { ll: [-1, nan] }) });
    const after = write({ t: lines({ ll: [zero, -1] }, { ll: [zero, -5] }, { ll: [zero, -2] }, { ll: [nan, -1] }) });
    const comparison = compare(before, after);
    expect(task(comparison).choices).toEqual({
      questions: 3,
      changed: [
        { docId: 0, a: 0, b: 1, marginA: null, marginB: null },
        { docId: 1, a: 0, b: 1, marginA: 0, marginB: null },
      ],
      marginsOfChanged: { least: 0, median: null, greatest: null },
      margins: { least: 0, median: null, greatest: null },
    });
    expect(JSON.parse(JSON.stringify(comparison))).toEqual(comparison);
    expect(comparisonText(comparison)).toContain(
      '2 of 3 changed (66.67 %), at leads in A of 0 to ∞, half of them below ∞',
    );
  });

  it('are named by letters, as in the report', () => {
    expect(comparisonText(compare(a, b))).toContain('worst |Δ| 1.50 (question 1, choice A)');
    expect([letter(0), letter(25), letter(26)]).toEqual(['A', 'Z', '27']);
  });
});

describe('questions', () => {
  const a = write({ t: lines({ ll: [-1, -2] }, { ll: [-1, -2] }, { ll: [-1, -2] }) });

  it('are matched by number and document, else by document', () => {
    const b = write({
      t: [
        sample(0, { ll: [-1, -2] }),
        sample(1, { id: 7, ll: [-1, -3] }),
        sample(2, { text: 'another', ll: [-1, -2] }),
      ],
    });
    const { questions, likelihoods } = task(compare(a, b));
    expect(questions).toEqual({
      ...{ common: 2, onlyA: 1, onlyB: 1, namesOfA: [2], namesOfB: [2] },
      ...{ renumbered: 1, otherContent: 1, otherPrompt: 0 },
    });
    expect(likelihoods!.worst).toEqual({ difference: 1, docId: 1, choice: 1 });
  });

  it('that were asked differently are counted', () => {
    const shots = lines({ ll: [-1, -2] }, { ll: [-1, -2] }, { ll: [-1, -2] }).map((each) => ({
      ...each,
      arguments: { gen_args_0: { arg_0: 'shots', arg_1: ' 0' } },
    }));
    expect(task(compare(a, write({ t: shots }))).questions).toMatchObject({ common: 3, otherPrompt: 3 });
  });

  it('of older harnesses have lists of requests and no filter', () => {
    const old = lines({ ll: [-1, -2] }, { ll: [-1, -2] }, { ll: [-1, -2] }).map((each) => ({
      ...{ ...each, filter: undefined, metrics: undefined, acc: 1 },
      arguments: ['0', '1'].map((c) => [(each as { doc: { text: string } }).doc.text, ` ${c}`]),
      filtered_resps: [
        [-1, false],
        [-2, false],
      ],
    }));
    const b = write({ t: old }, { results: { t: { 'acc,none': 1, 'acc_stderr,none': 0 } } });
    const found = task(compare(a, b));
    expect(found).toMatchObject({ isEqual: true, questions: { common: 3, otherPrompt: 0 } });
    expect(found.metrics[0]).toMatchObject({ metric: 'acc', a: 1, b: 1 });
  });
});

it('texts are compared character by character', () => {
  const line = (text: string): Line => ({
    more: {
      ...{ arguments: { gen_args_0: { arg_0: 'write', arg_1: { until: ['\n'] } } } },
      ...{ resps: [[text]], filtered_resps: [text], metrics: ['exact_match'], exact_match: 0.25 },
    },
  });
  const a = write({ t: lines(line('four'), line('a 🙂 face'), line('12')) });
  const b = write({ t: lines(line('four'), line('a 🙂 fact'), line('123')) });
  const { texts, likelihoods, choices, metrics } = task(compare(a, b));
  expect([likelihoods, choices]).toEqual([null, null]);
  expect(texts).toEqual({
    ...{ questions: 3, equal: 1, first: { least: 2, median: 4.5, greatest: 7 } },
    differing: [
      { docId: 1, first: 7 },
      { docId: 2, first: 2 },
    ],
  });
  expect(metrics[0]).toMatchObject({ metric: 'exact_match', test: { name: 'sign flips', p: 1 }, flips: null });
});

it('groups are pooled as their files pool them', () => {
  const x = lines({ ll: [-1, -2] }, { ll: [-1, -2] }, { ll: [-1, -2] }),
    y = lines({ ll: [-1, -2] });
  const run = (acc: number, second: readonly object[]): string =>
    write(
      { x, y: second },
      {
        results: {
          ...{ x: { sample_len: 3, 'acc,none': 1 }, y: { sample_len: 1, 'acc,none': second === y ? 1 : 0 } },
          g: { 'acc,none': acc },
        },
        group_subtasks: { g: ['x', 'y'], x: [], y: [] },
      },
    );
  const wrong = lines({ ll: [-3, -2] });
  const group = (a: string, b: string) => compare(a, b).groups[0]!.metrics[0]!;
  // The file has 0.75 and 0.5. They are pooled by number of questions, and with every task counted alike.
  expect(group(run(0.75, wrong), run(1, y))).toMatchObject({ a: 0.75, b: 1, difference: 0.25, questions: 4 });
  expect(group(run(0.75, wrong), run(1, y)).test!.name).toBe('exact McNemar');
  expect(group(run(0.5, wrong), run(1, y))).toMatchObject({ a: 0.5, b: 1, difference: 0.5 });
  expect(compare(run(0.75, wrong), run(1, y)).verdicts.map(({ name }) => name)).toEqual(['g']);
  // A figure that Python writes as NaN is none.
  const odd = run(0.5, wrong);
  const path = join(odd, 'model', `results_${DATE}.json`);
  const text = readFileSync(path, 'utf8').replace('"results":{', '"results":{"z":{"sample_len":1,"acc,none":NaN},');
  writeFileSync(path, text.replace('["x","y"]', '["x","y","z"]'));
  expect(group(odd, run(1, y))).toMatchObject({ a: 0.5, b: 1 });
});

it('groups that are in each other many times are looked into once', () => {
  const subtasks = { x: [], g: ['x', 'h', 'h'], h: ['g', 'g'] };
  const results = { x: { sample_len: 1, 'acc,none': 1 }, g: { 'acc,none': 1 }, h: { 'acc,none': 1 } };
  const folder = write({ x: lines({ ll: [-1, -2] }) }, { results, group_subtasks: subtasks });
  expect(compare(folder, folder).groups.map(({ group, tasks }) => [group, ...tasks])).toEqual([
    ['g', 'x'],
    ['h', 'x'],
  ]);
});

describe('what is amiss', () => {
  const good = write({ t: lines({ ll: [-1, -2] }, { ll: [-1, -2] }) });
  const folder = (files: Readonly<Record<string, string>>): string => {
    const path = join(root, `bad${made++}`);
    mkdirSync(path);
    for (const [name, text] of Object.entries(files)) {
      if (name.includes('/')) mkdirSync(join(path, name, '..'), { recursive: true });
      writeFileSync(join(path, name), text);
    }
    return path;
  };
  const broken = (samples: string): string =>
    folder({ [`results_${DATE}.json`]: '{"results":{"t":{}}}', [`samples_t_${DATE}.jsonl`]: samples });

  it.each([
    ['no folder', join(root, 'none'), /none: no such file/],
    ['an empty folder', folder({}), /no results_\*\.json in it/],
    ['a journal', folder({ 'm/journal_t_12345678.jsonl': '' }), /a run that has not finished/],
    ['shards', folder({ 'm/shard-1-of-2/x': '' }), /holds shards of a run/],
    ['half of the results', folder({ [`results_${DATE}.json`]: '{"results": {' }), /not valid JSON/],
    ['other JSON', folder({ [`results_${DATE}.json`]: '[]' }), /not what a run writes/],
    ['no samples', folder({ [`results_${DATE}.json`]: '{"results":{"t":{}}}' }), /t: no samples_\*\.jsonl in B/],
    ['another task', write({ u: lines({ ll: [-1, -2] }) }), /no task is in both: .* has t, .* has u/],
    ['another question', write({ t: lines({ text: 'else', ll: [-1] }) }), /no question is in both: of t/],
    ['lines that are none', broken('hello\n'), /jsonl:1: not valid JSON/],
    ['lines without numbers', broken('{"doc_id":"0"}\n'), /jsonl:1: not a sample/],
    ['a deep line', broken(`{"doc_id":0,"doc":${'['.repeat(999)}`), /jsonl:1: nested more than 200 deep/],
    ['a question that comes twice', broken(jsonl([...lines({ ll: [-1] }), ...lines({ ll: [-1] })])), /comes twice/],
    ['a list', broken('[\n{"doc_id":0}]'), /wrote before 0\.4\.3/],
    ['nothing', broken(''), /holds no samples/],
  ])('%s is one line', (_, path, message) => {
    const found = problem(() => compare(good, path));
    expect(found).toMatch(message);
    expect(found).not.toContain('\n');
  });

  it('a last line that was cut off is left out', () => {
    const whole = jsonl(lines({ ll: [-1, -2] }, { ll: [-1, -2] }));
    const { questions, notes } = task(compare(good, broken(whole.slice(0, -40))));
    expect(questions).toMatchObject({ common: 1, onlyA: 1 });
    expect(notes).toEqual([expect.stringMatching(/jsonl:2: the line was cut off/)]);
  });

  it('metrics that are NaN, as Python writes it, or no numbers are left out', () => {
    const odd = jsonl(lines({ ll: [-1, -2] }, { ll: [-1, -2] })).replace('"acc":1', '"acc":NaN');
    const { metrics, notes } = task(compare(good, broken(odd)));
    expect(metrics[0]).toMatchObject({ questions: 1, a: 1, b: 1 });
    expect(notes).toEqual(['acc,none: left out, for want of a finite number: 1 question of 2']);
  });
});
