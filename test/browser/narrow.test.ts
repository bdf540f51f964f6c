/** Every view of both pages on a telephone: nothing is cut off without a hint, and titles are names. */
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { collectExplored } from '../../commands/explore.js';
import { report } from '../../commands/report.js';
import { writePage } from '../../report/writePage.js';
import { CHROMIUM, clippedIn, tipsBeside, useBrowser } from '../support/browser.js';
import { DATE, type SampleOf, writeRun } from '../support/results.js';
import { jobLine, madeStart, madeTrace, peaksLine, trialLine } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-narrow-'));
afterAll(() => rmSync(root, { recursive: true }));
const [reportPage, explorePage] = [join(root, 'report.html'), join(root, 'explore.html')];

const TASKS = ['mmlu_high_school_government_and_politics', 'mmlu_professional_law', 'arc'];
/** Without a space at which it could break. */
const LONG = 'antidisestablishmentarianism'.repeat(12);

const answers = (isSecond: boolean): SampleOf[] =>
  Array.from({ length: 60 }, (_, i) => ({
    lls: (i % 3 === 0) !== (isSecond && i % 7 === 0) ? [-1 - i / 10, -1, -40] : [-1, -1 - i / 10, -40],
    doc: {
      activity_label: `${['Baking', 'A very long name of an activity that nobody would read to its end'][i % 2]}`,
    },
    ...(i === 0 ? { context: LONG, choices: [LONG, 'b', 'c'] } : {}),
  }));

/** `folder/trace.json` and the like are told apart by their folders. */
function writeTrace(folder: string, process: string): string {
  const path = join(root, folder, 'trace.json');
  mkdirSync(join(root, folder), { recursive: true });
  const made = madeTrace({ devices: 2, stages: 2, layers: 4, batches: 40 });
  const slice = { name: 'a', cat: 'other', ph: 'X', ts: 0, dur: 5e6, pid: 6, tid: 9, args: {} };
  const named = { name: 'process_name', ph: 'M', pid: 6, args: { name: process } };
  writeFileSync(path, JSON.stringify({ ...made, traceEvents: [...made.traceEvents, slice, named] }));
  return path;
}

function writeTuning(): string {
  const path = join(root, 'records.jsonl');
  const kernel = 'layers.12.attention.compressed_keys_and_values.of_all_heads';
  const lines = [
    ...[peaksLine(), jobLine('aaaaaaaa', 1024, 60, kernel), jobLine('bbbbbbbb', 512)],
    ...[0.004, 0.003, 0.0008].map((seconds, i) => trialLine('aaaaaaaa', 1024, 64 * (i + 1), [seconds], i)),
    ...[trialLine('bbbbbbbb', 512, 64, [0.01], 4), trialLine('bbbbbbbb', 512, 128, [], 5)],
  ];
  writeFileSync(path, lines.map((line) => JSON.stringify(line)).join('\n'));
  return path;
}

beforeAll(async () => {
  const throughput = {
    ...{ questions: 180, tokensComputed: 1200, tokensWithoutSharing: 3000, tokensGrouped: 2900, tokensShared: 1100 },
    devices: [{ device: 0, computeSeconds: 1, copySeconds: 0, busyShare: 0.9 }],
    start: madeStart('a_phase_with_a_rather_long_name_that_nothing_breaks'),
  };
  const runs = ['first', 'second'].map((name, i) =>
    writeRun(join(root, name, 'out'), Object.fromEntries(TASKS.map((task) => [task, answers(i === 1)])), {
      ...{ model_name: `/home/somebody/checkpoints/${name}/a-model-with-a-rather-long-name`, throughput },
    }),
  );
  // A file that was cut off: the page says so, by the file's name.
  appendFileSync(join(root, 'second', 'out', `samples_${TASKS[0]!}_${DATE}.jsonl`), '{"doc_id": 60, "doc": {');
  report({
    ...{ runs, traces: [writeTrace('one', 'a process with a name'), writeTrace('two', LONG)] },
    ...{ tuning: [writeTuning()], output: reportPage, writer: 'tilewright test', now: new Date(0) },
  });
  const { about, ...sections } = await collectExplored({
    model: join(process.cwd(), 'models', 'demo', 'config.json'),
    ...{ init: { kind: 'random', seed: 1 }, precision: 'auto', isa: 'portable' },
  });
  writePage(explorePage, {
    ...{ app: 'explore', title: about.title },
    blocks: Object.entries({ about, ...sections }).map(([name, content]) => ({ name, content })),
  });
});

