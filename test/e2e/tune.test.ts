/** Real tuning of the demo model: it keeps to its budget, shows its progress, and stops when told to. */
import { readFileSync, writeFileSync } from 'node:fs';
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

  test('leaves an artifact its machine code where nothing better was found', async () => {
    const folder = temporaryFolder();
    const cc = join(folder, 'slow-cc');
    writeFileSync(cc, '#!/bin/sh\ncase "$1" in --version) ;; *) sleep 3 ;; esac\nexec cc "$@"\n', { mode: 0o755 });
    const own = join(folder, 'own.tw');
    success(await tilewright(['compile', join(ROOT, 'models/demo'), '-o', own, '--max-tokens', '256']));
    const before = readFileSync(join(own, 'manifest.json'), 'utf8');
    expect(before).toContain('kernels.so');
    const env = { TILEWRIGHT_CC: cc, TILEWRIGHT_CACHE: join(folder, 'cache') };
    const flags = ['--budget', '1s', '--threads', '2', '--database', join(folder, 'none.jsonl')];
    success(await tilewright(['tune', own, ...flags], { env }));
    expect(readFileSync(join(own, 'manifest.json'), 'utf8')).toBe(before);
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
