/** Searches on a page in a browser: figures by N, problems, trees of 640 steps, hostile texts, a telephone. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { CHROMIUM, clippedIn, tipsBeside, useBrowser } from '../support/browser.js';
import { madeSearch, writeSearch } from '../support/searches.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-searches-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const HOSTILE = '</script><script>document.title = "hacked"</script><img src=x onerror=alert(1)>\u202egnp.exe';
const LARGE = { n: 16, width: 4, iterations: 40 };

const figures = Object.fromEntries(
  ['naive', 'weighted', 'maj', 'pass'].flatMap((name, i) =>
    [1, 2, 4, 8, 16].flatMap((n) => [
      [`${name}@${n},none`, 0.2 + 0.05 * i + 0.02 * Math.log2(n)],
      [`${name}@${n}_stderr,none`, 0.03],
    ]),
  ),
);

beforeAll(() => {
  const hostile = { ...madeSearch({ n: 4, width: 2, iterations: 3, text: HOSTILE }), notes: [HOSTILE] };
  const run = writeSearch(
    join(root, 'run'),
    [
      { search: madeSearch(LARGE), problem: 'antidisestablishmentarianism'.repeat(12) },
      { search: hostile, problem: HOSTILE, isRight: false },
      {},
      { search: { ...hostile, picked: 99 } },
      { search: madeSearch({ n: 2, width: 2, iterations: 2, text: 'long '.repeat(10_000) }) },
    ],
    figures,
  );
  report({ runs: [run], output: page, writer: 'tilewright test', now: new Date(0) });
});

describe.skipIf(CHROMIUM === undefined)('searches', () => {
  const browser = useBrowser();
  let shown: Page;
  beforeAll(async () => {
    shown = await browser.open(page, { hash: 'search' });
  });
  const go = async (hash: string, of = shown): Promise<void> => {
    await of.evaluate(`location.hash = ${JSON.stringify(hash)}`);
    const at = /at=(\d)/.exec(hash)?.[1] ?? '0';
    await of.waitForSelector(`:is(article h2, .question .none):has-text("problem ${at}")`);
  };

  it('show figures by number of candidates, and problems with their verdicts', async () => {
    await go('search');
    expect(await shown.textContent('figure figcaption')).toContain('weighted 33.00 %');
    expect(await shown.textContent('.count')).toBe('5 problems; of 4 the picked answer is right');
    expect(await shown.locator('[role=option] .sign').allTextContents()).toHaveLength(5);
    await shown.locator('details.figures summary').first().click();
    expect(await shown.textContent('.figures tbody tr:last-child')).toContain('28.00 % ± 3.00 %');
  });

  it('draw every step, and the path of the pick', async () => {
    await go('search');
    expect(await shown.locator('.tree [data-step]').count()).toBe(640);
    expect(await shown.locator('.tree .step.is-pick').count()).toBe(40);
    expect(await shown.textContent('.marks')).toContain('156 survives16 completed468 pruned');
    expect(await shown.locator('.path li').count()).toBe(40);
    expect(await shown.locator('.path li').last().textContent()).toContain('completed');
    const candidates = shown.locator('article table tbody tr');
    expect(await candidates.count()).toBe(16);
    expect(await candidates.first().textContent()).toMatch(/^1 picked2 ✓right/);
    expect(await candidates.nth(1).textContent()).toMatch(/^2<b> ✗wrong/);
  });

  it('are gone through by keys and by pointing, with the step in the address', async () => {
    await go('search?step=0');
    await shown.focus('.tree');
    await shown.keyboard.press('ArrowDown');
    await expect.poll(() => shown.url()).toMatch(/step=1$/);
    await shown.keyboard.press('ArrowUp');
    await expect.poll(() => shown.url()).toMatch(/step=0$/);
    await shown.locator('.tree [data-step="20"]').click();
    await expect.poll(() => shown.url()).toMatch(/step=20$/);
    await expect.poll(() => shown.locator('.path li').count()).toBe(2);
    await shown.focus('.tree');
    await shown.keyboard.press('ArrowLeft');
    await expect.poll(() => shown.locator('.path li').count()).toBe(1);
    await shown.locator('button:has-text("1")').last().click();
  });

  it('grow and shrink', async () => {
    await go('search');
    const width = (): Promise<number> => shown.evaluate('document.querySelector(".tree svg").clientWidth');
    const before = await width();
    await shown.click('button[aria-label=Larger]');
    await expect.poll(width).toBeGreaterThan(1.3 * before);
    for (let i = 0; i < 4; i++) await shown.click('button[aria-label=Smaller]');
    await expect.poll(width).toBeLessThan(0.4 * before);
    expect(await shown.locator('button[aria-label=Smaller]').isDisabled()).toBe(true);
  });

  it('show hostile texts as texts', async () => {
    await go('search?at=1');
    expect(await shown.textContent('.path')).toContain('<img src=x onerror=alert(1)>U+202Egnp.exe');
    expect(await shown.textContent('.context')).toContain('</script><script>document.title = "hacked"</script>');
    expect(await shown.locator('main img').count()).toBe(0);
    expect(await shown.title()).not.toBe('hacked');
  });

  it('say what has no tree, and what is cut', async () => {
    await go('search?at=2');
    expect(await shown.textContent('.question')).toContain('no tree of problem 2');
    await go('search?at=3');
    expect(await shown.textContent('.question')).toContain('no tree of problem 3');
    expect(await shown.textContent('footer')).toContain('1 search cannot be read');
    await go('search?at=4');
    expect(await shown.textContent('article')).toContain('characters of these texts are in the file');
  });

  it('lie whole on a telephone', async () => {
    const phone = await browser.open(page, { hash: 'search', width: 390 });
    await phone.waitForSelector('article');
    expect(await tipsBeside(phone, 5)).toEqual([]);
    for (const at of [0, 1, 4]) {
      await go(`search?at=${at}`, phone);
      expect(await clippedIn(phone)).toEqual([]);
    }
  });
});
