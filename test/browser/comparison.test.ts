/** Several runs in a browser: figures are those of the files, and links lead to the questions that flipped. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compare } from '../../commands/compare.js';
import { report } from '../../commands/report.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';
import { DATE, type SampleOf, writeRun } from '../support/results.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-browser-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
const [a, b] = [join(root, 'a'), join(root, 'b')];

const answers = (n: number, isRight: (i: number) => boolean): SampleOf[] =>
  Array.from({ length: n }, (_, i) => ({ lls: isRight(i) ? [-1, -2 - i / n] : [-2 - i / n, -1] }));
beforeAll(() => {
  writeRun(a, {
    one: answers(37, (i) => i % 3 > 0),
    two: answers(113, (i) => i % 7 > 2),
    mine: answers(5, () => true),
  });
  writeRun(b, { one: answers(37, (i) => i % 3 > 0 && i > 8), two: answers(100, (i) => i % 7 > 2) });
  report({ runs: [a, b], output: page, writer: 'tilewright test', now: new Date(0) });
});

const percent = (share: number): string => `${(100 * share).toFixed(2)} %`;

describe.skipIf(CHROMIUM === undefined)('several runs', () => {
  const browser = useBrowser();

  it('have the figures of their files, to the digit shown', async () => {
    const shown = await browser.open(page);
    for (const [i, folder] of [a, b].entries()) {
      const { results } = JSON.parse(readFileSync(join(folder, `results_${DATE}.json`), 'utf8')) as {
        results: Record<string, Record<string, number>>;
      };
      await shown.getByLabel('Run', { exact: true }).selectOption(String(i));
      const table = shown.getByRole('table', { name: 'All figures' });
      const both = shown.getByRole('table', { name: 'Figures of all runs' });
      for (const [task, block] of Object.entries(results)) {
        const row = (await table.getByRole('row').filter({ hasText: task }).textContent()) ?? '';
        expect(row).toContain(percent(block['acc,none']!));
        expect(await both.getByRole('row').filter({ hasText: task }).textContent()).toContain(
          percent(block['acc,none']!),
        );
        expect(row).toContain(percent(block['acc_stderr,none']!));
        expect(row).toMatch(new RegExp(`${block['sample_len']!}$`));
      }
    }
  });

  it('are compared as the command compares them', async () => {
    const { tasks, summary } = compare(a, b);
    const shown = await browser.open(page, { hash: 'comparison' });
    const text = (await shown.textContent('main')) ?? '';
    expect(text).toContain(summary.replace('B is', 'b (made) is'));
    expect(text).toContain('137 questions are in both.');
    expect(text).toContain('13 questions of tasks that both have are only in a (made), and left out.');
    expect(text).toContain('Only a (made) has: mine.');
    const rows = shown.getByRole('table', { name: 'Metrics on the common questions' }).getByRole('row');
    for (const { task, metrics } of tasks) {
      const row = (await rows.filter({ hasText: task }).textContent()) ?? '';
      const [{ a: first, b: other, test }] = metrics as [(typeof metrics)[number]];
      expect(row).toContain(percent(first) + percent(other));
      expect(row).toContain(test!.p < 0.01 ? test!.p.toFixed(4) : test!.p.toFixed(2));
    }
    await shown.click('.flips a');
    await shown.getByText('6 of 155 questions', { exact: true }).waitFor();
    expect(await shown.textContent('#row-0')).toContain('was right');
  });
});