describe.skipIf(CHROMIUM === undefined)('on a telephone', () => {
  const browser = useBrowser();
  const phone = async (file: string, hash: string): Promise<Page> => {
    const shown = await browser.open(file, { hash, width: 390 });
    await shown.waitForSelector('main:not(:has([aria-busy])) :is(.plot svg, .graph svg, .row, table)', {
      state: 'attached',
    });
    return shown;
  };

  it.each([
    ...['results', 'results?run=1', 'comparison', 'questions', `questions?at=0+${TASKS[0]!}`, 'machine'],
    ...['machine?trace=1', 'machine?layer=2', 'tuning'],
  ])('nothing of the report is cut off: %s', async (hash) => {
    expect(await clippedIn(await phone(reportPage, hash))).toEqual([]);
  });

  it.each([
    ...['passes', 'passes?pass=recognizeAttention&part=1', 'passes?pass=lowerKernels', 'kernels'],
    'kernels?kernel=layers.0.ffn.gate_up&op=silu',
  ])('nothing of the explorer is cut off: %s', async (hash) => {
    const shown = await phone(explorePage, hash);
    expect(await clippedIn(shown)).toEqual([]);
    await shown.fill('input[type=search]', 'e');
    await shown.waitForSelector('.hits');
    expect(await clippedIn(shown)).toEqual([]);
  });

  it.each(['comparison', 'machine?layer=2', 'tuning'])('what a pointer shows lies on the page: %s', async (hash) => {
    expect(await tipsBeside(await phone(reportPage, hash), 7)).toEqual([]);
  });

  it('a table says that it scrolls, and where to', async () => {
    const shown = await phone(reportPage, 'comparison');
    const table = shown.locator('.scroll:has(table)').first();
    const sides = (): Promise<string | null> => table.getAttribute('data-more');
    await expect.poll(sides).toBe('right');
    const hint = `getComputedStyle(document.querySelector('.scroll'), '::before').content`;
    expect(await shown.evaluate(hint)).toContain('scrolls sideways');
    await table.evaluate((box) => box.scrollTo({ left: 60 }));
    await expect.poll(sides).toBe('left right');
    await table.evaluate((box) => box.scrollTo({ left: 10_000 }));
    await expect.poll(sides).toBe('left');
    await shown.setViewportSize({ width: 2400, height: 900 });
    await expect.poll(sides).toBe(null);
  });
});

describe.skipIf(CHROMIUM === undefined)('titles', () => {
  const browser = useBrowser();

  it('are names, with as much of their paths as tells them apart', async () => {
    const shown = await browser.open(reportPage);
    const names = ['first/a-model-with-a-rather-long-name', 'second/a-model-with-a-rather-long-name'];
    expect(await shown.textContent('h1')).toBe(names.join(' · '));
    expect(await shown.title()).toBe(names.join(' · '));
    expect(await shown.getByLabel('Run', { exact: true }).locator('option').allTextContents()).toEqual(names);
    const machine = await browser.open(reportPage, { hash: 'machine' });
    expect(await machine.locator('label:has-text("Trace") option').allTextContents()).toEqual([
      'one/trace.json',
      'two/trace.json',
    ]);
    const compared = await browser.open(reportPage, { hash: 'comparison' });
    const said = `${(await compared.textContent('ul.notes'))!}${(await compared.textContent('footer'))!}`;
    expect(said.match(/second\/out\/samples_[\w.-]+\.jsonl:61: the line was cut off/g)).toHaveLength(2);
    expect(said).not.toContain(root);
    const explored = await browser.open(explorePage);
    expect([await explored.textContent('h1'), await explored.title()]).toEqual(['Compiling demo', 'Compiling demo']);
  });
});
