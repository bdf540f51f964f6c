/**
 * Counts what the structure of the repository is measured by: files and lines of each room, type names that several
 * files declare, assertions that an element is there, and the longest chain of imports from the command line. With a
 * folder, counts there: `npm run structure -- ../other`.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path/posix';

const root = process.argv[2] ?? '.';
const files = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' })
  .split('\n')
  .filter((file) => file !== '' && existsSync(join(root, file)));
const textOf = new Map(files.map((file) => [file, readFileSync(join(root, file), 'utf8')]));
const linesOf = (file) => textOf.get(file).split('\n').length - 1;
const sum = (list) => list.reduce((total, each) => total + each, 0);
const isCode = (file) => /\.(tsx?|mts|mjs|cjs|hbs|cc|h|c|cu|cuh)$/.test(file);
const sources = files.filter((file) => /\.tsx?$/.test(file) && file.includes('/') && !/^(test|scripts)\//.test(file));
const matches = (text, pattern) => [...text.matchAll(pattern)];

const rooms = new Map();
for (const file of files) {
  const room = file.split('/')[0];
  rooms.set(room, [...(rooms.get(room) ?? []), file]);
}
for (const [room, all] of rooms) {
  const code = all.filter((file) => isCode(file) && file.includes('/'));
  if (code.length > 0)
    console.log(`${room.padEnd(12)} ${String(code.length).padStart(5)} files ${sum(code.map(linesOf))} lines`);
}
const counted = files.filter((file) => isCode(file) || file.endsWith('.md'));
console.log(
  `all          ${String(counted.length).padStart(5)} files ${sum(counted.map(linesOf))} lines, documents included`,
);
const scripts = files.filter((file) => /\.tsx?$/.test(file));
const small = scripts.filter((file) => linesOf(file) < 100);
console.log(`TypeScript files with fewer than 100 lines: ${small.length} of ${scripts.length}`);

const declared = new Map();
for (const file of sources) {
  for (const name of new Set(
    matches(textOf.get(file), /^(?:export )?(?:type|interface|class) ([A-Z]\w*)/gm).map((m) => m[1]),
  ))
    declared.set(name, (declared.get(name) ?? 0) + 1);
}
console.log(`type names that several files declare: ${[...declared.values()].filter((times) => times > 1).length}`);
console.log(`]! in sources: ${sum(sources.map((file) => matches(textOf.get(file), /\]!/g).length))}`);
const documents = files.filter((file) => file.startsWith('docs/') && file.endsWith('.md'));
console.log(`lines of docs: ${sum(documents.map(linesOf))}; changelog: ${linesOf('CHANGELOG.md')}`);
console.log(`decision records: ${files.filter((file) => /^docs\/decisions\/\d/.test(file)).length}`);
console.log(`glossary entries: ${matches(textOf.get('docs/glossary.md'), /^\*\*/gm).length}`);

const known = new Set(files);
const importsOf = new Map(
  sources.map((file) => {
    const text = textOf.get(file).replaceAll(/^import type [^;]*;/gm, '');
    const targets = matches(text, /(?:from|import)\s*\(?\s*'(\.[^']*)'/g).map((m) => {
      const path = normalize(join(dirname(file), m[1])).replace(/\.js$/, '');
      return [`${path}.ts`, `${path}.tsx`].find((each) => known.has(each));
    });
    return [file, targets.filter((each) => each !== undefined && each !== file)];
  }),
);
const chains = new Map();
function chainFrom(file, above) {
  const found = chains.get(file);
  if (found !== undefined) return found;
  let longest = [];
  for (const next of importsOf.get(file) ?? []) {
    if (above.has(next)) continue;
    const chain = chainFrom(next, new Set([...above, file]));
    if (chain.length > longest.length) longest = chain;
  }
  const chain = [file, ...longest];
  chains.set(file, chain);
  return chain;
}
const chain = chainFrom('cli/main.ts', new Set());
console.log(`longest chain of imports from cli/main.ts: ${chain.length} files`);
console.log(`  ${chain.join(' > ')}`);
