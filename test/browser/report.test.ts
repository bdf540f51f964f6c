/** A report in a browser: it opens from the disk, shows the files' figures, and follows the theme. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeReport } from '../../report/writeReport.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { writeRun } from '../support/resultFolders.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-browser-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
if (CHROMIUM === undefined) console.warn('SKIPPED test/browser/report.test.ts: there is no chromium');

beforeAll(() => {
  const folder = writeRun(
    join(root, 'a'),
    { t: [{ lls: [-1, -2] }, { lls: [-3, -2] }, { lls: [-1, -2] }] },
    { throughput: { questions: 3, tokensComputed: 1200, tokensWithoutSharing: 3000 } },
  );
  writeReport({ runs: [folder], output: page, writer: 'tilewright test', now: new Date(0), title: '<b>&\u202e' });
});

describe.skipIf(CHROMIUM === undefined)('a report', () => {
  const browser = useBrowser();

  it('shows the figures of the files', async () => {
    const shown = await browser.open(page);
    expect(await shown.textContent('h1')).toBe('<b>&U+202E');
    expect(await shown.textContent('table')).toContain('66.67 %');
    expect(await shown.textContent('main')).toContain('1,200 tokens computed in place of 3,000: 2.50 times fewer');
    expect(await shown.locator('figure svg').count()).toBe(3);
  });

  it('is light or dark as the system says, or as was chosen', async () => {
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
