/** A browser for scripts that look at pages: Debian's chromium, or the program in TILEWRIGHT_CHROMIUM. */
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium } from 'playwright-core';

const { readSettings } = await import(new URL('../dist/settings.js', import.meta.url).href);

/** Nothing is fetched in the background, and no sandbox is needed for pages of our own. */
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking'];

export async function openBrowser() {
  const settings = readSettings();
  const executablePath =
    settings.chromium ??
    settings.path
      .split(delimiter)
      .map((folder) => join(folder, 'chromium'))
      .find((path) => existsSync(path));
  if (executablePath === undefined) {
    process.stderr.write(
      'error: there is no chromium\nhint: apt-get install chromium, or name one in TILEWRIGHT_CHROMIUM\n',
    );
    process.exit(1);
  }
  return chromium.launch({ executablePath, args: FLAGS });
}

/** Waits until a page shows a section with its texts and charts. */
export async function settled(page) {
  await page.waitForSelector('main:not(:has([aria-busy])) :is(.plot svg, .graph svg, .row, table)', {
    state: 'attached',
  });
}
