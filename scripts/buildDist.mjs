/**
 * Finishes dist behind the TypeScript compiler: copies what it leaves behind, bundles the pages of reports and the
 * programs that users start, and writes the digest of the built code beside it.
 */
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import Handlebars from 'handlebars';
import { rolldown } from 'rolldown';
import { TEMPLATE_OPTIONS } from '../dist/codegen/templates.js';
import { hashProgram, STAMP } from '../dist/driver/program.js';

const ROOT = dirname(import.meta.dirname);
const DIST = join(ROOT, 'dist');

/**
 * Templates with their compiled form, headers of kernels, the kernel ABI, texts of built-in tasks, golden files of the
 * GPU tests.
 */
function copyAssets() {
  const filesOf = (...folder) => readdirSync(join(ROOT, ...folder)).map((file) => join(...folder, file));
  const printed = readdirSync(join(ROOT, 'codegen'), { recursive: true, encoding: 'utf8' }).map((file) =>
    join('codegen', file),
  );
  // What a build of other sources has left would be part of this program.
  const made = join(DIST, 'codegen');
  for (const file of readdirSync(made, { recursive: true, encoding: 'utf8' }))
    if (/\.(?:hbs|cuh|h)$/.test(file) || basename(file) === 'compiled.cjs') rmSync(join(made, file));
  const templates = printed.filter((file) => file.endsWith('.hbs'));
  const headers = printed.filter((file) => /\.(?:cuh|h)$/.test(file));
  const copied = [...filesOf('test', 'gpu', 'golden'), ...filesOf('tasks', 'builtin', 'texts')];
  for (const file of [...templates, ...headers, ...copied, join('runtime', 'native', 'abi.h')]) {
    mkdirSync(dirname(join(DIST, file)), { recursive: true });
    cpSync(join(ROOT, file), join(DIST, file));
  }
  // Each folder gets one module of compiled templates, by file name, which codegen/templates.ts finds.
  for (const folder of new Set(templates.map((file) => dirname(file)))) {
    const entries = templates
      .filter((file) => dirname(file) === folder)
      .map((file) => {
        const compiled = Handlebars.precompile(readFileSync(join(ROOT, file), 'utf8'), TEMPLATE_OPTIONS);
        return `${JSON.stringify(basename(file))}: ${compiled},\n`;
      });
    writeFileSync(join(DIST, folder, 'compiled.cjs'), `module.exports = {\n${entries.join('')}};\n`);
  }
  // `npx tilewright` in this folder starts the file itself.
  chmodSync(join(DIST, 'cli', 'main.js'), 0o755);
}

const FROM = join(ROOT, 'report', 'page');
const TO = join(DIST, 'report', 'pages');

/** In a script element, this would end it. */
const inHtml = (code) => code.replace(/<\/(script)/gi, '<\\/$1').replaceAll('<!--', '\\x3C!--');

