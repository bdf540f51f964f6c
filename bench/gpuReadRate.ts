/** The rate at which a kernel that does nothing else reads device memory: the ceiling of decoding. */
import { type Contender, interleave, launchTimes, warmUp } from '../autotune/cuda/timing.js';
import { median } from '../autotune/records.js';
import type { CudaMemory } from '../runtime/cuda/nativeDevice.js';
import type { GpuLab } from './gpuLab.js';

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
