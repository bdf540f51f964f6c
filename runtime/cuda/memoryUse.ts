/** The device memory that a plan needs, known before any of it is allocated, and what to do if it is too much. */
import { type Extents, printExtents } from '../../ir/extents.js';
import { bytes } from '../../system/text.js';
import { partsLine } from '../../system/text.js';
import { MemoryShortage } from '../memoryShortage.js';
import type { CudaAddon } from './addon.js';
import type { CudaDevice } from './native.js';

export interface CudaMemoryUse {
  /** Weights in the layout of the kernels. */
  readonly weightBytes: number;
  /** Activations of the largest micro-batch. */
  readonly arenaBytes: number;
  /** What functions keep from call to call. */
  readonly stateBytes: number;
  /** Staging buffers for loading weights, released before the activations are allocated. */
  readonly stagingBytes: number;
  /** Machine code, and the memory of the search for values that are not finite. */
  readonly codeBytes: number;
}

/** Reserved for the driver: local memory of threads, its own tables, and rounding of allocations to pages. */
const RESERVE = 128 << 20;
/** Smaller micro-batches leave a GPU mostly idle, so they are never suggested. */
const FEWEST_TOKENS = 128;

/** Bytes allocated from the first call to the last. */
const residentBytes = ({ weightBytes, codeBytes, stateBytes }: CudaMemoryUse): number =>
  weightBytes + codeBytes + stateBytes;

/** Bytes allocated once everything is loaded. */
export const heldBytesOf = (use: CudaMemoryUse): number => residentBytes(use) + use.arenaBytes;

/** Most bytes allocated at any time. */
export const peakBytes = (use: CudaMemoryUse): number =>
  residentBytes(use) + Math.max(use.arenaBytes, use.stagingBytes);

/** `GPU memory: 62 GiB (weights 60.6 GiB, cache 1 GiB, activations 447 MiB, kernels 12 MiB)`, once it is loaded. */
export const cudaMemoryLine = (use: CudaMemoryUse): string =>
  partsLine('GPU memory', [
    ['weights', use.weightBytes],
    ['cache', use.stateBytes],
    ['activations', use.arenaBytes],
    ['kernels', use.codeBytes],
  ]);

/** Readable lines: `weights  60.6 GiB`. */
export function printCudaMemoryUse(use: CudaMemoryUse): string {
  const rows: readonly [string, number][] = [
    ['weights', use.weightBytes],
    ['activations', use.arenaBytes],
    ...(use.stateBytes === 0 ? [] : ([['state', use.stateBytes]] satisfies [string, number][])),
    ['loading', use.stagingBytes],
    ['kernels', use.codeBytes],
    ['peak on device', peakBytes(use)],
  ];
  return rows.map(([name, size]) => `${name.padEnd(16)} ${bytes(size).padStart(10)}`).join('\n');
}

/** One line that says what to do if `use` does not fit in `freeBytes`. */
function remedy(use: CudaMemoryUse, freeBytes: number, maxTokens: number): string {
  const room = freeBytes - RESERVE - residentBytes(use);
  // Activations grow with tokens and rows, and rows grow with tokens. Some room is left for kernels of other tiles.
  const tokens = Math.floor((maxTokens * room * 0.97) / use.arenaBytes / FEWEST_TOKENS) * FEWEST_TOKENS;
  if (room >= use.stagingBytes && tokens >= FEWEST_TOKENS)
    return `Compile it for smaller micro-batches: --batch-tokens ${tokens}.`;
  const gpus = Math.ceil(residentBytes(use) / Math.max(1, freeBytes - RESERVE));
  return freeBytes > 2 * RESERVE
    ? `The weights alone take ${bytes(use.weightBytes)}: ` +
        `spread over ${Math.max(2, gpus)} or more such GPUs, or use one with more memory.`
    : 'Another process holds the memory (nvidia-smi lists them): end it, or use another GPU.';
}

/** A device before anything of a plan is on it. */
export interface DeviceRoom {
  readonly name: string;
  readonly freeBytes: number;
  readonly totalBytes: number;
}

/** The error for a plan for calls of `maxTokens` tokens that does not fit a device; its hint says what would. */
export const deviceMemoryError = (
  use: CudaMemoryUse,
  device: DeviceRoom,
  maxTokens: number,
  options?: ErrorOptions,
): MemoryShortage =>
  new MemoryShortage(
    {
      of: `memory of ${device.name}`,
      neededBytes: peakBytes(use) + RESERVE,
      freeBytes: device.freeBytes,
      totalBytes: device.totalBytes,
    },
    `This plan needs ${bytes(peakBytes(use))} of device memory, and ${bytes(RESERVE)} must stay free; ` +
      `${device.name} has ${bytes(device.freeBytes)} of ${bytes(device.totalBytes)} free.\n${printCudaMemoryUse(use)}`,
    remedy(use, device.freeBytes, maxTokens),
    options,
  );

/** Throws MemoryShortage, a UserError, where the device's free memory cannot hold `use`. */
export function requireDeviceMemory(use: CudaMemoryUse, device: DeviceRoom, maxTokens: number): void {
  if (peakBytes(use) + RESERVE > device.freeBytes) throw deviceMemoryError(use, device, maxTokens);
}

/** Bytes that reserved memory may take now, whatever other processes hold. */
export const roomOnDevice = (device: CudaDevice): number => Math.max(0, device.memory().freeBytes - RESERVE);

/** Device memory ran out in the middle of work: a smaller call may still fit. */
export class OutOfDeviceMemory extends Error {
  constructor(size: Extents, options: ErrorOptions) {
    super(`The device ran out of memory in a call of ${printExtents(size)}.`, options);
    this.name = 'OutOfDeviceMemory';
  }
}

// Device memory that is free now, whatever other processes hold.

/**
 * Kept free beside what a plan allocates: machine code, buffers through which weights are loaded, and the driver's own
 * memory. The context that asks is one of the things that are not free.
 */
const BESIDE = 512 << 20;

/** Bytes that a plan may take of the fullest of the devices. Opens each device for a moment. */
export function freeDeviceBytes(addon: CudaAddon, ordinals: readonly number[]): number {
  const free = ordinals.map((ordinal) => {
    const device = new addon.Device(ordinal);
    try {
      return device.memory().freeBytes;
    } finally {
      device.release();
    }
  });
  return Math.max(0, Math.min(...free) - BESIDE);
}
