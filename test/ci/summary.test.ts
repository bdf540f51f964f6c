/** .ci/summary.mjs: the last line of a CI run, and when it fails one. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SCRIPT = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '.ci', 'summary.mjs');

interface FileReport {
  readonly status: 'passed' | 'failed';
  readonly tests: readonly string[];
}

/** Last line and exit status for a report with these files; undefined: no report at all. */
function summarize(
  files: readonly FileReport[] | undefined,
  isSuccess = true,
): { line: string | undefined; status: number | null } {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-summary-'));
  try {
    const path = join(folder, 'report.json');
    if (files !== undefined) {
      const testResults = files.map(({ status, tests }, i) => ({
        name: `file${i}`,
        status,
        message: '',
        assertionResults: tests.map((test) => ({ status: test })),
      }));
      writeFileSync(path, JSON.stringify({ success: isSuccess, testResults }));
    }
    const run = spawnSync(process.execPath, [SCRIPT, path], { encoding: 'utf8' });
    return { line: run.stdout.trimEnd().split('\n').at(-1), status: run.status };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

it.each([
  [
    'passes',
    [{ status: 'passed', tests: ['passed', 'passed', 'skipped', 'pending', 'todo'] }],
    true,
    '2 passed, 0 failed, 3 skipped',
    0,
  ],
  [
    'counts failures over files',
    [
      { status: 'failed', tests: ['passed', 'failed'] },
      { status: 'passed', tests: ['passed'] },
    ],
    false,
    '2 passed, 1 failed, 0 skipped',
    1,
  ],
  [
    'counts a file that could not be loaded',
    [
      { status: 'failed', tests: [] },
      { status: 'passed', tests: ['passed'] },
    ],
    false,
    '1 passed, 1 failed, 0 skipped',
    1,
  ],
  [
    'counts an error outside every test',
    [{ status: 'passed', tests: ['passed'] }],
    false,
    '1 passed, 1 failed, 0 skipped',
    1,
  ],
  ['fails where nothing ran', [{ status: 'passed', tests: ['skipped'] }], true, '0 passed, 0 failed, 1 skipped', 1],
  ['fails where there is no report', undefined, true, '0 passed, 0 failed, 0 skipped', 1],
] as const)('%s', (_what, files, isSuccess, line, status) => {
  expect(summarize(files, isSuccess)).toEqual({ line, status });
});
