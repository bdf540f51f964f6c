/** A GPU for the real command: the fake driver and the stand-in of NVRTC, as the environment of a process. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hasCc, makeNvrtc } from '../../runtime/cuda/fakeCompilers.js';
import { buildPackShim, hasCxx } from '../../runtime/cuda/packShim.js';
import { compileLibrary } from './fakeDriver.js';

export const canFakeGpu = hasCc && hasCxx();

/** Its kernels compute nothing but the runtime's own: what they leave is finite rubbish, the same each time. */
export class FakeGpu {
  private readonly folder: string;
  private readonly driver: string;
  private readonly host: string;
  private readonly nvrtc: string;

  constructor(folder: string) {
    this.folder = folder;
    this.driver = compileLibrary(folder, 'libcuda', { file: fileURLToPath(new URL('fakeCuda.c', import.meta.url)) });
    this.host = buildPackShim(folder).library;
    this.nvrtc = makeNvrtc(join(folder, 'nvrtc', 'libnvrtc.so.13'));
  }

  /** The stand-in of another version of NVRTC. */
  nvrtcOf(version: readonly [number, number]): string {
    return makeNvrtc(join(this.folder, `nvrtc${version.join('.')}`, 'libnvrtc.so'), version);
  }

  /** `faults`: parts of FAKE_CUDA, see fakeCuda.c. */
  environment(...faults: readonly string[]): Readonly<Record<string, string>> {
    return {
      TILEWRIGHT_CUDA_DRIVER: this.driver, TILEWRIGHT_NVRTC: this.nvrtc, TILEWRIGHT_CACHE: join(this.folder, 'cache'),
      FAKE_CUDA: ['driverVersion=13000', `host=${this.host}`, ...faults].join(','),
    };
  }
}
