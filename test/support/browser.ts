/**
 * A browser for the tests of pages: one for each file, in which pages are opened from the disk, or from a server of the
 * test. Whatever a page logs as an error, throws or asks of another network fails the test.
 */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, expect } from 'vitest';
import { readSettings } from '../../settings.js';

/** The program, where there is one. */
export const CHROMIUM =
  readSettings().chromium ??
  readSettings()
    .path.split(delimiter)
    .map((folder) => join(folder, 'chromium'))
    .find((path) => existsSync(path));

/** Nothing is fetched in the background, and no sandbox is needed for pages of our own. */
export const BROWSER_FLAGS = [
  ...['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-extensions', '--no-first-run'],
  ...['--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-default-apps'],
];

export interface OpenOptions {
  /** Behind the `#` of the address. */
  readonly hash?: string;
  readonly width?: number;
  readonly isDark?: boolean;
}

export interface TestBrowser {
  /** Opens a file in a new page, and waits until a section is shown. */
  open(file: string, options?: OpenOptions): Promise<Page>;
  /** The same for a page that a server sends and that may ask it for more. An error over HTTP is no error of it. */
  visit(address: string, options?: OpenOptions): Promise<Page>;
}

/** Call it in a `describe`. Pages are closed at its end, when what went wrong in them is looked at. */
export function useBrowser(): TestBrowser {
  let browser: Browser | undefined;
  const wrong: string[] = [];
  beforeAll(async () => {
    const { chromium } = await import('playwright-core');
    browser = await chromium.launch({
      timeout: 0,
      ...(CHROMIUM === undefined ? {} : { executablePath: CHROMIUM }),
      args: BROWSER_FLAGS,
    });
  });
  afterAll(async () => {
    await browser?.close();
    expect(wrong).toEqual([]);
  });
  const openPage = async (
    address: string,
    { hash = '', width = 1280, isDark = false }: OpenOptions,
    mayAsk: (url: string) => boolean,
  ): Promise<Page> => {
    const page = await browser!.newPage({
      viewport: { width, height: 900 },
      colorScheme: isDark ? 'dark' : 'light',
    });
    // What is waited for may come late on a busy machine: the test's own time-out ends what never comes.
    page.setDefaultTimeout(0);
    page.on('console', (message) => {
      const isOfHttp = message.text().startsWith('Failed to load resource') && mayAsk(message.location().url);
      if (!isOfHttp && /^(error|warning)$/.test(message.type())) wrong.push(`console: ${message.text()}`);
    });
    page.on('pageerror', ({ message }) => wrong.push(`error: ${message}`));
    page.on('request', (request) => {
      const url = request.url();
      if (!mayAsk(url.split('#')[0]!) && !url.startsWith('data:')) wrong.push(`request: ${url}`);
    });
    await page.goto(`${address}${hash === '' ? '' : `#${hash}`}`);
    await page.waitForSelector('main:not(:has([aria-busy]))');
    return page;
  };
  return {
    open(file, options = {}) {
      const address = pathToFileURL(file).href;
      return openPage(address, options, (url) => url === address);
    },
    visit(address, options = {}) {
      const { origin } = new URL(address);
      return openPage(address, options, (url) => url.startsWith(`${origin}/`));
    },
  };
}

// What a page hides: elements beside its edges, and boxes with more in them than they show and say.

/**
 * Runs in the page. An element may be wider than the page inside of a box that scrolls; such a box must have
 * `data-more` and fade out. A line may end in dots where the whole is shown elsewhere.
 */
const LOOK = String.raw`(() => {
  const NEAR = 1.5;
  const wide = document.documentElement.clientWidth;
  const found = [];
  const said = (el) => [el.tagName.toLowerCase(), ...el.classList].join('.') + ' ' +
    JSON.stringify((el.textContent ?? '').trim().slice(0, 40));
  const scrolls = (overflow) => overflow === 'auto' || overflow === 'scroll';
  if (document.documentElement.scrollWidth > wide + NEAR)
    found.push('the page is ' + document.documentElement.scrollWidth + ' wide');
  for (const el of document.querySelectorAll('header *, main *, footer *')) {
    if (el.closest('.hidden, .skip, [hidden], select') !== null) continue;
    const box = el.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    const style = getComputedStyle(el);
    if (!(el instanceof SVGElement) && el.clientWidth > 0)
      for (const [overflow, over] of [
        [style.overflowX, el.scrollWidth - el.clientWidth],
        [style.overflowY, el.scrollHeight - el.clientHeight],
      ]) {
        if (over <= NEAR || overflow === 'visible') continue;
        if (scrolls(overflow)) {
          if (!el.dataset.more || style.maskImage === 'none') found.push(said(el) + ' scrolls and does not say so');
        } else if (style.textOverflow !== 'ellipsis') found.push(said(el) + ' hides ' + over + ' pixels');
      }
    let outer = el.parentElement;
    while (outer !== null && !scrolls(getComputedStyle(outer).overflowX) &&
      getComputedStyle(outer).textOverflow !== 'ellipsis') outer = outer.parentElement;
    if (outer === null && el.children.length === 0 && (box.right > wide + NEAR || box.left < -NEAR))
      found.push(said(el) + ' lies from ' + Math.round(box.left) + ' to ' + Math.round(box.right));
  }
  return found;
})()`;

/** A line for each; every part that can be opened is open. */
export async function clippedIn(page: Page): Promise<readonly string[]> {
  await page.evaluate('document.querySelectorAll("details").forEach((each) => { each.open = true; })');
  await page.evaluate('document.fonts.ready');
  // Boxes are marked with the frame after they have changed, and charts drawn with the one after that.
  const frames = 'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))';
  for (let i = 0; i < 3; i++) await page.evaluate(frames);
  return page.evaluate<readonly string[]>(LOOK);
}

/** What is shown of points beside the edges of the page, as the pointer goes over all charts: a line for each. */
export async function tipsBeside(page: Page, steps: number): Promise<readonly string[]> {
  const found = new Set<string>();
  let seen = 0;
  for (const chart of await page.locator('.plot svg').all()) {
    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    if (box === null) continue;
    for (let x = 0; x < steps; x++)
      for (const y of [0.15, 0.35, 0.55, 0.75]) {
        await page.mouse.move(box.x + ((x + 0.5) / steps) * box.width, box.y + y * box.height);
        const tips = await page.evaluate<readonly (readonly [number, number, string])[]>(
          `new Promise((done) => requestAnimationFrame(() => done(
            [...document.querySelectorAll('[aria-label=tip] > g')].map((tip) => {
              const { left, right } = tip.getBoundingClientRect();
              return [left, right, tip.textContent];
            }))))`,
        );
        seen += tips.length;
        const wide = page.viewportSize()!.width;
        for (const [left, right, text] of tips)
          if (left < -1 || right > wide + 1) found.add(`${text.slice(0, 60)}: ${left} to ${right}`);
      }
  }
  if (seen === 0) found.add('nothing was pointed at');
  return [...found];
}
