/** A report in a browser: it opens from the disk, shows the files' figures, and follows the theme. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { writeRun } from '../support/results.js';
import { madeStart } from '../support/traces.js';
import { thorough } from '../support/thorough.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-browser-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const HOSTILE = '</script><img src=x onerror=alert(1)>\u202e';
if (CHROMIUM === undefined) console.warn('SKIPPED test/browser/report.test.ts: there is no chromium');

beforeAll(() => {
  const folder = writeRun(
    join(root, 'a'),
    { t: [{ lls: [-1, -2] }, { lls: [-3, -2] }, { lls: [-1, -2] }] },
    { throughput: { questions: 3, tokensComputed: 1200, tokensWithoutSharing: 3000, start: madeStart(HOSTILE) } },
  );
  report({ runs: [folder], output: page, writer: 'tilewright test', now: new Date(0), title: '<b>&\u202e' });
});

describe.skipIf(CHROMIUM === undefined)('a report', () => {
  const browser = useBrowser();

  it('shows the figures of the files', async () => {
    const shown = await browser.open(page);
    expect(await shown.textContent('h1')).toBe('<b>&U+202E');
    expect(await shown.textContent('table')).toContain('66.67 %');
    expect(await shown.textContent('main')).toContain('1,200 tokens computed in place of 3,000: 2.50 times fewer');
    expect(await shown.locator('figure svg').count()).toBe(4);
  });

  it('shows the start, with what the first answer waited for and hostile names as text', async () => {
    const shown = await browser.open(page);
    const chart = shown.locator('figure:has-text("Phases until the first answer")');
    expect(await chart.locator('figcaption').textContent()).toContain(
      '7 phases in 1.10 s until the first answer, which waited longest for devices: weights 0.59 s, ',
    );
    expect(await chart.locator('figcaption').textContent()).toContain('; 0.06 s not accounted');
    const cellsOf = async (table: number): Promise<readonly (readonly string[])[]> => {
      const rows = await chart.locator('table').nth(table).locator('tbody tr').all();
      return Promise.all(rows.map((row) => row.locator('th, td').allTextContents()));
    };
    const [waited, phases] = [await cellsOf(0), await cellsOf(1)];
    const name = HOSTILE.replace('\u202e', 'U+202E');
    expect(waited).toEqual([
      ['process', 'command', '0.000', '0.100', '9.1 %'],
      [name, 'command', '0.100', '0.200', '18.2 %'],
      ['weights', 'device process', '0.300', '0.590', '53.6 %'],
      ['not accounted', '–', '0.890', '0.060', '5.5 %'],
      ['first micro-batch', 'command', '0.950', '0.150', '13.6 %'],
    ]);
    expect(phases.map((cells) => cells.slice(4).join())).toEqual([
      ...['0.100,0.000,–', '0.100,0.150,–', '0.200,0.000,–', '0.290,0.300,–', '0.590,0.000,16 GB, 32 GB/s'],
      ...['0.400,–,–', '0.150,0.000,–'],
    ]);
    // Every step is a bar of its own colour, over those of its phase.
    expect(await chart.locator('svg rect[fill="var(--accent)"]').count()).toBe(4);
    expect(await shown.locator('img').count()).toBe(0);
  });

  thorough('is light or dark as the system says, or as was chosen', async () => {
    const colour = 'getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] < 128';
    const shown = await browser.open(page, { isDark: true });
    expect(await shown.evaluate(colour)).toBe(true);
    await shown.selectOption('.theme select', 'light');
    // Styles follow when the browser computes them next.
    await expect.poll(() => shown.evaluate(colour)).toBe(false);
  });

  it('fits a narrow screen', async () => {
    const shown = await browser.open(page, { width: 400 });
    expect(await shown.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
  });
});
