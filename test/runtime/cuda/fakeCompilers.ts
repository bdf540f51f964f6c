/**
 * Compilers for tests of the code that chooses and runs them: a stand-in for NVRTC, one for nvcc, and settings that
 * find no other.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CachedSettings } from '../kernels.js';
import { readSettings, type Settings } from '../../../settings.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';

const SOURCE = fileURLToPath(new URL('../../support/fakeNvrtc/nvrtc.c', import.meta.url));

export const hasCc = spawnSync('cc', ['--version'], { stdio: 'ignore' }).status === 0;

/** Builds the stand-in of test/support/fakeNvrtc at `path`. Returns the path. */
export function makeNvrtc(
  path: string,
  version: readonly [number, number] = [13, 0],
  defines: readonly string[] = [],
): string {
  mkdirSync(dirname(path), { recursive: true });
  const result = spawnSync(
    'cc',
    ['-shared', '-fPIC', '-O1', `-DMAJOR=${version[0]}`, `-DMINOR=${version[1]}`, ...defines, '-o', path, SOURCE],
    { encoding: 'utf8' },
  );
  if (result.status !== 0) throw new Error(result.stderr);
  return path;
}

/** A program that only prints a version. */
export function makeNvcc(path: string, release: string): string {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(
    path,
    `#!/bin/sh\necho "Cuda compilation tools, release ${release}, V${release}.1"\necho "Build cuda_${release}"\n`,
    { mode: 0o755 },
  );
  return path;
}

/** Settings under which nothing of this machine's CUDA is found, except what its loader knows. */
export const isolated = (folder: string, extra: Omit<Partial<Settings>, 'cacheDir'> = {}): CachedSettings => ({
  ...readSettings({ PATH: '/usr/bin:/bin' }),
  path: '',
  cacheDir: join(folder, 'cache'),
  cudaToolkits: [],
  pythonPrefixes: [],
  ...extra,
});

/** True if the system's loader has an NVRTC of its own, which no setting hides. */
export const hasSystemNvrtc = (): boolean =>
  ['libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so.11.2', 'libnvrtc.so'].some((name) => {
    try {
      loadKoffi().load(name);
      return true;
    } catch {
      return false;
    }
  });
