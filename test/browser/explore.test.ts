/** The explorer in a browser: its slider, groups, kernels, search and links, and names that would be markup. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KernelsDocument, PassesDocument, Stage, UnitOp } from '../../report/document/explore.js';
import { writePage } from '../../report/writePage.js';
import { CHROMIUM, useBrowser } from '../support/browser.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-explore-'));
afterAll(() => rmSync(root, { recursive: true }));
const page = join(root, 'page.html');
if (CHROMIUM === undefined) console.warn('SKIPPED test/browser/explore.test.ts: there is no chromium');

/** Markup, the end of a script, and a mark that turns text around. */
const HOSTILE = '<img src=x onerror=alert(1)></script>\u202e';

const op = (name: string, more: Partial<UnitOp> = {}): UnitOp => ({
  ...{ sign: '', op: 'mul', name, path: 'ffn', type: 'f32[T, 4]', text: `%${name} = mul(@${HOSTILE})`, reads: [] },
  ...more,
});
const stage = (name: string, more: Partial<Stage> = {}): Stage => ({
  ...{ name, does: `${name} does it.`, reason: 'it must', level: 'graph', changed: true, ops: 120 },
  ...{ added: 0, removed: 0, rewritten: 0 },
  parts: [{ unit: 0, title: 'layers 0–59', count: 60, from: [[]] }],
  ...more,
});
const inputs = [{ name: `@${HOSTILE}`, kind: 'weight', type: 'bf16[4, 4]' }] as const;
const PASSES: PassesDocument = {
  functions: [
    {
      name: 'score',
      stages: [
        stage('model'),
        stage('makeBetter', { added: 60, parts: [{ unit: 1, title: 'layers 0–59', count: 60, from: [[]] }] }),
        stage('leaveAlone', { changed: false }),
        stage('lowerKernels', {
          level: 'kernels',
          ops: 1,
          parts: [{ unit: 2, title: 'layers 0–59', count: 60, from: [] }],
        }),
      ],
    },
  ],
  units: [
    { ops: [op('a', { reads: [-1] }), op('b', { reads: [0] })], inputs },
    { ops: [op('a', { reads: [-1] }), op('b', { reads: [0] }), op('c', { sign: '+', reads: [1] })], inputs },
    { ops: [op('layers_0_ffn', { op: 'gemm', fused: ['linear', 'exp'], kernel: 0 })], inputs: [] },
  ],
};
const KERNELS: KernelsDocument = {
  facts: [['model', HOSTILE]],
  language: 'C',
  roofline: { name: 'a machine', flopsPerSecond: 1e12, bytesPerSecond: 1e11 },
  functions: [
    {
      name: 'score',
      size: 'T = 32',
      kernels: [
        {
          ...{ name: 'layers_0_ffn', title: 'layers.{0..59}.ffn', path: 'layers.0.ffn', count: 60, anchor: 'gemm' },
          ...{ shape: '[T × 4] k 4', signature: 'f00', ir: HOSTILE, flops: 2e9, bytes: 1e7, seconds: 2e-3 },
          ops: [
            { op: 'linear', name: 'l', path: 'layers.0.ffn', text: '%l = linear()' },
            { op: 'exp', name: 'e', path: 'layers.0.ffn', text: '%e = exp(%l)' },
          ],
          operands: [{ name: 'h', type: 'f32[T, 4]', use: 'reads', space: 'arena' }],
          ...{
            predictedSeconds: 4e-3,
            schedule: 'tile 8×32',
            schedules: [],
            symbol: 'k',
            source: [0, 1],
            headers: [['gemm/part.cuh', 2]],
            resources: [],
          },
          spans: [[60, 61, [1]]],
        },
      ],
    },
  ],
  texts: [
    Array.from({ length: 60 }, (_, i) => `line ${i}`).join('\n'),
    'e = exp(l);\nf = e;',
    `/* ${HOSTILE} */\n#pragma once\nint x;\n`,
  ],
};

beforeAll(() => {
  const about = { title: HOSTILE, subtitle: 'cpu', writer: 'tilewright test', written: '2026-01-31', notes: [] };
  writePage(page, {
    ...{ app: 'explore', title: HOSTILE },
    blocks: Object.entries({ about, passes: PASSES, kernels: KERNELS }).map(([name, content]) => ({ name, content })),
  });
});

