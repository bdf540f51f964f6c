/** Numbers in headings, summaries and links are those of the tables and lists that they speak of. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { collectExplored, type ExploreSections } from '../../commands/explore.js';
import { report } from '../../commands/report.js';
import { writePage } from '../../report/writePage.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { type SampleOf, writeRun } from '../support/results.js';
import { jobLine, madeTrace, peaksLine, trialLine } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-counts-'));
afterAll(() => rmSync(root, { recursive: true }));
const [reportPage, explorePage] = [join(root, 'report.html'), join(root, 'explore.html')];
let sections: ExploreSections;

/** More tasks than a chart draws, of 2 to 68 questions; in the second run others are right, and some are missing. */
const NUMBERS = Array.from({ length: 66 }, (_, task) => task);
const answers = (task: number, isSecond: boolean): SampleOf[] =>
  Array.from({ length: task + (isSecond && task % 5 === 0 ? 1 : 2) }, (_, i) => ({
    lls: (i + task) % 3 > 0 !== (isSecond && i % 4 === 1) ? [-1, -1.2 - i / 10] : [-1.2 - i / 10, -1],
  }));
const runOf = (name: string, isSecond: boolean): string =>
  writeRun(join(root, name), {
    ...Object.fromEntries(NUMBERS.map((task) => [`task_${task}`, answers(task, isSecond)])),
    [`only_${name}`]: answers(3, false),
  });

function writeTrace(): string {
  const path = join(root, 'run.trace.json');
  const made = madeTrace({ devices: 2, stages: 2, layers: 8, batches: 20 });
  const traceEvents = made.traceEvents.map((event) => {
    const { name, cat, args } = event as { name?: string; cat?: string; args?: object };
    return cat === 'kernel' && name?.endsWith('attention.mix')
      ? { ...event, args: { ...args, shareOfPeak: 1.5 } }
      : event;
  });
  // A line of the file that is no slice: it has a note.
  writeFileSync(path, JSON.stringify({ ...made, traceEvents: [...traceEvents, { ph: 'X', name: 'broken' }] }));
  return path;
}

/** Trials of 30 kernels; 25 of them failed for reasons of their own, more than a page names, and one without any. */
function writeTuning(): string {
  const path = join(root, 'records.jsonl');
  const keys = Array.from({ length: 40 }, (_, i) => i.toString(16).padStart(8, 'a'));
  const lines = keys.flatMap((key, i) => {
    const { failure: _, ...unknown } = trialLine(key, 1024, 128, [], 2 * i + 1) as { failure?: string };
    const failed = i === 0 ? unknown : { ...unknown, failure: `reason ${i}` };
    return [
      jobLine(key, 1024, 1, `layers.${i}.ffn.down`),
      trialLine(key, 1024, 64, [0.002], 2 * i),
      ...(i < 26 ? [failed] : [trialLine(key, 1024, 192, [0.0005], 2 * i + 1)]),
    ];
  });
  writeFileSync(path, [peaksLine(), ...lines].map((line) => JSON.stringify(line)).join('\n'));
  return path;
}

beforeAll(async () => {
  report({
    ...{ runs: [runOf('a', false), runOf('b', true)], traces: [writeTrace()], tuning: [writeTuning()] },
    ...{ output: reportPage, writer: 'tilewright test', now: new Date(0) },
  });
  const explored = await collectExplored({
    model: join(process.cwd(), 'models', 'demo', 'config.json'),
    ...{ init: { kind: 'random', seed: 1 }, precision: 'auto', isa: 'portable' },
  });
  // Measured faster than the roof allows: a product, and a kernel that only moves data.
  const kernels = explored.kernels.functions[0]!.kernels.map((kernel) =>
    kernel.path === 'head' || kernel.path === 'embed' ? { ...kernel, measuredSeconds: kernel.seconds / 1.5 } : kernel,
  );
  sections = {
    ...explored,
    kernels: { ...explored.kernels, functions: [{ ...explored.kernels.functions[0]!, kernels }] },
  };
  writePage(explorePage, {
    ...{ app: 'explore', title: explored.about.title },
    blocks: Object.entries(sections).map(([name, content]) => ({ name, content })),
  });
});

/** Cells of the first table whose caption begins with a text, by rows. */
const cellsOf = (shown: Page, caption: string): Promise<readonly (readonly string[])[]> =>
  shown.$$eval(
    'table',
    (tables, wanted) => {
      const found = tables.find((table) => (table.caption?.textContent ?? '').startsWith(wanted));
      return [...found!.tBodies[0]!.rows].map((row) => [...row.cells].map((cell) => cell.textContent ?? ''));
    },
    caption,
  );
const number = (text: string | undefined): number => Number((text ?? '').replaceAll(',', '').replace('−', '-'));
const sumOf = (rows: readonly (readonly string[])[], column: number): number =>
  rows.reduce((sum, row) => sum + number(row[column]), 0);
