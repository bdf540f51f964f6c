/** The tabs of machines and tuning in a browser: figures of the files, and a timeline that moves as it says. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { jobLine, madeTrace, peaksLine, rivalLine, trialLine } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-machine-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const HOSTILE = '</script><img src=x onerror=alert(1)>\u202e';

beforeAll(() => {
  const made = madeTrace({ devices: 4, stages: 2, layers: 60, batches: 800 });
  const hostile = { name: HOSTILE, cat: 'startup', ph: 'X', ts: 0, dur: 5e6, pid: 6, tid: 9, args: {} };
  const trace = join(root, 'run.trace.json');
  writeFileSync(trace, JSON.stringify({ ...made, traceEvents: [...made.traceEvents, hostile] }));
  const tuning = join(root, 'records.jsonl');
  const lines = [
    ...[peaksLine(), rivalLine(), jobLine('aaaaaaaa', 1024), jobLine('bbbbbbbb', 1024, 1, HOSTILE)],
    ...[0.004, 0.003, 0.0025].map((seconds, i) => trialLine('aaaaaaaa', 1024, 64 * (i + 1), [seconds], i)),
    ...[trialLine('bbbbbbbb', 1024, 64, [0.001], 4), trialLine('bbbbbbbb', 1024, 128, [], 5)],
  ];
  writeFileSync(tuning, lines.map((line) => JSON.stringify(line)).join('\n'));
  report({ runs: [], traces: [trace], tuning: [tuning], output: page, writer: 'test', now: new Date(0) });
});

const cellsOf = (shown: Page, caption: string): Promise<readonly (readonly string[])[]> =>
  shown.$$eval(
    'table',
    (tables, wanted) =>
      tables
        .filter((table) => table.caption?.textContent === wanted)
        .flatMap((table) =>
          [...table.tBodies[0]!.rows].map((row) => [...row.cells].map((cell) => cell.textContent ?? '')),
        ),
    caption,
  );
const summary = (shown: Page): Promise<string | null> => shown.textContent('.timeline figcaption');

describe.skipIf(CHROMIUM === undefined)('the tab of machines', () => {
  const browser = useBrowser();

  it('shows the figures of the file, hostile names as text, and many slices as few rectangles', async () => {
    const shown = await browser.open(page);
    await shown.waitForSelector('figure svg');
    const devices = await cellsOf(shown, 'What devices did, in the whole run');
    expect(devices.map(([name, batches]) => [name, batches])).toEqual(
      [0, 1, 2, 3].map((device) => [`device ${device}`, '800']),
    );
    const [first] = await cellsOf(shown, 'Kernels, in order of their time');
    expect(first!.slice(0, 3)).toEqual(['layers.*.ffn.gate_up', 'gemm', '180']);
    expect((await cellsOf(shown, 'Phases of starting up')).map(([name]) => name)).toContain(
      HOSTILE.replace('\u202e', 'U+202E'),
    );
    expect(await shown.locator('img').count()).toBe(0);
    // Slices narrower than pixels share rectangles.
    expect(await shown.locator('.timeline svg rect').count()).toBeLessThan(4000);
    expect(await shown.textContent('main')).toContain('Peaks of one device: 989 TFLOP/s, as it is known for; 4.2 TB/s');
  });

  it('moves and zooms by buttons, keys and drags, and keeps the part in the address', async () => {
    const shown = await browser.open(page);
    await shown.waitForSelector('.timeline svg');
    const whole = await summary(shown);
    await shown.click('text=The run');
    expect(await summary(shown)).toMatch(/^14\.100 s to /);
    expect(await shown.getAttribute('button:has-text("The run")', 'aria-pressed')).toBe('true');
    await shown.focus('.timeline');
    await shown.keyboard.press('+');
    const address = await shown.evaluate<string>('location.hash');
    expect(address).toMatch(/from=\d.*to=\d/);
    const again = await browser.open(page, { hash: address.slice(1) });
    await again.waitForSelector('.timeline svg');
    expect(await summary(again)).toBe(await summary(shown));
    await shown.keyboard.press('0');
    expect(await summary(shown)).toBe(whole);
    const box = (await shown.locator('.timeline svg').boundingBox())!;
    await shown.mouse.move(box.x + 300, box.y + 60);
    await shown.mouse.down();
    await shown.mouse.move(box.x + 400, box.y + 60);
    await shown.mouse.up();
    expect(await summary(shown)).not.toBe(whole);
    await shown.locator('.timeline').dblclick({ position: { x: 300, y: 100 } });
    expect(await summary(shown)).toBe(whole);
  });

  it('shows a layer of the memory with its names', async () => {
    const shown = await browser.open(page);
    await shown.selectOption('label:has-text("Launches of") select', '3');
    const rows = await cellsOf(shown, 'Buffers of the arena');
    expect(rows.map(([name]) => name)).toEqual([
      'tokens',
      'h3',
      'q3',
      'kv3',
      'attended3',
      'h_mid3',
      'activated3',
      'h4',
    ]);
    expect(await shown.textContent('#memory ~ figure svg')).toContain('activated3');
  });
});

describe.skipIf(CHROMIUM === undefined)('the tab of tuning', () => {
  const browser = useBrowser();

  it('shows trials, the best so far, and the vendor; a link leads to another kernel', async () => {
    const shown = await browser.open(page, { hash: 'tuning' });
    await shown.waitForSelector('figure svg');
    expect((await cellsOf(shown, 'Trials')).slice(0, 3).map((row) => row.slice(0, 4))).toEqual([
      ['1', '0.0', '4.00 ms', '4.00 ms'],
      ['2', '1.0', '3.00 ms', '3.00 ms'],
      ['3', '2.0', '2.50 ms', '2.50 ms'],
    ]);
    const [found] = await cellsOf(shown, 'Kernels and buckets; a link shows the trials');
    expect(found!.slice(0, 11)).toEqual([
      ...['layers.0.ffn.down', '1,024 T', '60', '3', '0', '4.00 ms', '2.50 ms', '1.60×', '40 %', '2.40 ms', '0.960'],
    ]);
    await shown.locator('details:has-text("Best schedule") > summary').click();
    await shown.click('a:has-text("onerror")');
    expect((await cellsOf(shown, 'Trials')).map(([, , time]) => time)).toContain('failed');
    await shown.setViewportSize({ width: 400, height: 800 });
    expect(await shown.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    expect(await shown.locator('img').count()).toBe(0);
  });

  it.each(['machine', 'tuning'])(
    'draws %s on a narrow screen: bars have widths, and headings an order',
    async (hash) => {
      // The browser logs an error, which fails, where a bar has a width below 0.
      const shown = await browser.open(page, { width: 320, hash });
      await shown.waitForSelector('figure svg');
      expect(await shown.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
      const levels = await shown.$$eval('h1, h2, h3', (all) => all.map(({ tagName }) => Number(tagName[1])));
      expect(levels.filter((level, at) => at > 0 && level > levels[at - 1]! + 1)).toEqual([]);
    },
  );
});
