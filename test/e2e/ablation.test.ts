/** `npm run bench:ablation` as a process, on a stand-in for a GPU: every row is there, and its tokens are counted. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { describeRows } from '../../bench/ablationTechniques.js';
import { readSettings } from '../../settings.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { writeCheckpoint } from './smallModel.js';
import { isBuilt, ROOT, temporaryFolder } from './support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: the benchmark of techniques: no cc or g++ on PATH\n');

const OPTIONS = { sequences: 5, prefill: 64 };

describe.skipIf(!isBuilt || !canFakeGpu)('bench:ablation --target cuda', () => {
  test('prints a row for each technique', async () => {
    const program = join(ROOT, 'dist', 'bench', 'ablation.js');
    const data = join(ROOT, 'examples', 'everyday.jsonl');
    const flags = [
      '--batch-tokens',
      '256',
      '--questions',
      '12',
      '--rounds',
      '1',
      '--sequences',
      '5',
      '--prefill',
      '64',
    ];
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [program, '--model', writeCheckpoint(), '--target', 'cuda', '--data', data, ...flags],
      { env: { PATH: readSettings().path, ...new FakeGpu(temporaryFolder()).environment() } },
    );
    const rows = [...stdout.matchAll(/^\| ([^|]+) \| (\d+) \| (\d+) \| ([\d.]+) \| [\d.]+ \| ([^|]+) \|$/gm)];
    const names = [...describeRows(OPTIONS).matchAll(/^ {2}(\S.*)$/gm)].map(([, name]) => name);
    expect(names).toHaveLength(12);
    expect(rows.map(([, name]) => name)).toEqual(names);
    const tokens = rows.map(([, , count]) => Number(count));
    // Trees, sequences twice, two phases, and the same without labels.
    expect(tokens[1]).toBe(tokens[2]);
    expect(tokens[0]).toBeLessThan(tokens[1]!);
    expect(tokens[4]).toBe(tokens[3]);
    expect(tokens[5]).toBeLessThan(tokens[4]!);
    expect(rows.filter(([, , , , , bits]) => bits === 'other prompts')).toHaveLength(2);
  });
});
