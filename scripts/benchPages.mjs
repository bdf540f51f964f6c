/**
 * `npm run bench:pages [-- FOLDER…]`: how large a report is, and how long it takes in Chromium to open, to filter, to
 * sort and to search. Reports are made of the folders of results that are given, and of 100,000 questions that are made
 * up. Times are medians of several, in milliseconds.
 */
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { openBrowser, settled } from './browser.mjs';

/** A module from the build. Its name is computed, so that a checkout that was not built yet can be linted as well. */
const built = (path) => import(new URL(`../dist/${path}`, import.meta.url).href);
const { writeReport } = await built('commands/report.js');

const QUESTIONS = 100_000;
const TIMES = 5;
const DATE = '2026-01-31T10-20-30.123000';

/** Numbers from 0 to 1, the same in every run. */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Texts of the size of HellaSwag's, of made-up words. */
function writeMadeUp(folder) {
  mkdirSync(folder, { recursive: true });
  const random = randomOf(1);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const parts = ['ba', 'ke', 'li', 'mo', 'nu', 'ra', 'se', 'ti', 'vo', 'shu', 'ter', 'lan', 'dor', 'wim', 'pel'];
  const words = Array.from({ length: 20_000 }, () =>
    Array.from({ length: 1 + Math.floor(3 * random()) }, () => pick(parts)).join(''),
  );
  const text = (count) => Array.from({ length: count }, () => pick(words)).join(' ');
  const file = openSync(join(folder, `samples_made_${DATE}.jsonl`), 'w');
  let right = 0;
  for (let i = 0; i < QUESTIONS; i++) {
    const [context, gold] = [text(15 + Math.floor(30 * random())), Math.floor(4 * random())];
    const choices = Array.from({ length: 4 }, () => ` ${text(6 + Math.floor(12 * random()))}.`);
    const lls = choices.map((_, choice) => -60 * random() - 10 + (choice === gold ? 10 : 0));
    const acc = lls.indexOf(Math.max(...lls)) === gold ? 1 : 0;
    right += acc;
    const line = {
      doc_id: i,
      doc: { activity_label: `activity ${Math.floor(200 * random())}` },
      target: String(gold),
      arguments: choices.map((choice) => [context, choice]),
      resps: [],
      filtered_resps: lls.map((ll) => [ll, false]),
      filter: 'none',
      metrics: ['acc'],
      acc,
    };
    writeSync(file, `${JSON.stringify(line)}\n`);
  }
  closeSync(file);
  const results = { made: { sample_len: QUESTIONS, 'acc,none': right / QUESTIONS } };
  writeFileSync(join(folder, `results_${DATE}.json`), JSON.stringify({ results, model_name: 'made up' }));
  return folder;
}

const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];

async function measured(times, action) {
  const found = [];
  for (let i = 0; i < times; i++) found.push(await action(i));
  return median(found);
}

/** From the address to what is shown. */
async function opened(browser, file, section) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const begin = performance.now();
  await page.goto(`${pathToFileURL(file).href}#${section}`, { waitUntil: 'commit' });
  await settled(page);
  if (section === 'questions') await page.waitForSelector('article h2');
  const time = performance.now() - begin;
  await page.close();
  return time;
}

/** From a change of a control to the picture that shows it, measured in the page. */
const changed = (page, label, value) =>
  page.evaluate(
    async ([name, to]) => {
      const control = document.querySelector(name === '' ? 'input[type=search]' : `select[aria-label="${name}"]`);
      const seen = () =>
        document.querySelector('[role=status]').textContent + document.querySelector('.list').innerText;
      const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      const before = seen();
      const begin = performance.now();
      control.value = to;
      control.dispatchEvent(new Event(name === '' ? 'input' : 'change', { bubbles: true }));
      do await frame();
      while ((seen() === before || seen().startsWith('Searching')) && performance.now() - begin < 20_000);
      return performance.now() - begin;
    },
    [label, value],
  );

async function bench(browser, name, folder, file) {
  const begin = performance.now();
  const { bytes } = writeReport({ runs: [folder], output: file, writer: 'tilewright bench', now: new Date() });
  const written = performance.now() - begin;
  const [results, questions] = [
    await measured(TIMES, () => opened(browser, file, 'results')),
    await measured(TIMES, () => opened(browser, file, 'questions')),
  ];
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(`${pathToFileURL(file).href}#questions`);
  await settled(page);
  await page.waitForTimeout(3000);
  const filter = await measured(2 * TIMES, (i) => changed(page, 'Show', i % 2 === 0 ? 'wrong' : 'all'));
  const sort = await measured(2 * TIMES, (i) => changed(page, 'Order', i % 2 === 0 ? 'closest' : 'number'));
  const first = await changed(page, '', 'the');
  const search = await measured(TIMES, (i) => changed(page, '', ['man', 'ra', 'water', 'ke', 'on'][i]));
  await page.close();
  const row = [
    `${(bytes / 1e6).toFixed(2)} MB`,
    ...[written, results, questions, filter, sort, first, search].map((time) => time.toFixed(0)),
  ];
  process.stdout.write(`| ${[name, ...row].join(' | ')} |\n`);
}

const work = mkdtempSync(join(tmpdir(), 'tilewright-bench-'));
const browser = await openBrowser();
try {
  const columns = [
    'page',
    'size',
    'written',
    'opens',
    'opens at questions',
    'filters',
    'sorts',
    'first search',
    'searches',
  ];
  process.stdout.write(`${browser.version()}, ${cpus().length} processors; milliseconds\n\n`);
  process.stdout.write(`| ${columns.join(' | ')} |\n|${columns.map(() => '---|').join('')}\n`);
  for (const folder of process.argv.slice(2))
    await bench(browser, basename(resolve(folder)), folder, join(work, 'given.html'));
  await bench(browser, '100,000 questions, made up', writeMadeUp(join(work, 'made')), join(work, 'made.html'));
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
