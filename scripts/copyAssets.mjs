/**
 * Finishes dist: copies what the TypeScript compiler leaves behind (templates, the kernel ABI, examples of tasks,
 * golden files of the GPU tests), compiles the templates, and lets the command be started.
 */
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Handlebars from 'handlebars';
import { TEMPLATE_OPTIONS } from '../dist/codegen/templates.js';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const templates = readdirSync(join(ROOT, 'codegen'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.hbs'))
  .map((file) => join('codegen', file));

const golden = readdirSync(join(ROOT, 'test', 'gpu', 'golden')).map((file) => join('test', 'gpu', 'golden', file));

const texts = readdirSync(join(ROOT, 'tasks', 'builtin', 'texts')).map((file) =>
  join('tasks', 'builtin', 'texts', file),
);

for (const file of [...templates, ...golden, ...texts, join('runtime', 'native', 'abi.h')]) {
  const to = join(ROOT, 'dist', file);
  mkdirSync(dirname(to), { recursive: true });
  cpSync(join(ROOT, file), to);
}

// Each folder gets one module of compiled templates, which codegen/templates.ts finds: file name → the result of
// Handlebars.
for (const folder of new Set(templates.map((file) => dirname(file)))) {
  const entries = templates
    .filter((file) => dirname(file) === folder)
    .map(
      (file) =>
        `${JSON.stringify(basename(file))}: ` +
        `${Handlebars.precompile(readFileSync(join(ROOT, file), 'utf8'), TEMPLATE_OPTIONS)},\n`,
    );
  writeFileSync(join(ROOT, 'dist', folder, 'compiled.cjs'), `module.exports = {\n${entries.join('')}};\n`);
}

// `npx tilewright` in this folder starts the file itself.
chmodSync(join(ROOT, 'dist', 'cli', 'main.js'), 0o755);
