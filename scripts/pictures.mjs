/**
 * `npm run pictures`: the pictures of docs/pictures, made from the bundled model: runs, pages, and what a browser shows
 * of them. `-- machine` makes those of one page alone. Everything else that it writes is under results/pictures.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { openBrowser, settled } from './browser.mjs';

const ROOT = join(import.meta.dirname, '..');
const WORK = join(ROOT, 'results', 'pictures');
const TO = join(ROOT, 'docs', 'pictures');
/** What a README may weigh. */
const MAX_BYTES = 150_000;

function tilewright(...args) {
  process.stdout.write(`tilewright ${args.map((arg) => relative(ROOT, arg) || arg).join(' ')}\n`);
  const { status, stderr } = spawnSync(process.execPath, [join(ROOT, 'dist', 'cli', 'main.js'), ...args], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
}

const at = (...path) => join(WORK, ...path);
const questions = ['--task', 'hellaswag', '--data', join('examples', 'everyday.jsonl'), '--quiet'];

/** The pages, by name: each makes its file. */
const PAGES = {
  report: (file) => {
    tilewright('run', 'models/demo', ...questions, '--log-tokens', '--out', at('f32'));
    tilewright('quantize', 'models/demo', '-o', at('demo-int4'), '--method', 'round', '--group', '64', '--quiet');
    tilewright('run', at('demo-int4'), ...questions, '--out', at('int4'));
    tilewright('report', at('f32'), at('int4'), '--title', 'What weights of 4 bits cost', '-o', file);
  },
  single: (file) => {
    tilewright('report', at('f32'), '--title', 'Everyday questions', '-o', file);
  },
  explore: (file) => {
    tilewright('explore', 'models/demo/config.json', '--init', 'random:1', '--target', 'cuda:sm_90a', '-o', file);
  },
  machine: (file) => {
    const [trace, records, artifact] = [at('trace.json'), at('records.jsonl'), at('demo.tw')];
    tilewright('run', 'models/demo', ...questions, '--devices', '2', '--trace', trace);
    tilewright('compile', 'models/demo', '-o', artifact);
    tilewright('tune', artifact, '--budget', '45s', '--database', records, '--quiet');
    const about = ['--title', 'The bundled model on two cores'];
    tilewright('report', '--trace', trace, '--tuning', records, ...about, '-o', file);
  },
};

/** A server of the bundled model, its page with a text that was asked for twice, and others who ask meanwhile. */
async function openServed(page) {
  const args = ['serve', 'models/demo', '--port', '0', '--cache-tokens', '16384', '--quiet'];
  const server = spawn(process.execPath, [join(ROOT, 'dist', 'cli', 'main.js'), ...args], { cwd: ROOT });
  const stop = () => server.kill();
  try {
    const { value: line } = await createInterface(server.stdout)[Symbol.asyncIterator]().next();
    const address = line.replace(/^listening on /, '');
    await page.goto(address);
    await page.waitForSelector('.options');
    await page.selectOption('.options select >> nth=1', 'text');
    await page.fill('.options label:has-text("Temperature") input', '0.7');
    await page.fill('.options label:has-text("Seed") input', '7');
    await page.fill('.options label:has-text("Most tokens") input', '60');
    // Some 40 s of others, who come in waves and begin alike.
    const begin = 'Before the guests come, she washes the vegetables, sets the table and looks at the clock. ';
    const body = (i) => ({ prompt: begin + `Guest ${i} `, max_tokens: 40 + (i % 7) * 20, ignore_eos: true });
    const asked = [];
    for (let i = 0; i < 160; i++) {
      asked.push(
        fetch(`${address}/v1/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ ...body(i), seed: i }),
        }).then(async (response) => {
          if (!response.ok) throw new Error(await response.text());
          await response.text();
        }),
      );
      await sleep(150 + 200 * (1 + Math.sin(i / 8)));
    }
    await page.fill('#draft', 'To bake bread, first');
    await page.press('#draft', 'Enter');
    await page.click('button:has-text("Run again")');
    await page.waitForSelector('.again:has-text("same")');
    await Promise.all(asked);
    await page.evaluate('scrollTo(0, 0)');
  } catch (error) {
    stop();
    throw error;
  }
  return stop;
}

/**
 * The pictures: of which page, what is behind # in its address, how large the window is, and the element at its top.
 */
const PICTURES = [
  { name: 'results', page: 'single', hash: 'results', width: 1160, height: 1180 },
  { name: 'questions', page: 'report', hash: 'questions?order=closest', width: 1160, height: 760 },
  { name: 'tokens', page: 'single', hash: 'questions?order=closest', from: '.token-part', width: 1160, height: 520 },
  { name: 'explore-pass', page: 'explore', hash: 'passes?pass=roundAccumulators', width: 1160, height: 940 },
  { name: 'explore-kernels', page: 'explore', hash: 'kernels', width: 1160, height: 1020, isDark: true },
  {
    name: 'explore-source',
    page: 'explore',
    hash: 'kernels?kernel=layers.0.ffn.gate_up&op=silu',
    width: 1160,
    height: 760,
  },
  { name: 'comparison', page: 'report', hash: 'comparison', width: 1160, height: 1000, isDark: true },
  { name: 'machine', page: 'machine', hash: 'machine', width: 1160, height: 780 },
  { name: 'start', page: 'machine', hash: 'machine', from: '#startup', width: 1160, height: 530 },
  { name: 'kernels', page: 'machine', hash: 'machine', from: '#kernels', width: 1160, height: 960, isDark: true },
  { name: 'memory', page: 'machine', hash: 'machine?layer=3', from: '#memory', width: 1160, height: 560 },
  { name: 'server', page: 'server', hash: '', width: 1160, height: 860 },
  { name: 'tuning', page: 'machine', hash: 'tuning', from: '#search', width: 1160, height: 880 },
];

rmSync(WORK, { recursive: true, force: true });
mkdirSync(WORK, { recursive: true });
mkdirSync(TO, { recursive: true });
const browser = await openBrowser();
try {
  const isWanted = (page) => process.argv.length < 3 || process.argv.includes(page);
  for (const [name, make] of Object.entries(PAGES)) if (isWanted(name)) make(at(`${name}.html`));
  for (const { name, page: of, hash, from, width, height, isDark = false } of PICTURES) {
    if (!isWanted(of)) continue;
    const page = await browser.newPage({ viewport: { width, height }, colorScheme: isDark ? 'dark' : 'light' });
    let close = () => undefined;
    if (of === 'server') close = await openServed(page);
    else {
      await page.goto(`${pathToFileURL(at(`${of}.html`)).href}#${hash}`);
      await settled(page);
    }
    if (from !== undefined) await page.locator(from).evaluate((element) => element.scrollIntoView());
    await page.waitForTimeout(500);
    const path = join(TO, `${name}.png`);
    await page.screenshot({ path });
    await page.close();
    close();
    const { size } = statSync(path);
    process.stdout.write(`${relative(ROOT, path)}: ${(size / 1000).toFixed(0)} kB\n`);
    if (size > MAX_BYTES) throw new Error(`${path}: more than ${MAX_BYTES} bytes: make its window smaller`);
  }
} finally {
  await browser.close();
  if (existsSync(WORK)) rmSync(WORK, { recursive: true, force: true });
}