describe.skipIf(CHROMIUM === undefined)('the explorer', () => {
  const browser = useBrowser();

  it('shows the first pass that added something, and moves by its slider and by keys', async () => {
    const shown = await browser.open(page);
    expect(await shown.textContent('h2')).toBe('1 makeBetter');
    expect(await shown.textContent('p.left')).toBe('120 ops; 60 added +60');
    await shown.focus('input[type=range]');
    await shown.keyboard.press('ArrowRight');
    expect(await shown.textContent('h2')).toBe('2 leaveAlone');
    expect(await shown.getAttribute('input[type=range]', 'aria-valuetext')).toBe(
      '3 of 4: leaveAlone, 120 ops, no change',
    );
    await shown.click('h2');
    await shown.keyboard.press('[');
    expect(await shown.textContent('h2')).toBe('1 makeBetter');
    expect(await shown.evaluate('location.hash')).toBe('#?pass=makeBetter');
  });

  it('opens groups, shows what changed in them, and the op that is pressed', async () => {
    const shown = await browser.open(page, { hash: 'passes?pass=makeBetter' });
    const added = shown.locator('.box.added');
    expect(await added.getAttribute('aria-label')).toBe('mul, f32[T, 4], added');
    await shown.click('.frame [role=button]');
    const group = shown.locator('.box.group');
    expect(await group.getAttribute('aria-label')).toBe('group ffn, 3 ops, 1 added');
    await group.focus();
    await shown.keyboard.press('Enter');
    await added.click();
    expect(await shown.textContent('aside.op h4')).toBe('mul c added');
    await shown.reload();
    await shown.waitForSelector('aside.op');
    expect(await shown.textContent('aside.op pre')).toContain('<img src=x onerror=alert(1)></script>U+202E');
    expect(await shown.locator('img').count()).toBe(0);
  });

  it('leads from a kernel in the graph to its source, and its ops to their lines', async () => {
    const shown = await browser.open(page, { hash: 'passes?pass=lowerKernels' });
    await shown.click('.box.op');
    await shown.click('aside.op >> text=Show its ops in the graph');
    expect(await shown.textContent('.box.op .inside')).toBe('linear · exp');
    await shown.click('aside.op a');
    await shown.waitForSelector('article.kernel');
    expect(await shown.textContent('h2')).toBe('layers.{0..59}.ffn×60');
    expect(await shown.locator('.source .line').count()).toBe(10);
    await shown.click('ol.ops >> text=exp');
    expect(await shown.locator('.source .line.chosen .text').allTextContents()).toEqual(['e = exp(l);', 'f = e;']);
    await shown.click('.source .fold');
    expect(await shown.locator('.source .line').count()).toBe(62);
    expect(await shown.textContent('details:has(summary code) summary')).toBe('gemm/part.cuh 3 lines');
    expect(await shown.locator('[aria-label="gemm/part.cuh"]').count()).toBe(0);
    await shown.click('summary >> text=gemm/part.cuh');
    await shown.waitForSelector('[aria-label="gemm/part.cuh"] .line');
    expect(await shown.locator('[aria-label="gemm/part.cuh"] .line .text').allTextContents()).toEqual([
      expect.stringContaining('<img src=x'),
      '#pragma once',
      'int x;',
    ]);
    await shown.click('text=← All kernels');
    await shown.waitForSelector('article.kernel', { state: 'detached' });
    expect(await shown.textContent('dl.facts')).toContain('<img src=x');
    expect(await shown.locator('figure svg circle').count()).toBe(1);
  });

  it('finds passes, ops and kernels', async () => {
    const shown = await browser.open(page);
    await shown.fill('input[type=search]', 'ffn');
    expect(await shown.textContent('.search [role=status]')).toBe('4 found');
    await shown.fill('input[type=search]', 'mul ffn');
    await shown.click('.hits a >> text=mul c');
    expect(await shown.textContent('aside.op h4')).toBe('mul c added');
    await shown.fill('input[type=search]', 'gemm');
    await shown.click('.hits a');
    expect(await shown.textContent('article.kernel h2')).toBe('layers.{0..59}.ffn×60');
  });

  it('fits a narrow screen, and is dark where the system is', async () => {
    const shown = await browser.open(page, { width: 420, isDark: true });
    expect(await shown.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
    const light = 'getComputedStyle(document.querySelector(".graph")).backgroundColor.match(/\\d+/g).map(Number)[0]';
    expect(await shown.evaluate(light)).toBeLessThan(64);
  });
});
