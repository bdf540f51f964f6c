/** `tilewright route` on the command line: its file, and a check of it. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runCli } from './fakeIo.js';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tilewright-route-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function write(value: unknown): string {
  const file = join(folder, 'route.json');
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
  return file;
}

describe('tilewright route --check', () => {
  it('says what there is', async () => {
    expect(await runCli(['route', '--config', 'examples/route.json', '--check'])).toMatchObject({
      status: 0,
      stdout: 'examples/route.json: 2 replicas, 0 adapters\n',
    });
  });

  it('names adapters whose folders cannot be read, and fails', async () => {
    const adapters = {
      gone: { base: 'm', path: join(folder, 'nowhere') },
      named: { base: 'm', path: '/x', revision: 'r1' },
    };
    const file = write({ replicas: [{ url: 'http://a' }], adapters });
    const outcome = await runCli(['route', '--config', file, '--check']);
    expect(outcome.status).toBe(1);
    expect(outcome.stdout).toContain('gone: its folder cannot be read: no such file');
    expect(outcome.stdout).toContain('named: revision r1');
    const { stdout } = await runCli(['route', '--config', file, '--check', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ adapters: [{ name: 'gone' }, { name: 'named', revision: 'r1' }] });
  });

  it.each([
    [['route'], 2, '--config is missing'],
    [['route', '--config', 'nowhere.json', '--check'], 1, 'nowhere.json: no such file'],
  ])('%j is refused', async (argv, status, words) => {
    const outcome = await runCli(argv);
    expect([outcome.status, outcome.stderr]).toEqual([status, expect.stringContaining(words)]);
  });

  it('refuses what is no JSON', async () => {
    const outcome = await runCli(['route', '--config', write('{'), '--check']);
    expect([outcome.status, outcome.stderr]).toEqual([1, expect.stringContaining('route.json: not valid JSON')]);
    expect(outcome.stderr).toContain('a shortest one:');
  });
});
