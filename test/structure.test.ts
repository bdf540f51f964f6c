/**
 * The shape of the source tree: what imports what, how long files are, where the environment is read. These rules keep
 * the project readable. Lint checks most of them too; here they fail in `vitest run` alone.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { ARCHITECTURES } from '../models/families/registry.js';
import { thorough } from './support/thorough.js';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const MAX_LINES = 500;
const MAX_COLUMNS = 120;
/** Kernels as the code generators print them. */
const GENERATED = /^test\/codegen\/(.*\/)?golden\//;
const SOURCE = /\.(ts|tsx|css|mjs|cjs|js|hbs|c|cc|cpp|h|hpp|sh)$/;
const CRUISER = join(ROOT, 'node_modules', 'dependency-cruiser', 'bin', 'dependency-cruise.mjs');

/** What .gitignore names, and what is not part of the project. */
const NOT_SOURCE = /^(node_modules|dist|build|results|\.git|\.tilewright|.*\.tw)$/;

/** Paths of source files from the root, with forward slashes. `kind` matches the names of others. */
function sourceFiles(folder = '', kind = SOURCE): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    if (entry.isDirectory()) return NOT_SOURCE.test(entry.name) ? [] : sourceFiles(path, kind);
    return entry.isFile() && kind.test(entry.name) ? [path] : [];
  });
}

const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** `file:line: text` for every line of `source` that matches. */
function matchingLines(file: string, source: string, pattern: RegExp): string[] {
  return source.split('\n').flatMap((line, i) => (pattern.test(line) ? [`${file}:${i + 1}: ${line.trim()}`] : []));
}

const lineCount = (source: string): number => source.split('\n').length - (source.endsWith('\n') ? 1 : 0);

/** Spelled in two parts, so that this file does not match its own rules. */
const READS_ENVIRONMENT = new RegExp('process\\s*\\.\\s*' + 'env\\b');
const IMPORTS_ENVIRONMENT = new RegExp("import\\s*\\{[^}]*\\benv\\b[^}]*\\}\\s*from\\s*'(node:)?" + "process'");
const FOCUSES = new RegExp('\\b(it|test|describe|suite|bench)(\\.\\w+)*\\.' + 'only\\(');
const TOO_LONG = new RegExp(`^.{${MAX_COLUMNS + 1},}$`, 'u');
const WORD = new RegExp(`[:<,|&(=[]\\s*${'an'}y\\b|\\b(as|extends|keyof|readonly|is)\\s+${'an'}y\\b`);
const SILENCES = new RegExp('@ts-' + '(ignore|nocheck)');

/** `file:line` of every type in `source` that switches checking off. Parsed, so that prose may use the word. */
function untypedPlaces(file: string, source: string): string[] {
  // Most files do not have the word, and need no parser.
  if (!WORD.test(source)) return [];
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.ES2022, false);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (node.kind === ts.SyntaxKind.AnyKeyword)
      found.push(`${file}:${tree.getLineAndCharacterOfPosition(node.pos).line + 1}`);
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

/**
 * Files that loading `file` loads: its imports and theirs, except imports of types and those made only when something
 * is called.
 */
function loadedBy(file: string, found = new Set<string>()): Set<string> {
  if (found.has(file)) return found;
  found.add(file);
  for (const statement of ts.createSourceFile(file, text(file), ts.ScriptTarget.ES2022, false).statements) {
    const isOfTypes = ts.isImportDeclaration(statement)
      ? statement.importClause?.isTypeOnly === true
      : ts.isExportDeclaration(statement) && statement.isTypeOnly;
    const from =
      ts.isImportDeclaration(statement) || ts.isExportDeclaration(statement) ? statement.moduleSpecifier : undefined;
    if (isOfTypes || from === undefined || !ts.isStringLiteral(from) || !from.text.startsWith('.')) continue;
    loadedBy(join(dirname(file), from.text.replace(/\.js$/, '.ts')), found);
  }
  return found;
}

const folderOf = (file: string): string => file.split('/').slice(0, -1).join('/');

/** The folders that files of `folder` import, types and dynamic imports included, each with one such import. */
function foldersImportedBy(folder: string, files: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const file of files.filter((each) => folderOf(each) === folder)) {
    for (const { fileName } of ts.preProcessFile(text(file)).importedFiles) {
      if (!fileName.startsWith('.')) continue;
      const imported = join(folder, fileName).replace(/\.js$/, '.ts');
      const to = folderOf(imported);
      if (to !== folder && to !== '') found.set(to, `${file} imports ${imported}`);
    }
  }
  return found;
}

/**
 * Circles of folders, each of which reaches the others by imports. Returns the folders of each circle in alphabetical
 * order. A folder stands for its own files; its sub-folders count separately.
 */
