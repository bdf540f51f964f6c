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
  /**
   * Copies several ranges on a stream beside the device's: once all that was enqueued before is done, while what is
   * enqueued later goes on. No array may change until the promise settles, and no later work may use the ranges.
   */
  writeBeside(writes: readonly { readonly offset: number; readonly data: NodeJS.TypedArray }[]): Promise<undefined>;
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
   * Maps memory behind the first `bytes` of reserved addresses, in pieces of the driver's size, and unmaps the rest
   * once all earlier calls are done. New memory is zero. Resolves with the number of bytes that are mapped: fewer than
   * were asked for where the device has no more. One call at a time.
   */
  map(bytes: number): Promise<number>;
  /** Bytes that there is memory behind: all of what was allocated. */
  readonly usableBytes: number;
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

/** The typed side of the addon's pipelines: devices that hand micro-batches on (runtime/native/cudaPipeline). */
import type { LaunchShape } from '../../ir/cuda.js';
import type { EncodedMatrix, Extent, NativeMemory, PortBinding, PortData, ProgramExtent } from '../native.js';

/** Rows of a buffer that the next stage reads: a range of the arena, the same on both devices. */
export interface CudaCrossing {
  readonly offset: number;
  readonly rows: Extent;
  readonly rowBytes: number;
}

export interface CudaPipelineBinding {
  /** In order; devices may be of one ordinal. Every stage has as many arenas, all of one size. */
  readonly stages: readonly {
    readonly device: CudaDevice;
    readonly clock: CudaClock;
    readonly arenas: readonly CudaMemory[];
    /** Those with the most inputs and outputs that will run. */
    readonly programs: readonly CudaProgram[];
    /** Most bytes that are sent to the next stage. */
    readonly crossingBytes: number;
  }[];
  /** Most micro-batches that may be in flight at a time. */
  readonly inFlight: number;
  /** If false, all transfers between stages go through the host. */
  readonly usesPeers: boolean;
}

export interface CudaPipelineRequest {
  readonly extents: readonly number[];
  /** Which arena it uses on every stage; the programs are bound to it. */
  readonly arena: number;
  readonly isTimed?: boolean;
  /** Leave out launches that are for adapters alone. */
  readonly skipsAdapters?: boolean;
  readonly stages: readonly {
    readonly program: CudaProgram;
    readonly inputs: readonly PortData[];
    readonly crossings: readonly CudaCrossing[];
  }[];
}

export interface CudaPipelineResult {
  /** Outputs of the last stage's program. */
  readonly outputs: readonly ArrayBuffer[];
  readonly stages: readonly {
    readonly compute: CudaSpan;
    /** To the next device or, where that is the way, to the host; the last stage's outputs. */
    readonly sent: CudaSpan;
    /** From the host, where that is the way. */
    readonly received?: CudaSpan;
    readonly launchMilliseconds?: Float64Array;
  }[];
}

/** Devices that hand micro-batches on to each other. Keeps devices, arenas and programs in flight alive. */
export interface CudaPipeline {
  /** How each stage but the last reaches the next: on one device, device to device, or through the host. */
  readonly routes: readonly ('local' | 'peer' | 'host')[];
  /**
   * Enqueues on all stages off the JavaScript thread, in the order of these calls, and in that order between other
   * work of each device. Throws where `inFlight` are on their way already.
   */
  run(request: CudaPipelineRequest): Promise<CudaPipelineResult>;
  /** Micro-batches in flight are finished first. */
  release(): void;
}

// The typed side of the addon's CUDA programs: launches bound to memory (runtime/native/cudaProgram).

/** A range of device memory; offset a multiple of 16. */
export interface CudaSlot {
  readonly memory: CudaMemory;
  readonly offset: number;
  readonly bytes: number;
}

/** A 2-D view of a slot, encoded once for the program's largest micro-batch. Fields as in ir/cuda's TensorMapDecl. */
export interface CudaTensorMapBinding {
  /** Index into CudaProgramBinding.slots; the view starts at the slot's start. */
  readonly slot: number;
  readonly dtype: 'f16' | 'bf16' | 'f32' | 'u8';
  /** For a named extent: the largest value that the program is bound for. */
  readonly rows: Extent;
  readonly columns: number;
  readonly stride: number;
  readonly boxRows: number;
  readonly boxColumns: number;
  readonly swizzle: 0 | 32 | 64 | 128;
}

export interface CudaLaunchBinding {
  /** The model path, for messages. */
  readonly name: string;
  readonly module: CudaModule;
  readonly symbol: string;
  /** The kernel's ints, which come before its pointers; by default all extents of the program, in order. */
  readonly sizes?: readonly Extent[];
  /** Indices into CudaProgramBinding.slots, in the order of the kernel's pointers. */
  readonly slots: readonly number[];
  readonly tensorMaps: readonly CudaTensorMapBinding[];
  readonly launch: LaunchShape;
  /** Whether it may start while its predecessor ends (the kernel executes griddepcontrol.wait before it reads). */
  readonly usesProgrammaticLaunch: boolean;
  /** It does nothing in a call without adapters. */
  readonly isForAdapters?: boolean;
}