/** The bundle of a page, for browsers of the last three years. */
async function buildPage(page) {
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

/**
 * The pages of report/page, each a script, with one style sheet. Pages that the program writes hold these files whole,
 * so that they work from a disk.
 */
async function buildPages() {
  mkdirSync(TO, { recursive: true });
  // A page for each script at the top of the folder.
  await Promise.all(
    readdirSync(FROM)
      .filter((name) => name.endsWith('.tsx'))
      .map(buildPage),
  );

  const styles = readdirSync(FROM, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.css'));
  const sheet = styles
    .sort((a, b) => a.split('/').length - b.split('/').length || (a < b ? -1 : 1))
    .map((name) => readFileSync(join(FROM, name), 'utf8'))
    .join('\n');
  if (/<\//.test(sheet)) throw new Error('a style sheet would end its element');
  writeFileSync(join(TO, 'pages.css'), sheet);
}

const BUNDLE = join(DIST, 'bundle');

/** Modules that a process or a thread is started by, and what they export to it. */
const PROGRAMS = {
  'cli/main': [],
  'driver/devices/child': [],
  'runtime/cuda/nvrtcProcess': [],
  'evaluate/tokenizeWorker': [],
  'serve/http/thread': [],
  'serve/link/grammarThread': [],
  'serve/texts/encodeWorker': [],
  'models/chat/worker': [],
  'models/tokenizer/thread': ['createTokenizer'],
};
/** Loaded by the loader itself. */
const KEEP_CODE = 'system/keepCode';

/** Packages with native code stay where they are. `handlebars` compiles templates, which the build has done. */
const EXTERNAL = ['koffi', 'tokenizers', 'handlebars'];

const bundleName = (module) => module.replaceAll('/', '-');

/**
 * Makes a module of the project one of CommonJS that is in dist/bundle: its URL stays that of the compiler's output in
 * dist, so that what it reads and starts lies where it lies for the module itself.
 */
const placed = {
  name: 'placed',
  transform: {
    filter: { id: /\.ts$/ },
    handler(code, id) {
      const path = relative(ROOT, id);
      if (path.startsWith('node_modules') || !/^#!|\bimport[.(]/.test(code)) return undefined;
      const url = `require('node:url').pathToFileURL(__dirname + '/../${path.replace(/\.ts$/, '.js')}').href`;
      const made = code
        .replace(/^#!.*/, '')
        .replace('const require = createRequire(import.meta.url);', '')
        .replaceAll('createRequire(import.meta.url)', 'require')
        .replaceAll('import.meta.url', url)
        // V8 forgets of code that was kept what an import of a name that is computed refers to.
        .replaceAll(/\bimport\((?=[^'")])/g, '(require.import ?? ((name) => import(name)))(');
      if (/\bimport\.meta\b/.test(made)) throw new Error(`${path}: of import.meta only its url is known here`);
      // No replacement adds or takes a line: the map stays as good as it was.
      return { code: made, map: null };
    },
  },
};

const options = (input, plugins = []) => ({
  input,
  plugins,
  platform: 'node',
  external: EXTERNAL,
  tsconfig: false,
  resolve: { extensionAlias: { '.js': ['.ts', '.js'] } },
  transform: { target: 'node20' },
  onLog: (level, { code, message }) => {
    if (level !== 'debug' && level !== 'info') throw new Error(`${code}: ${message}`);
  },
});

const OUTPUT = {
  format: 'cjs',
  chunkFileNames: '[name]-[hash].cjs',
  sourcemap: true,
  sourcemapExcludeSources: true,
  comments: { legal: true, annotation: false, jsdoc: false },
};

async function bundle() {
  const modules = [...Object.keys(PROGRAMS), KEEP_CODE];
  const input = Object.fromEntries(modules.map((module) => [bundleName(module), join(ROOT, `${module}.ts`)]));
  const build = await rolldown(options(input, [placed]));
  const { output } = await build.write({ ...OUTPUT, dir: BUNDLE, entryFileNames: '[name].cjs' });
  await build.close();
  return output.filter(({ type }) => type === 'chunk');
}

async function bundleLoader() {
  const build = await rolldown(options(join(ROOT, 'system', 'startProgram.ts')));
  await build.write({ ...OUTPUT, file: join(BUNDLE, 'start.cjs') });
  await build.close();
}

/** The licences of the packages whose code is in the chunks. */
function licences(chunks) {
  const folders = new Set(
    chunks.flatMap(({ moduleIds }) =>
      moduleIds.flatMap((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id.replace(/^\0/, ''))?.[0] ?? []),
    ),
  );
  return [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((each) => /^(licen[cs]e|copying)/i.test(each));
    const text = file === undefined ? license : readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${version}\n\n${text}\n`;
  });
}

/** The file in dist that starts a program. */
function writeStart(module, exported, build) {
  const file = join(DIST, `${module}.js`);
  const up = '../'.repeat(module.split('/').length - 1);
  const start = `startProgram(join(import.meta.dirname, '${up}bundle'), '${build}', '${module}')`;
  writeFileSync(
    file,
    [
      ...(module === 'cli/main' ? ['#!/usr/bin/env node'] : []),
      `import { createRequire } from 'node:module';`,
      `import { join } from 'node:path';`,
      `const { startProgram } = createRequire(import.meta.url)('${up}bundle/start.cjs');`,
      exported.length === 0 ? `${start};` : `export const { ${exported.join(', ')} } = ${start};`,
      '',
    ].join('\n'),
  );
  chmodSync(file, module === 'cli/main' ? 0o755 : 0o644);
}

/**
 * What users start, from the TypeScript sources into dist/bundle: the command line, the processes and the threads. Each
 * loads the chunks that it needs, and V8's code of them is kept (system/startProgram.ts). In dist, a file that starts
 * one stands where the compiler's output of the same module was; all other modules stay as they are, for those who
 * import them.
 */
async function buildPrograms() {
  rmSync(BUNDLE, { recursive: true, force: true });
  // It is of other code from now on.
  rmSync(join(DIST, 'program.sha256'), { force: true });
  mkdirSync(BUNDLE);
  const [chunks] = await Promise.all([bundle(), bundleLoader()]);
  const digest = createHash('sha256');
  for (const { fileName, code } of chunks) digest.update(fileName).update('\0').update(code);
  const build = digest.digest('hex').slice(0, 16);
  for (const [module, exported] of Object.entries(PROGRAMS)) writeStart(module, exported, build);
  writeFileSync(join(BUNDLE, 'LICENSES.txt'), licences(chunks).join(`\n${'-'.repeat(80)}\n\n`));
}

copyAssets();
await buildPages();
await buildPrograms();
// A process reads this digest instead of all code (driver/program.ts).
writeFileSync(join(DIST, STAMP), `${hashProgram(DIST)}\n`);
