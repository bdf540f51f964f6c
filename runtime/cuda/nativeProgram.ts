/** The typed side of the addon's CUDA programs: launches bound to memory (runtime/native/cudaProgram). */
import type { LaunchShape } from '../../ir/cuda.js';
import type { Extent, PortBinding, PortData, ProgramExtent } from '../nativeProgram.js';
import type { CudaClock, CudaDevice, CudaMemory, CudaModule, CudaSpan } from './nativeDevice.js';

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