export interface CudaProgramBinding {
  readonly device: CudaDevice;
  /** The sizes that a call provides. */
  readonly extents: readonly ProgramExtent[];
  readonly slots: readonly CudaSlot[];
  readonly launches: readonly CudaLaunchBinding[];
  /**
   * Copied in by each run, in this order, zero behind their end. Slots that follow one another in one
   * memory with less than 256 bytes between are copied as one, those bytes set to zero.
   */
  readonly inputs: readonly PortBinding[];
  /** Copied out after each run. */
  readonly outputs: readonly PortBinding[];
  /** A clock of the same device. With it, runs report when they were executed. */
  readonly clock?: CudaClock;
  /** Whether only a CudaPipeline runs it: it then has no pinned memory of its own. */
  readonly isPiped?: boolean;
}

export interface CudaRunRequest {
  /** A size for each of the program's extents, in their order. */
  readonly extents: readonly number[];
  readonly inputs: readonly PortData[];
  /** Measure each launch. */
  readonly isTimed?: boolean;
  /** Wait after each launch, so that an error names the launch that caused it. */
  readonly isSynchronous?: boolean;
  /** Leave out launches that are for adapters alone. */
  readonly skipsAdapters?: boolean;
  /** Run only launches first to end − 1. Inputs are copied if first is 0. */
  readonly launches?: { readonly first: number; readonly end: number };
}

export interface CudaRunResult {
  readonly outputs: readonly ArrayBuffer[];
  /** Time of the whole micro-batch on the device, copies included. */
  readonly milliseconds: number;
  /** The same, where the program has a clock. */
  readonly span?: CudaSpan;
  /** Time of each launch, when timed. */
  readonly launchMilliseconds?: Float64Array;
}

export interface CudaTimeRequest {
  readonly extents: readonly number[];
  /** If absent, the inputs of the last run are used. */
  readonly inputs?: readonly PortData[];
  /**
   * Indices of launches, walked round and round: give several with buffers of their own to rotate past the L2 cache.
   */
  readonly launches: readonly number[];
  /** Samples taken before the counted ones. */
  readonly warmup: number;
  readonly repeats: number;
  /** Launches of one sample, 1 by default. */
  readonly perSample?: number;
  /** Bytes written between samples to empty the L2 cache; 0 or absent for none. */
  readonly flushBytes?: number;
}

/** Launches bound to memory. Keeps its device, modules and memories alive. */
export interface CudaProgram {
  /**
   * Enqueues the whole micro-batch and waits for it off the JavaScript thread. Runs of all programs of a device are
   * executed in the order of these calls. Throws where two runs of this program are in flight already.
   */
  run(request: CudaRunRequest): Promise<CudaRunResult>;
  /** Milliseconds of each of `repeats` samples. Other work of the device waits meanwhile. */
  time(request: CudaTimeRequest): Promise<Float64Array>;
  release(): void;
}

// The typed side of the addon's uploads of weights (runtime/native/cudaUpload).

/** Bytes to copy to the device: of a mapped file or other host memory, or of an encoded matrix as f32, by rows. */
export type CudaUploadPart = ({ readonly source: NativeMemory } | { readonly encoded: EncodedMatrix }) & {
  readonly sourceOffset: number;
  readonly target: CudaMemory;
  readonly targetOffset: number;
  readonly bytes: number;
};

/** Copies, then launches that read what was copied. */
export interface CudaUploadStep {
  readonly parts: readonly CudaUploadPart[];
  /** Launches first to end − 1 of the program, which has no extents. */
  readonly launches: { readonly first: number; readonly end: number };
  /**
   * Copies start only after the launches of this many first steps are done, because those read the memory that is
   * overwritten.
   */
  readonly after: number;
}

/** Seconds. Those of threads are means over the threads. */
export interface CudaUploadTimes {
  readonly total: number;
  /** Threads: reading files into pinned buffers. */
  readonly reading: number;
  /** Threads: waiting for the bus to empty a buffer. */
  readonly bus: number;
  /** Threads: waiting until launches that a copy comes after were at least enqueued. */
  readonly launches: number;
  /** Device: all launches. */
  readonly device: number;
}

/**
 * `threads` threads, each with `buffers` pinned buffers of `bufferBytes` and a stream that empties them. Mapped files
 * are read, not paged in.
 */
export interface CudaUpload {
  /** Bytes passed to the device by the running or last copy or load. */
  readonly copiedBytes: number;
  /**
   * Resolves with the seconds it took when all parts are on the device. Copies run one after another. Not ordered
   * against the device's stream: nobody else may use the targets meanwhile.
   */
  copy(parts: readonly CudaUploadPart[]): Promise<number>;
  /**
   * Executes steps in one go, copies as far ahead as `after` allows, launches in order on the device's stream, each
   * step's behind its own copies. Takes a turn of the device, as a run of a program does; resolves when all is over.
   */
  load(program: CudaProgram, steps: readonly CudaUploadStep[]): Promise<CudaUploadTimes>;
  release(): void;
}
