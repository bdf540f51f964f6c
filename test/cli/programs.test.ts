/** What users start is bundled: it loads what it needs and no more, and V8's code of it is kept. */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../settings.js';
import { thorough } from '../support/thorough.js';

const ROOT = join(import.meta.dirname, '..', '..');
const BUNDLE = join(ROOT, 'dist', 'bundle');
const MAIN = join(ROOT, 'dist', 'cli', 'main.js');
const isBuilt = existsSync(BUNDLE);
if (!isBuilt) console.warn('SKIPPED test/cli/programs.test.ts: dist/bundle is missing; run npm run build');

/** What takes long to load, or is native. */
const PACKAGES = ['zod', 'handlebars', 'chevrotain', 'tokenizers', 'yaml', 'koffi', 'hyparquet', 'fzstd'];

let folder = '';
let cache = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-programs-'));
  cache = join(folder, 'cache');
  // Lists what is read and required, as one line of JSON.
  writeFileSync(
    join(folder, 'spy.cjs'),
    `const [fs, Module] = [require('node:fs'), require('node:module')];
     const [names, { readFileSync }, { _load }] = [new Set(), fs, Module];
     fs.readFileSync = (path, ...rest) => (names.add(String(path)), readFileSync(path, ...rest));
     Module._load = (id, ...rest) => (names.add(id), _load(id, ...rest));
     process.on('exit', () => fs.writeSync(2, 'LOADED ' + JSON.stringify([...names]) + '\\n'));`,
  );
  writeFileSync(
    join(folder, 'break.cjs'),
    `require('node:os').totalmem = () => { throw new TypeError('no memory'); };`,
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(flags: readonly string[], argv: readonly string[], more: Record<string, string> = {}): Ran {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...flags, MAIN, ...argv], {
    cwd: ROOT,
    encoding: 'utf8',
    env: { PATH: readSettings().path, HOME: folder, TILEWRIGHT_CACHE: cache, ...more },
  });
  return { status, stdout, stderr };
}

/** Packages whose code lies in a chunk, by its source map. */
function packagesIn(chunk: string): string[] {
  const map = `${chunk}.map`;
  if (!existsSync(map)) return [];
  const { sources } = JSON.parse(readFileSync(map, 'utf8')) as { sources: string[] };
  return sources.flatMap((source) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(source)?.[1] ?? []);
}

/** Chunks that are loaded with a chunk, itself included. */
function chunksWith(name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  const code = readFileSync(join(BUNDLE, name), 'utf8');
  for (const [, next] of code.matchAll(/^(?:(?:const|let|var) \w+ = )?require\("\.\/([^"]+)"\)/gm))
    chunksWith(next!, found);
  return found;
}

const archives = (): string[] => (existsSync(join(cache, 'code')) ? readdirSync(join(cache, 'code')) : []);
const bytesOf = (archive: string): Buffer => readFileSync(join(cache, 'code', archive));

describe.skipIf(!isBuilt)('a bundled program', () => {
  it.each([['--version'], ['--help'], ['generate', '--help']])('loads little for %s %s', (...argv) => {
    const { stderr } = start(['--require', join(folder, 'spy.cjs')], argv);
    const loaded = JSON.parse(/^LOADED (.*)$/m.exec(stderr)![1]!) as string[];
    const chunks = loaded.filter((name) => name.startsWith(BUNDLE));
    expect(chunks.length).toBeGreaterThan(5);
    const packages = new Set([...chunks.flatMap(packagesIn), ...loaded]);
    expect(packages).toContain('commander');
    expect(PACKAGES.filter((name) => packages.has(name))).toEqual([]);
    const kilobytes = chunks.reduce((sum, path) => sum + statSync(path).size, 0) >> 10;
    expect(kilobytes).toBeLessThan(500);
  });

  it('that owns devices begins with no planner, parser or package', () => {
    const chunks = [...chunksWith('driver-devices-child.cjs')].map((name) => join(BUNDLE, name));
    expect(chunks.length).toBeGreaterThan(3);
    expect(chunks.flatMap(packagesIn)).toEqual([]);
    const sources = chunks.flatMap((chunk) =>
      existsSync(`${chunk}.map`)
        ? (JSON.parse(readFileSync(`${chunk}.map`, 'utf8')) as { sources: string[] }).sources
        : [],
    );
    expect(sources.filter((source) => /\/(passes|codegen|models|evaluate|tasks|autotune)\//.test(source))).toEqual([]);
  });

  thorough('keeps its code after a command, and takes it from there as long as it is sound', () => {
    expect(start([], ['--help']).status).toBe(0);
    expect(archives()).toEqual([]);
    const first = start([], ['completion', 'bash']);
    expect([first.status, first.stderr]).toEqual([0, '']);
    const [archive = ''] = archives();
    expect(archives()).toEqual([archive]);
    const kept = bytesOf(archive);
    expect(start([], ['completion', 'bash'])).toEqual(first);
    expect(bytesOf(archive)).toEqual(kept);

    // Another command adds what it has loaded.
    expect(start([], ['tasks', '--json']).status).toBe(0);
    expect(bytesOf(archive).length).toBeGreaterThan(kept.length);

    // A damaged one is made anew.
    const damaged = bytesOf(archive);
    damaged[damaged.length >> 1]! ^= 0x55;
    writeFileSync(join(cache, 'code', archive), damaged);
    expect(start([], ['completion', 'bash'])).toEqual(first);
    const mended = bytesOf(archive);
    expect(start([], ['completion', 'bash'])).toEqual(first);
    expect(bytesOf(archive)).toEqual(mended);

    // Code for other flags is other code.
    expect(start(['--stack-size=1200'], ['completion', 'bash'])).toEqual(first);
    expect(archives()).toHaveLength(2);
  });

  thorough('keeps no code of what fails, and says nothing where none can be kept', () => {
    const failing = join(folder, 'failing');
    expect(start([], ['inspect', 'nowhere'], { TILEWRIGHT_CACHE: failing }).status).toBe(1);
    expect(existsSync(join(failing, 'code'))).toBe(false);
    writeFileSync(join(folder, 'file'), '');
    const { status, stderr } = start([], ['completion', 'bash'], { TILEWRIGHT_CACHE: join(folder, 'file') });
    expect([status, stderr]).toEqual([0, '']);
  });

  it('names files and lines of the source where a stack is asked for', () => {
    mkdirSync(cache, { recursive: true });
    const { status, stderr } = start(['--require', join(folder, 'break.cjs')], ['doctor'], { TILEWRIGHT_DEBUG: '1' });
    expect(status).toBe(1);
    expect(stderr).toContain('TypeError: no memory');
    expect(stderr).toMatch(/commands\/doctor\.ts:\d+:\d+/);
  });

  it('comes with the licences of the packages that are in it', () => {
    const text = readFileSync(join(BUNDLE, 'LICENSES.txt'), 'utf8');
    const packages = readdirSync(BUNDLE)
      .filter((name) => name.endsWith('.cjs'))
      .flatMap((name) => packagesIn(join(BUNDLE, name)));
    expect(packages.length).toBeGreaterThan(100);
    for (const name of new Set(packages)) expect(text).toMatch(new RegExp(`^${name} \\d`, 'm'));
  });
});
