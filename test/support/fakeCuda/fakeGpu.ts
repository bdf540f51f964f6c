/** A GPU for the real command: the fake driver and the stand-in for NVRTC, as the environment of a process. */
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hasCc, makeNvrtc } from '../../runtime/cuda/fakeCompilers.js';
import { buildPackShim, hasCxx } from '../../runtime/cuda/packShim.js';
import { runFolder } from '../runFolder.js';
import { compileLibrary } from './fakeDriver.js';

export const canFakeGpu = hasCc && hasCxx();

/** The folder of the libraries, which the test files of one run share. */
function builtOnce(): string {
  const folder = join(runFolder(), 'fake-gpu');
  if (existsSync(folder)) return folder;
  const own = `${folder}-${process.pid}`;
  mkdirSync(own);
  compileLibrary(own, 'libcuda', { file: fileURLToPath(new URL('fakeCuda.c', import.meta.url)) });
  buildPackShim(own);
  makeNvrtc(join(own, 'libnvrtc.so.13'));
  try {
    renameSync(own, folder);
  } catch (error) {
    // Another file built them at the same time.
    if (!existsSync(folder)) throw error;
    rmSync(own, { recursive: true });
  }
  return folder;
}

/**
 * Only the runtime's own kernels compute something. All others leave finite meaningless numbers, the same each time.
 */
export class FakeGpu {
  private readonly folder: string;
  private readonly driver: string;
  private readonly host: string;
  private readonly nvrtc: string;

  constructor(folder: string) {
    this.folder = folder;
    const libraries = builtOnce();
    this.driver = join(libraries, 'libcuda.so');
    this.host = join(libraries, 'packShim.so');
    this.nvrtc = join(libraries, 'libnvrtc.so.13');
  }

  /** The stand-in for another version of NVRTC. */
  nvrtcOf(version: readonly [number, number]): string {
    return makeNvrtc(join(this.folder, `nvrtc${version.join('.')}`, 'libnvrtc.so'), version);
  }

  /** `faults`: parts of FAKE_CUDA, see fakeCuda.c. */
  environment(...faults: readonly string[]): Readonly<Record<string, string>> {
    return {
      TILEWRIGHT_CUDA_DRIVER: this.driver,
      TILEWRIGHT_NVRTC: this.nvrtc,
      TILEWRIGHT_CACHE: join(this.folder, 'cache'),
      FAKE_CUDA: ['driverVersion=13000', `host=${this.host}`, ...faults].join(','),
    };
  }
}
