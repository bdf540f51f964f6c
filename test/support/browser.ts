/**
 * A browser for the tests of pages: one for each file, in which pages are opened from the disk. Whatever a page logs as
 * an error, throws or asks of a network fails the test.
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
  return {
    async open(file, { hash = '', width = 1280, isDark = false } = {}) {
      const page = await browser!.newPage({
        viewport: { width, height: 900 },
        colorScheme: isDark ? 'dark' : 'light',
      });
      const address = pathToFileURL(file).href;
      // What is waited for may come late on a busy machine: the test's own time-out ends what never comes.
      page.setDefaultTimeout(0);
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') wrong.push(`console: ${message.text()}`);
      });
      page.on('pageerror', ({ message }) => wrong.push(`error: ${message}`));
      page.on('request', (request) => {
        const url = request.url();
        if (url.split('#')[0] !== address && !url.startsWith('data:')) wrong.push(`request: ${url}`);
      });
      await page.goto(`${address}${hash === '' ? '' : `#${hash}`}`);
      await page.waitForSelector('main:not(:has([aria-busy]))');
      return page;
    },
  };
}