function circlesOf(imports: ReadonlyMap<string, Iterable<string>>): string[][] {
  const reachable = (from: string): Set<string> => {
    const found = new Set<string>();
    const visit = (folder: string): void => {
      for (const next of imports.get(folder) ?? []) {
        if (found.has(next)) continue;
        found.add(next);
        visit(next);
      }
    };
    visit(from);
    return found;
  };
  const reached = new Map([...imports.keys()].map((folder) => [folder, reachable(folder)]));
  const circles = [...reached].flatMap(([folder, all]) =>
    all.has(folder) ? [[...all].filter((each) => reached.get(each)?.has(folder) === true).sort()] : [],
  );
  return [...new Map(circles.map((circle) => [circle.join(), circle])).values()].sort();
}

/** Violations that dependency-cruiser reports for the tree at `folder`: rule and path. */
function importViolations(folder: string): { rule: string; from: string; to: string }[] {
  const run = spawnSync(
    process.execPath,
    [CRUISER, '--config', '.dependency-cruiser.cjs', '--no-progress', '--output-type', 'json', '.'],
    { cwd: folder, encoding: 'utf8', maxBuffer: 1 << 28 },
  );
  const report = JSON.parse(run.stdout) as {
    summary: { totalCruised: number; violations: { from: string; to: string; rule: { name: string } }[] };
  };
  expect(report.summary.totalCruised, 'nothing was cruised').toBeGreaterThan(0);
  return report.summary.violations.map((v) => ({ rule: v.rule.name, from: v.from, to: v.to }));
}

