/**
 * Bundles the pages of report/page into dist/report/pages: a script for each of them, and the style sheet. Pages that
 * the program writes hold these files whole, so that they work from a disk.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const FROM = join(ROOT, 'report', 'page');
const TO = join(ROOT, 'dist', 'report', 'pages');

/** A page for each script at the top of the folder: its bundle is made for browsers of the last three years. */
const pages = readdirSync(FROM).filter((name) => name.endsWith('.tsx'));

/** In a script element, this would end it. */
const inHtml = (code) => code.replace(/<\/(script)/gi, '<\\/$1').replaceAll('<!--', '\\x3C!--');

async function build(page) {
  const bundle = await rolldown({
    input: join(FROM, page),
    platform: 'browser',
    tsconfig: false,
    resolve: { extensionAlias: { '.js': ['.tsx', '.ts', '.js'] } },
    transform: { target: 'es2022', jsx: { runtime: 'automatic', importSource: 'preact' } },
    onLog: (level, log) => {
      if (level !== 'debug' && level !== 'info') throw new Error(`${page}: ${log.message}`);
    },
  });
  const { output } = await bundle.generate({ format: 'iife', minify: true, comments: false });
  await bundle.close();
  const code = output.filter(({ type }) => type === 'chunk').map((chunk) => chunk.code);
  if (code.length !== 1) throw new Error(`${page}: ${code.length} chunks in place of one`);
  writeFileSync(join(TO, `${basename(page, '.tsx')}.js`), inHtml(code[0]));
}

mkdirSync(TO, { recursive: true });
await Promise.all(pages.map(build));

const styles = readdirSync(FROM, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.css'));
const sheet = styles
  .sort((a, b) => a.split('/').length - b.split('/').length || (a < b ? -1 : 1))
  .map((name) => readFileSync(join(FROM, name), 'utf8'))
  .join('\n');
if (/<\//.test(sheet)) throw new Error('a style sheet would end its element');
writeFileSync(join(TO, 'pages.css'), sheet);
