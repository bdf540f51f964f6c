/** The device, the compiler and the vendor's library that a GPU benchmark needs, and what needs all of them. */
import { type CompileKernels, type DeviceTools, loadDeviceTools } from '../autotune/cuda/fill.js';
import { type Contender, launchTimes } from '../autotune/cuda/timing.js';
import { makeRunUp } from '../autotune/cuda/vendorBaseline.js';
import type { CudaFacts } from '../codegen/cuda/index.js';
import { archOf } from '../driver/targets/cudaDevice.js';
import { UserError } from '../errors.js';
import { type CudaAddon, cudaAvailable, loadCudaAddon } from '../runtime/cuda/addon.js';
import { compileCubins } from '../runtime/cuda/compiler.js';
import type { CublasLt } from '../runtime/cuda/cublasLt.js';
import { findCublasLt } from '../runtime/cuda/findCublasLt.js';
import type { CudaDevice, CudaMemory } from '../runtime/cuda/nativeDevice.js';
import type { CudaProgram } from '../runtime/cuda/nativeProgram.js';
import { readSettings, type Settings } from '../settings.js';

export interface GpuLab {
  readonly addon: CudaAddon;
  readonly device: CudaDevice;
  readonly facts: CudaFacts;
  readonly driverVersion: number;
  readonly compile: CompileKernels;
  /** Name and build of the compiler, known once it has compiled something. */
  readonly compiler: { name: string; build: string };
  readonly library: CublasLt;
  readonly tools: DeviceTools;
  /** Filled before anything is timed: see makeRunUp of autotune/cuda/rival. */
  readonly runUp: CudaMemory;
  release(): void;
}

/** Opens the first GPU. Throws UserError, with what to do, if there is no GPU, no compiler or no cuBLASLt. */
export async function openLab(settings: Settings = readSettings()): Promise<GpuLab> {
  const available = cudaAvailable(settings.cudaDriver);
  if (!available.ok)
    throw new UserError(
      `The benchmark measures on a GPU: ${available.reason}`,
      'run it where nvidia-smi lists one; for a host without Node: npm run bundle',
    );
  const info = available.devices[0];
  const arch = info === undefined ? undefined : archOf(info);
  if (info === undefined || arch === undefined)
    throw new UserError(
      `The benchmark needs a GPU of compute capability 8.0 or later; here is ${info?.name ?? 'none'}`,
      'look at it: nvidia-smi',
    );
  const { driverVersion } = available;
  const found = await findCublasLt(driverVersion, settings);
  if (typeof found === 'string')
    throw new UserError(
      `The benchmark compares with cuBLASLt, which cannot be used: ${found}`,
      'name its library: TILEWRIGHT_CUBLASLT=/usr/local/cuda/lib64/libcublasLt.so.13 npm run bench:gpu ' +
        '(or install it: pip install nvidia-cublas)',
    );
  const { library } = found;
  const addon = loadCudaAddon();
  const made: { release(): void }[] = [library];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  const release = (): void => {
    for (const resource of made.splice(0).reverse()) resource.release();
  };
  try {
    const device = own(new addon.Device(info.ordinal));
    const compiler = { name: '', build: '' };
    const compile: CompileKernels = async (units) => {
      const compiled = await compileCubins(units, { arch, driverVersion, keepsGoing: true, settings });
      compiler.name = compiled.compiler;
      compiler.build = compiled.compilerBuild;
      return compiled;
    };
    const tools = own(await loadDeviceTools({ addon, device, compile }));
    const facts: CudaFacts = {
      arch,
      sharedBytesPerBlock: info.sharedBytesPerBlock,
      multiprocessors: info.multiprocessors,
    };
    return {
      addon,
      device,
      facts,
      driverVersion,
      compile,
      compiler,
      library,
      tools,
      runUp: own(makeRunUp(addon, device)),
      release,
    };
  } catch (error) {
    release();
    throw error;
  }
}

/**
 * Times `launches` of a program, all of them in one turn, and returns the seconds of the turn. They are queued behind
 * the run-up, as the library's products are.
 */
export const programContender = (
  { runUp }: Pick<GpuLab, 'runUp'>,
  name: string,
  program: CudaProgram,
  launches: readonly number[],
  turn: number,
  sizes: readonly number[],
): Contender => ({
  name,
  time: (shape) => {
    runUp.fill(0);
    return launchTimes(program, launches, sizes, { turn })(shape);
  },
});
