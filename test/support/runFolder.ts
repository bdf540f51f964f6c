/** The folder of one run of all tests: caches of compiled kernels, which test files share, and temporary folders. */
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programText } from './quickCc.js';

/** Where files lie in memory. */
export const MEMORY = '/dev/shm';
/** The folder of all temporary files of a run, where there is plenty of memory (vitest.config.ts makes it). */
export const memoryFolder = (pid: number): string => join(MEMORY, `tilewright-${pid}`);

/**
 * The folder of the run whose main process is `pid`; test files run in its children. globalSetup.ts creates and removes
 * it.
 */
export const runFolder = (pid: number = process.ppid): string =>
  join(existsSync(memoryFolder(pid)) ? memoryFolder(pid) : tmpdir(), `tilewright-tests-${pid}`);

/** The system's C compiler; its full path, as a test may put the one below in front of it on PATH. */
const systemCc = (): string | undefined =>
  ['cc', 'gcc', 'clang']
    .map((name) => spawnSync('/bin/sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).stdout.trim())
    .find((path) => path !== '' && spawnSync(path, ['--version'], { stdio: 'ignore' }).status === 0);

/**
 * Path of the compiler of quickCc.ts, in the folder that the files of one run share; undefined where the system has
 * none. `optimization` replaces -O3: the bits of results do not depend on it.
 */
export function quickCc(optimization: '-O1' | '-O3' = '-O3'): string | undefined {
  const folder = join(runFolder(), 'quick-cc');
  // The product remembers that a program of such a name works, as it does for the system's compilers.
  const path = join(folder, `quick${optimization}-cc`);
  if (existsSync(path)) return path;
  const compiler = systemCc();
  if (compiler === undefined) return undefined;
  mkdirSync(folder, { recursive: true });
  const own = `${path}-${process.pid}`;
  writeFileSync(`${own}.c`, programText(compiler, folder, optimization));
  execFileSync(compiler, ['-O1', '-Wall', '-Werror', '-o', own, `${own}.c`], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  renameSync(own, path);
  return path;
}

/** Puts at `path` what `make` writes to the path that it gets: it is made once in a run for each `key`. */
export function copyOfMade(key: string, path: string, make: (to: string) => void): void {
  const folder = join(runFolder(), 'made');
  const kept = join(folder, createHash('sha256').update(key).digest('hex'));
  if (!existsSync(kept)) {
    mkdirSync(folder, { recursive: true });
    const own = `${kept}-${process.pid}`;
    make(own);
    renameSync(own, kept);
  }
  // A library that is loaded stays as it is.
  rmSync(path, { force: true });
  copyFileSync(kept, path);
}
