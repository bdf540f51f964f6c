/** Measures the bandwidth of device memory. */
import type { CudaAddon } from '../../runtime/cuda/addon.js';
import type { CudaDevice, CudaEvent, CudaMemory } from '../../runtime/cuda/nativeDevice.js';
import { median } from '../median.js';

const BYTES = 512 << 20;
const REPEATS = 5;

/** Bytes per second of a copy within device memory, counting reads and writes. Throws CudaError if memory is short. */
export function measureBandwidth(addon: CudaAddon, device: CudaDevice): number {
  const bytes = Math.min(BYTES, Math.max(1 << 20, Math.floor(device.memory().freeBytes / 8 / 256) * 256));
  const made: { release(): void }[] = [];
  const own = <T extends { release(): void }>(resource: T): T => {
    made.push(resource);
    return resource;
  };
  try {
    const [from, to] = [
      own<CudaMemory>(new addon.Memory(device, bytes)),
      own<CudaMemory>(new addon.Memory(device, bytes)),
    ];
    from.fill(1);
    to.copyFrom(0, from, 0, bytes);
    const marks = Array.from({ length: REPEATS }, () => ({
      begin: own<CudaEvent>(new addon.Event(device)),
      end: own<CudaEvent>(new addon.Event(device)),
    }));
    for (const { begin, end } of marks) {
      begin.record();
      to.copyFrom(0, from, 0, bytes);
      end.record();
    }
    device.synchronize();
    return (2 * bytes) / (Math.max(1e-6, median(marks.map(({ begin, end }) => end.millisecondsSince(begin)))) * 1e-3);
  } finally {
    for (const resource of made.reverse()) resource.release();
  }
}
