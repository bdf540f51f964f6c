/** Finds an installed cuBLASLt. It is optional: the tuner only compares its kernels with it. */
import { isAbsolute, resolve } from 'node:path';
import { UserError } from '../../errors.js';
import type { Settings } from '../../settings.js';
import { openCublasLt, type CublasLt } from './cublasLt.js';
import { driverCudaVersion, versionText } from './cudaVersion.js';
import { below, cudaLibraryFolders } from './findNvrtc.js';

const LIBRARY = /^libcublasLt\.so((?:\.\d+)*)$/;
/** Newest first; what ldconfig knows. */
const DEFAULT_NAMES = ['libcublasLt.so.13', 'libcublasLt.so.12', 'libcublasLt.so.11', 'libcublasLt.so'] as const;
const WHEELS = /^(cu\d+|cublas)$/;

export interface FoundCublasLt {
  readonly library: CublasLt;
  readonly path: string;
}

const reasonOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';

/**
 * The first cuBLASLt that loads and that the driver can run, or why there is none. Throws UserError where
 * TILEWRIGHT_CUBLASLT names something unusable. `none` there turns it off.
 */
export async function findCublasLt(driverVersion: number, settings: Settings): Promise<FoundCublasLt | string> {
  if (settings.cublasLt === 'none') return 'turned off by TILEWRIGHT_CUBLASLT';
  const named = settings.cublasLt === undefined ? undefined : resolve(settings.cublasLt);
  const folders = named === undefined ? await cudaLibraryFolders(settings, WHEELS) : [];
  const inFolders = await Promise.all(folders.map(async (folder) => (await below(folder, LIBRARY)).slice(0, 1)));
  const problems: string[] = [];
  const driver = driverCudaVersion(driverVersion);
  for (const path of named === undefined ? [...inFolders.flat(), ...DEFAULT_NAMES] : [named]) {
    try {
      const library = openCublasLt(path);
      if (library.cuda.major <= driver.major) return { library, path };
      problems.push(`${path} is for CUDA ${versionText(library.cuda)}, the driver for ${versionText(driver)}`);
    } catch (error) {
      if (isAbsolute(path)) problems.push(`${path}: ${reasonOf(error)}`);
    }
  }
  const reason = problems.length === 0 ? 'there is no libcublasLt.so' : [...new Set(problems)].join('; ');
  if (named !== undefined)
    throw new UserError(
      `TILEWRIGHT_CUBLASLT cannot be used: ${reason}.`,
      'Name another, or none: TILEWRIGHT_CUBLASLT=none',
    );
  return reason;
}
