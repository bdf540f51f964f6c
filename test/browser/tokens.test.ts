/** Tokens of a question in a browser: strips, tables with the file's figures, the tree, hostile texts. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { report } from '../../commands/report.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { DATE, writeRun } from '../support/results.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-tokens-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const HOSTILE = '</script><b id="bad">\u202eevil';

beforeAll(() => {
  const folder = writeRun(join(root, 'run'), {
    t: [
      { lls: [-4.5, -3.75, -9], choices: ['the cat', 'the dog', 'no'], gold: 1 },
      { lls: [-1, -2], choices: ['yes', 'no'] },
    ],
  });
  const choice = (texts: readonly string[], logprobs: readonly number[]): object => ({
    ...{ omitted_tokens: 0, tokens: texts.map((_, i) => i), texts, logprobs },
  });
  const line = {
    doc_id: 0,
    shared_tokens: 21,
    choices: [choice([' the', ' cat'], [-1.5, -3]), choice([' the', ' dog'], [-1.5, -2.254]), choice([HOSTILE], [-9])],
  };
  writeFileSync(join(folder, `tokens_t_${DATE}.jsonl`), `${JSON.stringify(line)}\n`);
  report({ runs: [folder], output: page, writer: 'tilewright test', now: new Date(0) });
});

describe.skipIf(CHROMIUM === undefined)('tokens of a question', () => {
  const browser = useBrowser();
  let shown: Page;
  beforeAll(async () => {
    shown = await browser.open(page, { hash: 'questions' });
    await shown.waitForSelector('.token-part');
  });

  it('are strips, as warm as they are unlikely', async () => {
    const tokens = shown.locator('.strips .token');
    expect(await tokens.allTextContents()).toEqual([' the', ' cat', ' the', ' dog', '</script><b id="bad">U+202Eevil']);
    const heat = (at: number): Promise<number> =>
      tokens
        .nth(at)
        .getAttribute('style')
        .then((style) => Number(/--heat: ([\d.]+)/.exec(style ?? '')?.[1]));
    expect([await heat(0), await heat(1), await heat(4)]).toEqual([0.15, 0.3, 0.9]);
    expect(await shown.locator('#bad').count()).toBe(0);
  });

  it('are a tree in which shared tokens are once', async () => {
    expect(await shown.locator('.tree .token').allTextContents()).toEqual([
      ' the',
      ' cat',
      ' dog',
      '</script><b id="bad">U+202Eevil',
    ]);
    expect(await shown.textContent('.token-part')).toContain('25 tokens where what choices have in common');
    expect(await shown.textContent('.token-part')).toContain('68 where each is a sequence of its own');
  });

  it('are tables with the figures of the file', async () => {
    await shown.getByRole('button', { name: 'Show as tables' }).click();
    const cells = await shown.locator('table.tokens').nth(1).locator('tbody td').allTextContents();
    expect(cells.map((text) => text.trim())).toEqual(['the', '−1.50', 'about 22 %', 'dog', '−2.25', 'about 11 %']);
  });

  it('are absent where the file has none', async () => {
    await shown.focus('[role=listbox]');
    await shown.keyboard.press('End');
    await shown.waitForSelector('h2:has-text("Question 1")');
    await shown.waitForSelector('.token-part', { state: 'detached' });
  });
});
