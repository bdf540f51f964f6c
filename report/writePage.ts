/**
 * Writes a page: one HTML file with its script, its style and its data, which opens from a disk without a network
 * (decision 25). Data is deflated JSON in blocks that a browser never executes, read when they are first looked at.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { deflateRawSync } from 'node:zlib';
import { UserError } from '../errors.js';
import { writeAtomically } from '../system/write.js';
import { type Block, blockId } from './document/sections.js';

/** A script in report/page. `server` asks the server that the page comes from; others use no network. */
export type PageApp = 'report' | 'explore' | 'server';

export interface Page {
  readonly app: PageApp;
  readonly title: string;
  /** Read one after another: together they may be larger than memory should hold. */
  readonly blocks: Iterable<Block>;
}

/** Where bundles lie: beside the compiled program, or in its build where the sources run. */
const FOLDERS = ['./pages/', '../dist/report/pages/'].map((path) => new URL(path, import.meta.url));

function bundled(name: string): string {
  const path = FOLDERS.map((folder) => fileURLToPath(new URL(name, folder))).find(existsSync);
  if (path === undefined) throw new UserError(`the program's pages are not built: ${name} is missing`, 'npm run build');
  return readFileSync(path, 'utf8');
}

const AMPERSANDS: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replace(/[&<>"]/g, (character) => AMPERSANDS[character]!);

/** Nothing is loaded, and of scripts only ours runs. Charts set styles of their own. */
const policyOf = (app: PageApp, script: string): string =>
  [
    "default-src 'none'",
    `script-src 'sha256-${createHash('sha256').update(script).digest('base64')}'`,
    "style-src 'unsafe-inline'",
    'img-src data:',
    ...(app === 'server' ? ["connect-src 'self'"] : []),
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');

/** Base64 has no character that HTML gives a meaning. */
const blockHtml = ({ name, content }: Block): string => {
  const data = deflateRawSync(JSON.stringify(content), { level: 9 }).toString('base64');
  return `<script type="application/octet-stream" id="${escaped(blockId(name))}">${data}</script>\n`;
};

function* htmlOf({ app, title, blocks }: Page): Generator<string> {
  const [script, sheet] = [bundled(`${app}.js`), bundled('pages.css')];
  yield `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policyOf(app, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
<style>
${sheet}</style>
</head>
<body>
<noscript>This page draws its content with a script of its own. Allow scripts for it; it loads nothing.</noscript>
<div id="page"></div>
`;
  for (const block of blocks) yield blockHtml(block);
  yield `<script>${script}</script>
</body>
</html>
`;
}

/** The page of a server, as it is sent. Throws UserError where it was not built. */
export const serverPage = (): string => [...htmlOf({ app: 'server', title: 'tilewright', blocks: [] })].join('');

/** Written whole or not at all. Throws UserError where the file cannot be written. */
export function writePage(path: string, page: Page): void {
  writeAtomically(path, htmlOf(page));
}