/** The numbers of a pattern's groups in a text. */
const numbersIn = (text: string | null, pattern: RegExp): readonly number[] =>
  (pattern.exec(text ?? '') ?? []).slice(1).map(number);

describe.skipIf(CHROMIUM === undefined)('counts of a report', () => {
  const browser = useBrowser();

  it('are those of its tables of results', async () => {
    const shown = await browser.open(reportPage);
    const rows = await cellsOf(shown, 'All figures');
    const [tasks] = numbersIn(await shown.textContent('.title p'), /^([\d,]+) tasks, 2 runs$/);
    const both = await cellsOf(shown, 'Figures of all runs');
    expect(tasks).toBe(both.length);
    expect(rows.length).toBe(67);
    const questions = await browser.open(reportPage, { hash: 'questions' });
    const [of, all] = numbersIn(await questions.textContent('.count'), /^([\d,]+) of ([\d,]+) questions$/);
    // Those of the first run, and the task that the second alone has.
    expect([of, all]).toEqual([sumOf(rows, 5) + 5, sumOf(rows, 5) + 5]);
    const [calibrated] = [sumOf(await cellsOf(shown, 'Calibration by probability'), 1)];
    const margins = sumOf(await cellsOf(shown, 'Questions by margin'), 1);
    const [close, withMargin] = numbersIn(await shown.textContent('main'), /([\d,]+) of ([\d,]+) questions are closer/);
    expect([calibrated, margins, withMargin]).toEqual([sumOf(rows, 5), sumOf(rows, 5), sumOf(rows, 5)]);
    await questions.getByLabel('Show', { exact: true }).selectOption('close');
    expect(numbersIn(await questions.textContent('.count'), /^([\d,]+) of/)).toEqual([close]);
    expect(await questions.locator('[role=option]').first().getAttribute('aria-setsize')).toBe(String(close));
  });

  it('are those of its comparison, and of the questions to which links lead', async () => {
    const shown = await browser.open(reportPage, { hash: 'comparison' });
    const text = await shown.textContent('main');
    const metrics = await cellsOf(shown, 'Metrics on the common questions');
    const ends = metrics
      .flatMap((row) => [(row[5] ?? '').split(' to ').map(number)])
      .filter((each) => each.length === 2);
    const apart = ends.filter(([from, to]) => from! > 0 || to! < 0).length;
    expect(numbersIn(text, /([\d,]+) of ([\d,]+) intervals? (?:is|are) off 0; the first ([\d,]+) are drawn\./)).toEqual(
      [...[apart, ends.length], 60],
    );
    expect(await shown.locator('figure:has-text("Differences") [aria-label=dot] circle').count()).toBe(60);
    const choices = await cellsOf(shown, 'The most likely choice');
    const counts = await shown.locator('.flips li').allTextContents();
    expect(counts.map((each) => number(/^[\d,]+/.exec(each)?.[0]))).toEqual([
      ...[sumOf(metrics, 8), sumOf(metrics, 9)],
      sumOf(choices, 2),
    ]);
    expect(numbersIn(text, /of ([\d,]+) take another choice/)).toEqual([sumOf(choices, 1)]);
    expect(numbersIn(text, /([\d,]+) questions are in both\./)).toEqual([sumOf(choices, 1)]);
    expect(numbersIn(text, /([\d,]+) questions of tasks that both have are only in a/)).toEqual([14]);
    for (let i = 0; i < 3; i++) {
      await shown.locator('.flips a').nth(i).click();
      const wanted = /^[\d,]+/.exec(counts[i]!)![0];
      await shown.getByText(new RegExp(`^${wanted} of [\\d,]+ questions$`)).waitFor();
      await shown.goBack();
      await shown.waitForSelector('.flips');
    }
  });

  it('are those of its machine and of its notes', async () => {
    const shown = await browser.open(reportPage, { hash: 'machine?layer=3' });
    const text = await shown.textContent('main');
    const kernels = await cellsOf(shown, 'Kernels, in order of their time');
    expect(numbersIn(text, /([\d,]+) launches, timed one by one/)).toEqual([sumOf(kernels, 2)]);
    expect(numbersIn(text, /([\d,]+) phases in/)).toEqual([(await cellsOf(shown, 'Phases of starting up')).length]);
    const roof = await cellsOf(shown, 'Kernels of the roofline');
    expect(numbersIn(text, /memory bounds \d+ of (\d+) kernels with FLOPs/)).toEqual([roof.length]);
    const buffers = await cellsOf(shown, 'Buffers of the arena');
    expect(numbersIn(text, /The launches of layer 3 need (\d+) of them/)).toEqual([buffers.length]);
    const notes = await shown.locator('footer li').allTextContents();
    expect(numbersIn(await shown.textContent('footer summary'), /^(\d+) notes/)).toEqual(
      notes.length === 1 ? [] : [notes.length],
    );
    expect(notes.join('\n')).toMatch(/run\.trace\.json: 1 event left out/);
    expect(notes.join('\n')).not.toContain(root);
  });

  it('are those of its tuning', async () => {
    const shown = await browser.open(reportPage, { hash: 'tuning' });
    const text = await shown.textContent('main');
    const jobs = await cellsOf(shown, 'Kernels and buckets');
    expect(numbersIn(text, /([\d,]+) kernels and buckets, .*?; ([\d,]+) have a default/)).toEqual([40, 40]);
    expect(jobs.length).toBe(40);
    expect(numbersIn(text, /([\d,]+) trials in [^,;]*, ([\d,]+) of them failed/)).toEqual([
      sumOf(jobs, 3),
      sumOf(jobs, 4),
    ]);
    expect(numbersIn(text, /Why ([\d,]+) trials failed/)).toEqual([sumOf(jobs, 4)]);
    expect(sumOf(await cellsOf(shown, 'Reasons'), 1)).toBe(sumOf(jobs, 4));
    expect(numbersIn(text, /The first (\d+) of (\d+) are drawn/)).toEqual([32, 40]);
  });

  it('shares above 100 % have a mark, and a note at its place', async () => {
    const shown = await browser.open(reportPage, { hash: 'machine' });
    const kernels = await cellsOf(shown, 'Kernels, in order of their time');
    expect(kernels.find(([name]) => name?.endsWith('attention.mix'))?.at(-1)).toBe('150 %*');
    const figure = shown.locator('figure:has-text("Share of time by kernel")');
    expect(await figure.locator('svg').textContent()).toContain('150 % of peak*');
    expect(await figure.locator('.note').textContent()).toMatch(/^\* Above the peak: data that caches/);
    expect(await shown.locator('figure:has-text("Roofline") .note').count()).toBe(0);
    const tuning = await browser.open(reportPage, { hash: 'tuning' });
    const jobs = await cellsOf(tuning, 'Kernels and buckets');
    expect(jobs.filter((row) => row[8] === '200 %*').length).toBe(14);
    expect(await tuning.locator('.note').count()).toBe(1);
  });
});

