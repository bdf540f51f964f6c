/** `bench:serve-gpu` from end to end, on a CPU: an engine, and a server beside it. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { readSettings } from '../../settings.js';
import { environment, isBuilt, ROOT } from '../e2e/support.js';

describe.skipIf(!isBuilt)('npm run bench:serve-gpu', () => {
  it('measures everything that it is asked for', async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [
        join(ROOT, 'dist', 'bench', 'serveGpu.js'),
        ...[
          '--target',
          'cpu',
          '--model',
          'llama-4m',
          '--cache-tokens',
          '16000',
          '--requests',
          '8',
          '--spreads',
          '0.5',
          '--streams',
          '4',
        ],
        ...['--stream-tokens', '20', '--poisson-seconds', '2', '--rounds', '2', '--stalled-streams', '3'],
        ...['--stalled-tokens', '20', '--longest', '500', '--processes', '2', '--limit', '5000'],
      ],
      { env: { PATH: readSettings().path, ...environment() } },
    );
    const rows = stdout.split('\n').filter((line) => line.startsWith('| '));
    expect(rows.slice(1).map((row) => row.split(':')[0])).toEqual([
      ...Array<string>(3).fill('| 8 at once, spread 0.5'),
      ...Array<string>(3).fill('| 4 streams'),
      '| 4 whole answers',
      ...Array<unknown>(4).fill(expect.stringMatching(/^\| Poisson/)),
      ...['| alone', '| alone', '| 3 streams'],
    ]);
    for (const row of rows.slice(1)) expect(row).not.toMatch(/NaN|Infinity/);
  });
});
