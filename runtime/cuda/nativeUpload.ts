/** The typed side of the addon's uploads of weights (runtime/native/cudaUpload). */
import type { EncodedMatrix } from '../nativePacking.js';
import type { NativeMemory } from '../nativeObjects.js';
import type { CudaMemory } from './nativeDevice.js';
import type { CudaProgram } from './nativeProgram.js';

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
