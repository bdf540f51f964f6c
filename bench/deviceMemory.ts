/** Memory where keys and values lie, to measure what allocating it takes. */
import { loadAddon } from '../runtime/addon.js';
import { requireCuda } from '../runtime/cuda/addon.js';
import type { BenchTarget } from './optionReader.js';

/** The system hands memory of a host out in such pieces, each at the first write to it. */
const PAGE_BYTES = 4096;

export interface Allocator {
  /** Memory that can be written at once. */
  allocate(bytes: number): { release(): void };
  close(): void;
}

/** For the host, or for the first GPU. */
export function allocatorOf(target: BenchTarget): Allocator {
  if (target === 'cpu') {
    const { Memory } = loadAddon();
    const byte = Uint8Array.of(1);
    return {
      allocate: (bytes) => {
        const memory = new Memory(bytes);
        for (let at = 0; at < bytes; at += PAGE_BYTES) memory.write(at, byte);
        return memory;
      },
      close: () => undefined,
    };
  }
  const { Device, Memory } = requireCuda();
  const device = new Device(0);
  return {
    allocate: (bytes) => new Memory(device, bytes),
    close: () => {
      device.release();
    },
  };
}
