/** What a page holds of questions: rows of several runs, answers, texts, and what files have that is odd. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { collectReport } from '../../report/collect/collectReport.js';
import { collectComparison } from '../../report/collect/comparison.js';
import { loadRuns } from '../../report/collect/loadRuns.js';
import { breakdownsOf, calibrationOf, confidenceOf, marginsOf, wilson } from '../../report/collect/results.js';
import type { QuestionsDocument, QuestionTexts } from '../../report/document/questions.js';
import { type SampleOf, writeRun } from '../support/results.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-questions-'));
afterAll(() => rmSync(root, { recursive: true }));
let made = 0;
const run = (tasks: Readonly<Record<string, readonly SampleOf[]>>): string => writeRun(join(root, `r${made++}`), tasks);
const collect = (...runs: string[]): { questions: QuestionsDocument; texts: QuestionTexts; names: string[] } => {
  const blocks = [...collectReport({ runs, writer: '', now: new Date(0) }).blocks];
  const of = <T>(name: string): T => blocks.find((each) => each.name === name)!.content as T;
  return {
    questions: of('questions'),
    texts: blocks.filter(({ name }) => name.startsWith('questions.texts')).flatMap(({ content }) => content as never),
    names: blocks.map(({ name }) => name),
  };
};

describe('questions', () => {
  it('have answers of every run, also where only one has them', () => {
    const a = run({ t: [{ lls: [-1, -2] }, { lls: [-3, -2.00004] }, { lls: [-5, -1], gold: 1 }] });
    const b = run({ t: [{ lls: [-3, -2] }, { id: 7, lls: [-1, -9], context: 'Question 1', gold: 0 }] });
    const { questions, names } = collect(a, b);
    expect(names).toEqual(['about', 'results', 'comparison', 'questions', 'questions.texts.0']);
    expect(questions).toMatchObject({ docIds: [0, 1, 2, 7], golds: [0, 0, 1, 0], metrics: ['acc'], blocks: [0] });
    expect(questions.tasks).toEqual([{ task: 't', firstRow: 0, rows: 4 }]);
    const [first, second] = questions.answers;
    expect(first!.lls).toEqual([[-1, -2], [-3, -2], [-5, -1], null]);
    expect(first!.margins).toEqual([1, -1, 4, null]);
    expect(first!.values).toEqual([[1, 0, 1, null]]);
    expect(second!.chosen).toEqual([1, -1, -1, 0]);
  });

  it('have texts without the examples that others begin with, and choices from where they differ', () => {
    const shots = 'Q: one\nA: 1\n\nQ: two\nA: 2\n\n';
    const odd = {
      arguments: { a: { arg_0: 'The cat sat', arg_1: ' down' }, b: { arg_0: 'The dog sat', arg_1: ' down' } },
    };
    const folder = run({
      t: [
        { lls: [-1, -2], context: `${shots}Q: three\nA:` },
        { lls: [-1, -2], context: `${shots}Q: thirty\nA:` },
        { lls: [-1, -2], more: odd },
      ],
    });
    const { texts } = collect(folder);
    expect(texts.map(({ context, shots: skip }) => context.slice(skip))).toEqual([
      'Q: three\nA:',
      'Q: thirty\nA:',
      'The ',
    ]);
    expect(texts[2]!.choices).toEqual(['cat sat down', 'dog sat down']);
  });

  it('are right or wrong by each of many metrics, as a comparison of runs may link to any', () => {
    const names = ['acc', 'bleu_acc', 'rouge1_acc', 'rouge2_acc', 'rougeL_acc', 'bleurt_acc'];
    const values = Object.fromEntries(names.map((name, i) => [name, i % 2]));
    const { questions } = collect(run({ t: [{ lls: [-1, -2], more: { metrics: names, ...values } }] }));
    expect(questions.metrics.toSorted()).toEqual(names.toSorted());
  });

  it('have texts without examples of their own, which no other question has', () => {
    const own = (i: number): string => `What is the ${i}th of all numbers that anybody counts?\n\nThink about it.`;
    const asked = (i: number) => ({
      ...{ lls: [-1, -2], context: `Q: an example of ${i}\nA: 1\n\nQ: ${own(i)}\nA:` },
      doc: { query: own(i), subject: 'numbers' },
    });
    const { texts } = collect(run({ t: [asked(1), asked(2), { ...asked(3), doc: { query: own(4) } }] }));
    expect(texts.map(({ context, shots }) => context.slice(shots))).toEqual([
      ...[1, 2].map((i) => `Q: ${own(i)}\nA:`),
      // Nothing says where it begins.
      asked(3).context,
    ]);
  });

  it('may have log-likelihoods that are no numbers, and texts that are too long', () => {
    const long = 'x'.repeat((1 << 20) + 5);
    const { questions, texts } = collect(
      run({ t: [{ lls: ['nan', -2] }, { lls: ['-inf', -2] }, { lls: [-1, -2], context: long }] }),
    );
    expect(questions.answers[0]!.lls.slice(0, 2)).toEqual([
      ['nan', -2],
      ['-inf', -2],
    ]);
    expect(questions.answers[0]!.chosen).toEqual([-1, 1, 0]);
    expect(questions.answers[0]!.margins).toEqual([null, null, 1]);
    expect([texts[2]!.context.length, texts[2]!.cut]).toEqual([1 << 20, 5]);
  });

  it('that ask for texts have them', () => {
    const more = {
      ...{ arguments: { a: { arg_0: 'write', arg_1: { until: ['.'] } } }, target: 'four' },
      ...{ resps: [['five']], filtered_resps: ['five'], acc: 0 },
    };
    const { texts, questions } = collect(run({ t: [{ lls: [-1], more }] }));
    expect(texts[0]).toMatchObject({ context: 'write', choices: [], target: 'four', outputs: [['five']] });
    expect(questions.answers[0]).toMatchObject({ lls: [null], chosen: [-1], margins: [null], values: [[0]] });
  });
});

describe('figures of questions', () => {
  const many = Array.from({ length: 80 }, (_, i): SampleOf => ({
    lls: i % 4 === 0 ? [-1, -1 - Math.log(3)] : [-1 - Math.log(3), -1],
    gold: i % 8 === 0 ? 1 : 0,
    context: 'x'.repeat(i < 40 ? 10 : 20 + (i % 2)),
    doc: { kind: i < 40 ? 'short' : 'long', id: `own ${i}` },
  }));
  const task = loadRuns([run({ t: many })])[0]!.tasks.get('t')!;

  it('are broken down by length and by category', () => {
    const [length, ...others] = breakdownsOf('t', task);
    const kind = others.find(({ by }) => by === 'kind');
    expect(length!.slices.map(({ label, questions }) => `${label}: ${questions}`)).toEqual([
      '10: 40',
      '20: 20',
      '21: 20',
    ]);
    expect(kind).toMatchObject({ by: 'kind', kind: 'category', metrics: ['acc'] });
    expect(kind!.slices.map(({ label, right }) => [label, ...right])).toEqual([
      ['long', 5],
      ['short', 5],
    ]);
    expect(kind!.slices[0]!.intervals[0]).toEqual(wilson(5, 40));
  });

  it('say how sure the model is, and how right', () => {
    expect(confidenceOf(Float64Array.of(-1, -1 - Math.log(3)), 0)).toBeCloseTo(0.75, 12);
    const { ece, bins, questions } = calibrationOf('t', [task])!;
    expect(questions).toBe(80);
    expect(bins[7]).toMatchObject({ questions: 80, accuracy: 10 / 80 });
    expect(ece).toBeCloseTo(0.75 - 10 / 80, 12);
    const margins = marginsOf('t', [task])!;
    expect(margins.median).toBeCloseTo(-Math.log(3), 12);
    expect(margins.bins.reduce((sum, bin) => sum + bin.questions, 0)).toBe(80);
    expect(margins.bins.filter(({ from }) => from < 0).reduce((sum, bin) => sum + bin.questions, 0)).toBe(70);
  });
});

it('of an older harness are read as they are', () => {
  const old = {
    arguments: [
      ['Why?', ' a'],
      ['Why?', ' b'],
    ],
    ...{ resps: [[[-1, false]], [[-2, false]]], filter: undefined, metrics: undefined, acc: 1 },
    filtered_resps: [
      [-1, false],
      [-2, false],
    ],
  };
  const results = { results: { t: { 'acc,none': 1, 'acc_stderr,none': 'N/A', alias: 't' } } };
  const folder = writeRun(join(root, 'old'), { t: [{ lls: [-1, -2], more: old }] }, results);
  const { questions, texts } = collect(folder);
  expect(questions.answers[0]).toMatchObject({ lls: [[-1, -2]], chosen: [0], margins: [1], values: [[1]] });
  expect(texts[0]).toMatchObject({ context: 'Why?', choices: [' a', ' b'] });
});

describe('comparisons', () => {
  it('name the runs, and those that have nothing in common', () => {
    const a = run({ t: [{ lls: [-1, -2] }, { lls: [-1, -2] }] });
    const b = run({ t: [{ lls: [-3, -2] }, { lls: [-1, -2] }] });
    const { comparisons, apart } = collectComparison(loadRuns([a, b, run({ other: [{ lls: [-1, -2] }] })]))!;
    expect(comparisons[0]).toMatchObject({ first: 0, other: 1, questions: [{ task: 't', common: 2 }] });
    expect(comparisons[0]!.metrics[0]).toMatchObject({ name: 't', metric: 'acc', first: 1, other: 0.5, lost: 1, p: 1 });
    expect(comparisons[0]!.summary).toMatch(/^r\d+ \(made\) is 50\.0 points lower in acc/);
    expect(apart).toEqual([{ run: 2, why: expect.stringMatching(/no task is in both/) as string }]);
  });
});