describe.skipIf(CHROMIUM === undefined)('counts of the explorer', () => {
  const browser = useBrowser();

  it('are those of its kernels', async () => {
    const shown = await browser.open(explorePage, { hash: 'kernels' });
    const text = await shown.textContent('main');
    const rows = await cellsOf(shown, 'Kernels in order');
    expect(numbersIn(text, /kernels(\d+), (\d+) different texts/)).toEqual([sumOf(rows, 1), rows.length]);
    const withFlops = rows.filter((row) => row[4] !== '–');
    expect(numbersIn(text, /\d+ of (\d+) kernels with FLOPs lies? where memory/)).toEqual([withFlops.length]);
    expect(await shown.locator('figure svg [aria-label=dot] circle').count()).toBe(withFlops.length);
  });

  it('are those of the parts of a stage', async () => {
    const shown = await browser.open(explorePage, { hash: 'passes?pass=recognizeAttention' });
    const all = numbersIn(await shown.textContent('p.left'), /^([\d,]+) ops; ([\d,]+) added, ([\d,]+) removed/);
    const parts = await shown.$$eval('.part h3', (heads) =>
      heads.map((head) => [
        head.querySelector('.times')?.textContent ?? '×1',
        head.querySelector('.soft')!.textContent,
      ]),
    );
    const sum = (pattern: RegExp): number =>
      parts.reduce((total, [times, text]) => {
        const [many = 0] = numbersIn(text ?? '', pattern);
        return total + many * number(times!.slice(1));
      }, 0);
    expect([sum(/([\d,]+) ops/), sum(/([\d,]+) added/), sum(/([\d,]+) removed/)]).toEqual(all);
  });

  it('shares above 100 % have a mark, and a note at its place', async () => {
    const shown = await browser.open(explorePage, { hash: 'kernels' });
    const rows = await cellsOf(shown, 'Kernels in order');
    const shareOf = (name: string): string | undefined => rows.find(([each]) => each === name)?.at(-1);
    expect([shareOf('head'), shareOf('embed')]).toEqual(['150 %*', 'cached*']);
    expect(rows.filter((row) => row.at(-1)!.endsWith('*')).length).toBe(2);
    expect(await shown.textContent('figure figcaption')).toMatch(/The fastest is head .* 150 %\* of peak/);
    expect(await shown.locator('.note').allTextContents()).toEqual([
      expect.stringMatching(/^\* Above the peak/),
      expect.stringMatching(/^\* Above the peak/),
    ]);
    const panel = await browser.open(explorePage, { hash: 'kernels?kernel=head' });
    expect(await panel.textContent('article.kernel .facts')).toContain('share of peak150 %*');
    expect(await panel.textContent('article.kernel .note')).toMatch(/^\* Above the peak/);
    const below = await browser.open(explorePage, { hash: 'kernels?kernel=prepare' });
    expect(await below.locator('article.kernel .note').count()).toBe(0);
  });
});
