/**
 * The command as users start it: a process of its own, from dist/. For Ctrl-C and resuming see
 * test/e2e/interrupted.test.ts.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSettings } from '../../settings.js';
import { quickCc, runFolder } from '../support/runFolder.js';
import { isThorough } from '../support/thorough.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const MAIN = join(ROOT, 'dist', 'cli', 'main.js');
const isBuilt = [MAIN, join(ROOT, 'build', 'Release', 'tilewright.node')].every((path) => existsSync(path));
const hasCompiler = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;
if (!isBuilt) console.warn('SKIPPED test/cli/built.test.ts: dist/ or the addon is missing; run npm run build');

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-built-'));
  mkdirSync(join(folder, 'bin'));
  const cc = quickCc();
  if (cc !== undefined) symlinkSync(cc, join(folder, 'bin', 'cc'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** With the first compiler on PATH, whose objects other files of this run have too. */
const environment = (): Record<string, string> => ({
  PATH: [join(folder, 'bin'), readSettings().path].join(delimiter),
  HOME: folder,
  TILEWRIGHT_CACHE: join(runFolder(), 'e2e-cache'),
});
const tilewright = (...argv: string[]): { status: number | null; stdout: string; stderr: string } =>
  spawnSync(process.execPath, [MAIN, ...argv], { cwd: ROOT, encoding: 'utf8', env: environment(), maxBuffer: 1 << 26 });

const RUN = ['run', 'models/demo', '--task', 'hellaswag', '--data', 'examples/everyday.jsonl'];

describe.skipIf(!isBuilt)('the built command', () => {
  it('prints help and its version, and says what is wrong', () => {
    const nothing = tilewright();
    expect([nothing.status, nothing.stderr]).toEqual([0, '']);
    expect(nothing.stdout).toContain('tilewright compile models/demo -o demo.tw');
    expect(tilewright('--version').stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
    const wrong = tilewright('run', 'nowhere', '--task', 'hellaswag', '--data', 'examples/everyday.jsonl');
    expect([wrong.status, wrong.stdout]).toEqual([1, '']);
    expect(wrong.stderr).toMatch(/error: nowhere: there is no such folder in \/.*\nhint: give the folder /);
    expect(wrong.stderr).not.toMatch(/\n\s+at /);
    const both = tilewright('run', 'nowhere', '--task', 'hellaswag', '--data', 'nowhere.jsonl');
    expect(both.stderr).toMatch(/^error: nowhere: there is no such folder/);
  });

  it.runIf(isThorough && process.getuid?.() === 0)(
    'works for a user whom the system does not know, and asks for a cache folder',
    () => {
      const as = (...argv: string[]): { status: number | null; stdout: string; stderr: string } =>
        spawnSync(process.execPath, [MAIN, ...argv], {
          cwd: ROOT,
          encoding: 'utf8',
          env: { PATH: readSettings().path },
          uid: 54_321,
          gid: 54_321,
        });
      expect(as('--version').stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
      const run = as(...RUN, '--limit', '1');
      expect(run.status).toBe(1);
      expect(run.stderr).toContain('There is no place for the cache of compiled kernels');
      expect(run.stderr).toContain('export TILEWRIGHT_CACHE=/path');
    },
  );

  it('says in one line that its results cannot be written', () => {
    const full = spawnSync('sh', ['-c', `"${process.execPath}" "${MAIN}" doctor --json > /dev/full`], {
      cwd: ROOT,
      encoding: 'utf8',
      env: environment(),
    });
    expect([full.status, full.stderr]).toEqual([1, 'error: cannot write the standard output: the disk is full\n']);
  });

  it('says nothing if its reader has gone away', () => {
    const piped = spawnSync(
      'sh',
      ['-c', `"${process.execPath}" "${MAIN}" inspect models/demo --pass model | head -n 1; echo "done"`],
      { cwd: ROOT, encoding: 'utf8', env: environment() },
    );
    expect(piped.stderr).toBe('');
    expect(piped.stdout).toMatch(/^func @score.*\ndone\n$/);
  });

  it.skipIf(!hasCompiler)('runs, and with --json prints nothing but JSON', () => {
    // The kernels of test/e2e/golden.test.ts.
    const size = ['--precision', 'f32', '--batch-tokens', '128'];
    const { status, stdout, stderr } = tilewright(...RUN, '--limit', '3', ...size, '--json');
    expect([status, stderr]).toEqual([0, '']);
    const results = JSON.parse(stdout) as {
      results: { hellaswag: Record<string, unknown> };
      throughput: { questions: number };
    };
    expect(results.throughput.questions).toBe(3);
    expect(results.results.hellaswag).toHaveProperty('acc,none');
  });
});
