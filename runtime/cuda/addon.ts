/**
 * The addon's CUDA part (runtime/native/cuda*): everything in runtime/cuda reaches the driver through here. Types of
 * what it makes are in native*.ts.
 */
import { UserError } from '../../errors.js';
import { readSettings } from '../../settings.js';
import { loadAddon } from '../addon.js';
import type {
  CudaAvailability,
  CudaClock,
  CudaDevice,
  CudaError,
  CudaEvent,
  CudaMemory,
  CudaModule,
  CudaPipeline,
  CudaPipelineBinding,
  CudaProgram,
  CudaProgramBinding,
  CudaUpload,
} from './native.js';

export interface CudaAddon {
  /**
   * Loads the driver: libcuda.so.1, or a file given by its full path. Says why where it cannot be used. Never throws
   * for a missing or unusable driver.
   */
  load(path?: string): CudaAvailability;
  /**
   * Begins to load the driver and, if a device is named, to make its context, in a thread of its own. load() and Device
   * wait for what they need of it, and say what went wrong. Only the first call of a process begins anything.
   */
  prepare(path?: string, ordinal?: number): void;
  readonly Device: new (ordinal: number) => CudaDevice;
  /**
   * Allocates so many bytes; or, with `most`, reserves addresses for them, of which map() puts memory behind the first:
   * never more than `most` where the device cannot map memory piece by piece.
   */
  readonly Memory: new (device: CudaDevice, bytes: number, most?: number) => CudaMemory;
  /** Throws CudaError with the assembler's log for PTX that it refuses. */
  readonly Module: new (device: CudaDevice, image: Uint8Array) => CudaModule;
  readonly Event: new (device: CudaDevice) => CudaEvent;
  readonly Program: new (binding: CudaProgramBinding) => CudaProgram;
  /** Waits for the device, which must be idle otherwise. */
  readonly Clock: new (device: CudaDevice) => CudaClock;
  readonly Pipeline: new (binding: CudaPipelineBinding) => CudaPipeline;
  readonly Upload: new (
    device: CudaDevice,
    options?: { readonly bufferBytes?: number; readonly threads?: number; readonly buffers?: number },
  ) => CudaUpload;
}

function isCudaAddon(value: unknown): value is CudaAddon {
  return typeof value === 'object' && value !== null && 'load' in value && 'Device' in value && 'Program' in value;
}

/** The CUDA part of the addon; loads no driver. Throws UserError where the addon is not built or is older than this. */
export function loadCudaAddon(): CudaAddon {
  const { cuda } = loadAddon();
  if (!isCudaAddon(cuda))
    throw new UserError(
      'The native addon was built without its CUDA part.',
      'Run: npm run build:native (in a checkout), or npm rebuild tilewright',
    );
  return cuda;
}

/** Whether this machine has a usable driver and which devices; the driver is the one of the settings. */
export function cudaAvailable(path: string | undefined = readSettings().cudaDriver): CudaAvailability {
  return loadCudaAddon().load(path);
}

/** The CUDA part of the addon with its driver loaded. Throws UserError with the reason where there is none. */
export function requireCuda(path: string | undefined = readSettings().cudaDriver): CudaAddon {
  const available = cudaAvailable(path);
  if (!available.ok)
    throw new UserError(
      `CUDA cannot be used: ${available.reason}.`,
      'Use --target cpu, or see that nvidia-smi works on this machine.',
    );
  return loadCudaAddon();
}

/** Whether the driver refused something, as against a mistake in arguments. */
export function isCudaError(error: unknown): error is CudaError {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'string' &&
    error.code.startsWith('CUDA_') &&
    'call' in error &&
    'isContextDead' in error
  );
}

/** Too little device memory. The same work may succeed in smaller pieces. */
export function isOutOfDeviceMemory(error: unknown): boolean {
  return isCudaError(error) && error.code === 'CUDA_ERROR_OUT_OF_MEMORY';
}
