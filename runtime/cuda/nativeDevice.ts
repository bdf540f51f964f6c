/** The typed side of the addon's CUDA devices, memory, modules, events and clocks (runtime/native/cudaDevice …). */

/** The driver's facts about a device. Sizes in bytes, clocks in kilohertz. */
export interface CudaDeviceInfo {
  readonly ordinal: number;
  readonly name: string;
  /** 32 hexadecimal digits. */
  readonly uuid: string;
  /** Compute capability, such as [9, 0]. */
  readonly capability: readonly [number, number];
  readonly multiprocessors: number;
  readonly totalBytes: number;
  readonly l2Bytes: number;
  /** Shared memory that one block may take once a kernel asks for it (static and dynamic together). */
  readonly sharedBytesPerBlock: number;
  readonly sharedBytesPerMultiprocessor: number;
  readonly clockKHz: number;
}

export type CudaAvailability =
  | {
      readonly ok: true;
      /** 12040 for CUDA 12.4. */ readonly driverVersion: number;
      readonly devices: readonly CudaDeviceInfo[];
    }
  | { readonly ok: false; readonly reason: string };

/**
 * An error from the driver; `code` is the driver's own name for it. Everything below throws or rejects with it, and
 * with plain Errors for arguments out of range.
 */
export interface CudaError extends Error {
  /** Such as CUDA_ERROR_OUT_OF_MEMORY. */
  readonly code: string;
  /** The driver's function, such as cuMemAlloc_v2. */
  readonly call: string;
  /** Whether the context is lost with all its memory. Only a new process can then use the device again. */
  readonly isContextDead: boolean;
}

/**
 * The device's primary context and the one stream on which programs, copies and fills are executed in order of call.
 */
export interface CudaDevice {
  readonly info: CudaDeviceInfo;
  /** Queried from the driver each time; includes other processes. */
  memory(): { readonly freeBytes: number; readonly totalBytes: number };
  /** Handle of the stream, for libraries called by FFI (cuBLASLt). */
  readonly stream: bigint;
  /** Makes the context current on the JavaScript thread, for libraries called by FFI. */
  makeCurrent(): void;
  /** Waits, on the JavaScript thread, for all work on the stream. */
  synchronize(): void;
  /** Releases it. The context is destroyed with the last memory, module or program. */
  release(): void;
}

/** Identifies device memory for other processes of this host. Plain data. */
export interface CudaSharedHandle {
  readonly handle: Uint8Array;
  readonly offset: number;
}

/** Device memory, aligned to 256 bytes, uninitialized. Freed when nothing uses it any more. */
export interface CudaMemory {
  readonly sizeBytes: number;
  /** For messages and for libraries called by FFI. */
  readonly address: bigint;
  /** Copies after all earlier work of the stream; returns when it is done. */
  write(offset: number, data: NodeJS.TypedArray): void;
  read(offset: number, bytes: number): ArrayBuffer;
  /** The same off the JavaScript thread. The array must not change until the promise settles. */
  writeAsync(offset: number, data: NodeJS.TypedArray): Promise<undefined>;
  readAsync(offset: number, bytes: number): Promise<ArrayBuffer>;
  /** Sets every byte of a range (default: all), in stream order; does not wait. */
  fill(byte: number, offset?: number, bytes?: number): void;
  /** Copies from device memory of the same device, in stream order; does not wait. */
  copyFrom(offset: number, source: CudaMemory, sourceOffset: number, bytes: number): void;
  /**
   * For copyFromProcess in another process. Must be of 2 MiB or more: smaller ones may be parts of one allocation. It
   * must not be released while another process copies from it. Throws where the driver cannot share it.
   */
  share(): CudaSharedHandle;
  /**
   * Copies from memory of another process, which may be on another device; resolves when it is done, with the seconds
   * that reaching it and copying took. Not ordered against the stream. Rejects where that memory cannot be reached.
   */
  copyFromProcess(
    offset: number,
    source: CudaSharedHandle,
    sourceOffset: number,
    bytes: number,
  ): Promise<{ readonly opening: number; readonly copying: number }>;
  release(): void;
}

/** Resources of a compiled kernel. */
export interface CudaFunctionInfo {
  readonly registers: number;
  /** Bytes of local memory a thread: spills and indexed arrays. */
  readonly localBytes: number;
  /** Static shared memory. */
  readonly sharedBytes: number;
  readonly constantBytes: number;
  /** Largest block that its registers allow. */
  readonly maxThreads: number;
  /** 10 · major + minor of the machine code. */
  readonly binaryVersion: number;
}

/** A cubin or PTX text, loaded. */
export interface CudaModule {
  /** Throws a plain Error where there is no such kernel. */
  function(symbol: string): CudaFunctionInfo;
  /** Blocks of a kernel that fit on one multiprocessor at a time; 0 if none does. */
  blocksPerMultiprocessor(symbol: string, threads: number, sharedBytes: number): number;
  release(): void;
}

/** A point in the stream. */
export interface CudaEvent {
  record(): void;
  /** Waits on the JavaScript thread. */
  synchronize(): void;
  /** Both events must have been reached. */
  millisecondsSince(earlier: CudaEvent): number;
  release(): void;
}

/** Gives the time at which events of a device happened on the host's clock. */
export interface CudaClock {
  /**
   * Largest error of a time when the clock was made, with an idle device. Clocks drift apart by microseconds per
   * second.
   */
  readonly errorMilliseconds: number;
  release(): void;
}

/** Milliseconds of the host's clock since the epoch. */
export interface CudaSpan {
  readonly begin: number;
  readonly end: number;
}
