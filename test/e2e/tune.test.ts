/** Real tuning of the demo model: it keeps to its budget, shows its progress, and stops when told to. */
import { beforeAll, describe, expect, test } from 'vitest';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isBuilt, ROOT, start, success, temporaryFolder, tilewright } from './support.js';

/** What a busy machine may add to anything, in seconds: less than compiling all kernels takes there. */
const SLACK = 6;

describe.skipIf(!isBuilt)('tune', () => {
  const artifact = join(temporaryFolder(), 'demo.tw');
  const database = join(temporaryFolder(), 'tuning.jsonl');

  beforeAll(async () => {
    success(await tilewright(['compile', join(ROOT, 'models/demo'), '-o', artifact, '--max-tokens', '256']));
  });

  test('takes its budget and little more, compiling included, and the artifact runs', async () => {
    const { stdout } = success(
      await tilewright(['tune', artifact, '--budget', '3s', '--threads', '2', '--database', database, '--json']),
    );
    const { table, seconds } = JSON.parse(stdout) as { readonly table: readonly string[]; readonly seconds: number };
    expect(seconds).toBeLessThan(3 + SLACK);
    for (const share of table.join('\n').matchAll(/(\d+) %/g)) expect(Number(share[1])).toBeLessThanOrEqual(100);
    success(await tilewright(['inspect', artifact]));
  });

  test('stops at once at Ctrl-C while compilers run, and leaves the artifact whole', async () => {
    const running = start(['tune', artifact, '--budget', '5m', '--threads', '2', '--database', database]);
    while (!running.stderr().includes('tune: ')) await sleep(20);
    await sleep(1500);
    const begin = performance.now();
    running.process.kill('SIGINT');
    const { status, stderr } = await running.ended;
    expect((performance.now() - begin) / 1000).toBeLessThan(2 + SLACK);
    expect(status).toBe(130);
    expect(stderr).toContain('go on with');
    success(await tilewright(['inspect', artifact]));
  });
});
