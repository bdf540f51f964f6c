/** The npm package as a user gets it: unpacked from its tarball, without a prebuilt addon, it builds one and runs. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');

it('the unpacked package builds its addon if none loads, and scores questions', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-package-'));
  try {
    const run = (program: string, args: string[], cwd: string): string => {
      const { status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: 'utf8' });
      expect(status, `${program} ${args.join(' ')}: ${stderr}`).toBe(0);
      return stdout;
    };
    run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], ROOT);
    const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'))!;
    run('tar', ['-xzf', tarball], folder);
    const unpacked = join(folder, 'package');
    symlinkSync(join(ROOT, 'node_modules'), join(unpacked, 'node_modules'));
    rmSync(join(unpacked, 'build'), { recursive: true, force: true });
    run('npm', ['run', 'install'], unpacked);
    expect(existsSync(join(unpacked, 'build', 'Release', 'tilewright.node'))).toBe(true);
    const data = join('examples', 'everyday.jsonl');
    const args = ['dist/cli/main.js', 'run', 'models/demo', '--task', 'hellaswag', '--data', data, '--limit', '3'];
    expect(JSON.parse(run(process.execPath, [...args, '--json'], unpacked))).toHaveProperty('results');
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