describe('source files', () => {
  const files = sourceFiles();
  const typescript = files.filter((file) => /\.tsx?$/.test(file));

  it('are found', () => {
    expect(typescript).toContain('ir/kernel.ts');
    expect(typescript).toContain('test/structure.test.ts');
  });

  it(`have at most ${MAX_LINES} lines: split by idea`, () => {
    const long = files.map((file) => ({ file, lines: lineCount(text(file)) })).filter(({ lines }) => lines > MAX_LINES);
    expect(long).toEqual([]);
  });

  it(`have lines of at most ${MAX_COLUMNS} columns`, () => {
    const long = files
      .filter((file) => !GENERATED.test(file))
      .flatMap((file) => matchingLines(file, text(file), TOO_LONG));
    expect(long).toEqual([]);
  });

  it(`have lines of at most ${MAX_COLUMNS} columns in documents, but for tables`, () => {
    const documents = sourceFiles('', /\.md$/);
    expect(documents).toEqual(expect.arrayContaining(['README.md', 'docs/architecture.md']));
    const long = documents.flatMap((file) => matchingLines(file, text(file), TOO_LONG));
    expect(long.filter((line) => !/^\S+: \|/.test(line))).toEqual([]);
  });

  it('read the environment in settings.ts only', () => {
    const readers = files
      .filter((file) => /\.(tsx?|mjs|cjs|js)$/.test(file) && file !== 'settings.ts')
      .flatMap((file) => [
        ...matchingLines(file, text(file), READS_ENVIRONMENT),
        ...matchingLines(file, text(file), IMPORTS_ENVIRONMENT),
      ]);
    expect(readers).toEqual([]);
  });

  it('focus no test', () => {
    expect(typescript.flatMap((file) => matchingLines(file, text(file), FOCUSES))).toEqual([]);
  });

  it('leave nothing untyped and silence no compiler error', () => {
    expect(typescript.flatMap((file) => untypedPlaces(file, text(file)))).toEqual([]);
    expect(typescript.flatMap((file) => matchingLines(file, text(file), SILENCES))).toEqual([]);
  });

  it('name a family of models in models/ only', () => {
    // Short names are parts of other words.
    const families = new RegExp(
      ARCHITECTURES.map(({ modelType: name }) => (name.length > 3 ? name : `\\b${name}\\b`)).join('|'),
      'i',
    );
    const product = typescript.filter((file) => !/^(models|test|bench|examples|docs|scripts)\//.test(file));
    expect(product).toEqual(expect.arrayContaining(['driver/functions.ts', 'index.ts', 'passes/pipeline.ts']));
    // Words of other things: a switch of node, a folder, a word of English, a data set of a company, Greek letters.
    const others = /--no-opt|'\/opt\/|isCoherent|Global-MMLU|\b(theta|upsilon|Omega)\b/;
    const named = product.flatMap((file) => matchingLines(file, text(file), families));
    expect(named.filter((line) => !others.test(line))).toEqual([]);
  });

  it.each(['CONTRIBUTING.md', 'docs/architecture.md'])('are in rooms that the table of %s names', (page) => {
    const rooms = typescript.flatMap((file) => /^(?!bench|test|examples)(\w+)\//.exec(file)?.[1] ?? []);
    const named = [...text(page).matchAll(/^\| (?:`|\[)(\w+)\//gm)].map(([, room]) => room);
    expect(new Set(named.filter((room) => room !== 'bench'))).toEqual(new Set(rooms));
  });

  it('break these rules where the patterns match', () => {
    expect(READS_ENVIRONMENT.test('const home = process' + '.env.HOME;')).toBe(true);
    expect(IMPORTS_ENVIRONMENT.test("import { argv, env } from 'node:" + "process';")).toBe(true);
    expect([TOO_LONG.test('x'.repeat(120)), TOO_LONG.test('x'.repeat(121))]).toEqual([false, true]);
    expect(FOCUSES.test('describe.skip.only' + "('x', f)")).toBe(true);
    expect(
      untypedPlaces(
        'a.ts',
        '/** Takes: any */\nconst f = (x: ' + "any) => 'is: any';\nconst g = f as unknown as " + 'any;',
      ),
    ).toEqual(['a.ts:2', 'a.ts:3']);
  });
});

// `npm run lint` checks the same rules for the source tree.
describe('imports', () => {
  it('of the command line load no compiler before a command is called', () => {
    const folders = (file: string): Set<string> => new Set([...loadedBy(file)].map((path) => path.split('/')[0]!));
    const compiler = ['models', 'passes', 'codegen', 'autotune'];
    expect(folders('cli/main.ts')).toContain('driver');
    expect([...folders('cli/main.ts')].filter((folder) => compiler.includes(folder))).toEqual([]);
    expect([...folders('driver/compile/open.ts')]).toEqual(expect.arrayContaining(compiler));
  });

  it('form no circle of folders', () => {
    const product = sourceFiles().filter((file) => /^(?!test|bench|examples|scripts|docs).*\/.*\.tsx?$/.test(file));
    const folders = [...new Set(product.map(folderOf))];
    expect(folders).toEqual(expect.arrayContaining(['driver', 'driver/devices', 'runtime/cpu']));
    const imports = new Map(folders.map((folder) => [folder, foldersImportedBy(folder, product)]));
    const circles = circlesOf(new Map([...imports].map(([folder, to]) => [folder, [...to.keys()]])));
    const why = circles.map((circle) =>
      circle.flatMap((from) => circle.flatMap((to) => imports.get(from)?.get(to) ?? [])),
    );
    expect(why).toEqual([]);
  });

  it('that form a circle of folders are found', () => {
    const circles = circlesOf(
      new Map([
        ['a', ['a/b', 'c']],
        ['a/b', ['a/c']],
        ['a/c', ['a']],
        ['c', ['d']],
        ['d', []],
      ]),
    );
    expect(circles).toEqual([['a', 'a/b', 'a/c']]);
  });

  thorough('are reported if they break a rule', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tilewright-imports-'));
    try {
      for (const file of ['.dependency-cruiser.cjs', 'tsconfig.json', 'package.json'])
        cpSync(join(ROOT, file), join(folder, file));
      symlinkSync(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
      const write = (file: string, source: string): void => {
        mkdirSync(dirname(join(folder, file)), { recursive: true });
        writeFileSync(join(folder, file), `${source}\nexport {};\n`);
      };
      write('settings.ts', '');
      write('errors.ts', "import './settings.js';");
      write('ir/plan.ts', "import '../errors.js';");
      write('ir/scalar.ts', "import './plan.js';");
      write('ir/a.ts', "import type {} from './b.js';");
      write('ir/b.ts', "import type {} from './a.js';");
      write('evaluate/score.ts', "import type {} from '../ir/plan.js';");
      write('runtime/run.ts', "import '../ir/plan.js';\nimport '../ir/scalar.js';\nimport 'fast-check';");
      write('runtime/cpu/stage.ts', "import '../run.js';\nimport '../cuda/stage.js';");
      write('runtime/cuda/stage.ts', '');
      write('runtime/shared.ts', "import './cpu/compile.js';\nimport './cuda/stage.js';");
      write('runtime/cpu/compile.ts', '');
      write('codegen/emit.ts', "import '../passes/fuse.js';\nimport './gone.js';");
      write('passes/fuse.ts', "import '../ir/scalar.js';\nimport '../test/helper.js';");
      write('driver/run.ts', "import '../evaluate/score.js';\nimport '../cli/main.js';");
      write('cli/main.ts', "import '../evaluate/score.js';");
      write('test/helper.ts', "import '../ir/plan.js';");
      const found = importViolations(folder).map(({ rule, from }) => `${rule} ${from}`);
      expect([...new Set(found)].sort()).toEqual([
        'commons-import-nothing errors.ts',
        'no-cycle ir/a.ts',
        'no-dev-package-in-product runtime/run.ts',
        'no-test-in-product passes/fuse.ts',
        'no-unresolvable codegen/emit.ts',
        'room-codegen codegen/emit.ts',
        'room-driver driver/run.ts',
        'room-evaluate evaluate/score.ts',
        'room-passes passes/fuse.ts',
        'room-runtime runtime/run.ts',
        'runtime-knows-no-cpu runtime/shared.ts',
        'runtime-targets-on-top runtime/cpu/stage.ts',
        'runtime-targets-on-top runtime/shared.ts',
      ]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
