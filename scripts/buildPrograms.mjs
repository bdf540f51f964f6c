/**
 * Bundles what users start, from the TypeScript sources into dist/bundle: the command line, the processes and the
 * threads. Each of them loads the chunks that it needs, and V8's code of them is kept (system/startProgram.ts). In
 * dist, a file that starts one stands where the compiler's output of the same module was; all other modules stay as
 * they are, for those who import them.
 */
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { rolldown } from 'rolldown';

const ROOT = dirname(import.meta.dirname);
const DIST = join(ROOT, 'dist');
const BUNDLE = join(DIST, 'bundle');

/** Modules that a process or a thread is started by, and what they export to it. */
const PROGRAMS = {
  'cli/main': [],
  'driver/devices/child': [],
  'runtime/cuda/nvrtcProcess': [],
  'evaluate/tokenizeWorker': [],
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

if (!existsSync(DIST)) throw new Error('dist is missing: npm run build');
rmSync(BUNDLE, { recursive: true, force: true });
// It is of other code from now on (scripts/stampProgram.mjs).
rmSync(join(DIST, 'program.sha256'), { force: true });
mkdirSync(BUNDLE);
const [chunks] = await Promise.all([bundle(), bundleLoader()]);
const digest = createHash('sha256');
for (const { fileName, code } of chunks) digest.update(fileName).update('\0').update(code);
const build = digest.digest('hex').slice(0, 16);
for (const [module, exported] of Object.entries(PROGRAMS)) writeStart(module, exported, build);
writeFileSync(join(BUNDLE, 'LICENSES.txt'), licences(chunks).join(`\n${'-'.repeat(80)}\n\n`));
