/** The device, the compiler and the vendor's library that a GPU benchmark needs, and what needs all of them. */
import { type CompileKernels, type DeviceTools, loadDeviceTools } from '../autotune/cuda/fill.js';
import { type Contender, interleave, launchTimes, warmUp } from '../autotune/cuda/timing.js';
import { makeRunUp } from '../autotune/cuda/vendorBaseline.js';
import { median } from '../autotune/records.js';
import type { CudaFacts } from '../codegen/cuda/index.js';
import { archOf } from '../driver/targets/cudaDevice.js';
import { UserError } from '../errors.js';
import { type CudaAddon, cudaAvailable, loadCudaAddon } from '../runtime/cuda/addon.js';
import { compileCubins } from '../runtime/cuda/compiler.js';
import { type CublasLt, findCublasLt } from '../runtime/cuda/cublasLt.js';
import type { CudaMemory, CudaProgram } from '../runtime/cuda/native.js';
import type { CudaDevice } from '../runtime/cuda/native.js';
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
  /** Filled before anything is timed: see makeRunUp of autotune/cuda/vendorBaseline. */
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

/** The rate at which a kernel that does nothing else reads device memory: the ceiling of decoding. */

const MAX_BYTES = 1 << 30;
const THREADS = 512;
const BLOCKS_PER_MULTIPROCESSOR = 4;
/** Loads of 16 bytes that a thread has in flight. */
const LOADS = 8;
const CHUNK_BYTES = THREADS * LOADS * 16;

export const READ_SYMBOL = 'tw_read';

const source = (bytes: number): string => `// Reads ${bytes} bytes.
struct alignas(16) tw_words { unsigned x, y, z, w; };
extern "C" __global__ void __launch_bounds__(${THREADS}, ${BLOCKS_PER_MULTIPROCESSOR})
${READ_SYMBOL}(const tw_words *__restrict__ from, unsigned *to) {
  unsigned all = 0;
  for (long long chunk = blockIdx.x; chunk < ${bytes / CHUNK_BYTES}; chunk += gridDim.x) {
    tw_words x[${LOADS}];
#pragma unroll
    for (int i = 0; i < ${LOADS}; i++) x[i] = from[(chunk * ${LOADS} + i) * ${THREADS} + threadIdx.x];
#pragma unroll
    for (int i = 0; i < ${LOADS}; i++) all ^= x[i].x ^ x[i].y ^ x[i].z ^ x[i].w;
  }
  /* The compiler cannot know that this never happens. */
  if (all == 0x9e3779b9u) *to = all;
}
`;

/**
 * Bytes per second, the median of `rounds` turns under load. Throws if the kernel does not compile, CudaError if memory
 * is short.
 */
export async function measureReadRate(
  lab: Pick<GpuLab, 'addon' | 'device' | 'compile' | 'runUp'>,
  rounds: number,
  warmSeconds: number,
): Promise<number> {
  const { addon, device, runUp } = lab;
  const room = Math.floor(device.memory().freeBytes / 8 / CHUNK_BYTES) * CHUNK_BYTES;
  const bytes = Math.max(CHUNK_BYTES, Math.min(MAX_BYTES, room));
  const { cubins, failures } = await lab.compile([{ symbol: READ_SYMBOL, source: source(bytes) }]);
  const cubin = cubins.get(READ_SYMBOL);
  if (cubin === undefined)
    throw failures.get(READ_SYMBOL) ?? new Error('The kernel that reads memory was not compiled.');
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    const [from, to] = [own(new addon.Memory(device, bytes)), own<CudaMemory>(new addon.Memory(device, 256))];
    from.fill(1);
    const program = own(
      new addon.Program({
        device,
        extents: [],
        inputs: [],
        outputs: [],
        slots: [
          { memory: from, offset: 0, bytes },
          { memory: to, offset: 0, bytes: 256 },
        ],
        launches: [
          {
            name: 'read rate',
            module: own(new addon.Module(device, cubin)),
            symbol: READ_SYMBOL,
            slots: [0, 1],
            tensorMaps: [],
            usesProgrammaticLaunch: false,
            launch: {
              threads: THREADS,
              sharedBytes: 0,
              cluster: 1,
              gridX: { kind: 'constant', count: device.info.multiprocessors * BLOCKS_PER_MULTIPROCESSOR },
              gridY: { kind: 'constant', count: 1 },
            },
          },
        ],
      }),
    );
    const reader: Contender = {
      name: 'read rate',
      time: (shape) => {
        runUp.fill(0);
        return launchTimes(program, [0], [])(shape);
      },
    };
    await warmUp(reader, warmSeconds);
    const [seconds = []] = await interleave([reader], { rounds, seconds: 0.1 });
    return bytes / median(seconds);
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
