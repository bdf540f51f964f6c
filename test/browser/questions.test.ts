/** The questions of a report in a browser: filters, search, order, keys, links, hostile texts. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { type SampleOf, writeRun } from '../support/results.js';
import { thorough } from '../support/thorough.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-browser-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const HOSTILE = '</script><script>document.title = "hacked"</script><img src=x onerror=alert(1)>\u202egnp.exe';

/** Questions 0 to 599: every third but 0 and 9 is wrong in the first run, by its number in hundredths of a nat. */
const questions = (isSecond: boolean): SampleOf[] =>
  Array.from({ length: 600 }, (_, i) => ({
    lls: (i % 3 === 0) !== (isSecond && i === 33) ? [-1 - i / 100, -1] : [-1, -1 - i / 100],
    ...(i === 7 ? { context: HOSTILE } : i === 8 ? { context: `${'long '.repeat(200_000)}end` } : {}),
    ...(i === 9 ? { choices: ['a needle', 'hay'], lls: ['nan', '-inf'] } : {}),
  }));

beforeAll(() => {
  const runs = [false, true].map((isSecond, i) => writeRun(join(root, String(i)), { t: questions(isSecond) }));
  report({ runs, output: page, writer: 'tilewright test', now: new Date(0) });
});

describe.skipIf(CHROMIUM === undefined)('questions', () => {
  const browser = useBrowser();
  let shown: Page;
  const count = async (): Promise<string> => (await shown.textContent('[role=status]')) ?? '';
  const firstRow = async (): Promise<string> => (await shown.textContent('#row-0 .about')) ?? '';
  const choose = async (label: string, value: string): Promise<void> => {
    await shown.getByLabel(label, { exact: true }).selectOption(value);
  };
  beforeAll(async () => {
    shown = await browser.open(page, { hash: 'questions' });
  });

  it('are filtered and sorted', async () => {
    expect(await count()).toBe('600 of 600 questions');
    await choose('Show', 'wrong');
    expect(await count()).toBe('198 of 600 questions');
    await choose('Order', 'lowest');
    expect(await firstRow()).toMatch(/^597/);
    await choose('Show', 'flipped');
    expect(await count()).toBe('1 of 600 questions');
    expect(await shown.textContent('#row-0')).toContain('was wrong');
    await choose('Show', 'all');
    await choose('Order', 'number');
    await choose('Run', '0');
  });

  it('are searched', async () => {
    await shown.getByLabel('Search', { exact: true }).fill('needle');
    await shown.getByText('1 of 600 questions', { exact: true }).waitFor();
    expect(await shown.textContent('article')).toContain('NaN');
    expect(await shown.textContent('article')).toContain('−∞');
    await shown.getByLabel('Search', { exact: true }).fill('');
  });

  thorough('are gone through by keys, drawn only where they are in view, and named in the address', async () => {
    await shown.focus('[role=listbox]');
    await shown.keyboard.press('End');
    await shown.waitForSelector('h2:has-text("Question 599")');
    expect(await shown.locator('[role=option]').count()).toBeLessThan(60);
    await shown.keyboard.press('k');
    await shown.waitForSelector('h2:has-text("Question 598")');
    expect(shown.url()).toContain('at=598+t');
    // A key that comes as soon as the question has changed goes on from there.
    await shown.evaluate(`{
      const press = (key) => dispatchEvent(new KeyboardEvent('keydown', { key }));
      const observer = new MutationObserver(() => {
        if (!document.querySelector('h2').textContent.includes('597')) return;
        observer.disconnect();
        press('k');
      });
      observer.observe(document.body, { childList: true, characterData: true, subtree: true });
      press('k');
    }`);
    await shown.waitForSelector('h2:has-text("Question 596")');
    const other = await browser.open(page, { hash: 'questions?at=33+t' });
    expect(await other.textContent('h2')).toContain('Question 33');
    expect(await other.locator('.tag.right-answer').count()).toBe(1);
    expect(await other.locator('.tag.chosen').count()).toBe(2);
  });

  it('show hostile texts as texts', async () => {
    const hostile = await browser.open(page, { hash: 'questions?at=7+t' });
    const text = (await hostile.textContent('.context')) ?? '';
    expect(text).toContain('</script><script>document.title = "hacked"</script><img src=x onerror=alert(1)>');
    expect(text).toContain('U+202Egnp.exe');
    expect(await hostile.title()).not.toBe('hacked');
    expect(await hostile.locator('main img').count()).toBe(0);
  });

  thorough('show long texts cut, with a way to all of it', async () => {
    const long = await browser.open(page, { hash: 'questions?at=8+t' });
    expect((await long.textContent('.context'))!.length).toBeLessThan(2000);
    await long.click('button:has-text("Show all 1,000,003 characters")');
    expect(await long.textContent('.context')).toContain('long end');
  });
});
