/** What the tests on a GPU share. They use node:test, so that they also run from the bundle, which has no vitest. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { UserError } from '../../errors.js';
import type { CudaArch } from '../../ir/cuda.js';
import { findCudaCompiler, type CudaCompiler } from '../../runtime/cuda/compiler.js';
import { readSettings, type Settings } from '../../settings.js';

/** A folder that is removed after the tests of the file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-gpu-'));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** The settings of this machine with an empty kernel cache. */
export const freshSettings = (extra: Partial<Settings> = {}): Settings => ({
  ...readSettings(),
  cacheDir: temporaryFolder(),
  ...extra,
});

/** A compiler, or the reason why tests that need one are skipped (`skip` of node:test). */
export async function compilerOrReason(
  arch: CudaArch,
  settings: Settings = readSettings(),
): Promise<CudaCompiler | string> {
  try {
    return await findCudaCompiler(arch, undefined, settings);
  } catch (error) {
    if (error instanceof UserError) return error.message;
    throw error;
  }
}
