/** Programs of the native addon: launches that are bound to memory, and their runs. */
import type { NativeLibrary, NativePool, Slot } from './nativeObjects.js';

/** A size that each call of a program provides: its name, and the largest value that the program is bound for. */
export interface ProgramExtent {
  readonly name: string;
  readonly most: number;
}

/** A fixed number, or the name of one of the program's extents. */
export type Extent = number | string;

/** An array that a call copies in or out. It is dense; in its slot, rows are `stride` elements apart. */
export interface PortBinding {
  /** Index into the program's slots. */
  readonly slot: number;
  readonly dtype: 'f32' | 'i32' | 'f16' | 'bf16';
  readonly rows: Extent;
  readonly columns: number;
  readonly stride: number;
}

/** Elements of an array that a call copies in, by dtype: f32, i32, or the bits of 16-bit numbers. */
export type PortData = Float32Array | Int32Array | Uint16Array;

/** A floating-point buffer that a launch writes. A checked run searches it for NaN and infinities. */
export interface WriteBinding {
  /** Index into ProgramBinding.slots. */
  readonly slot: number;
  readonly dtype: 'f32' | 'f16' | 'bf16';
  readonly rows: Extent;
  readonly columns: Extent;
  /** Elements from row to row. */
  readonly stride: number;
  readonly allowsNegativeInfinity: boolean;
}

/** A kernel of a library, and what it is called with. */
export interface LaunchBinding {
  readonly name: string;
  readonly library: NativeLibrary;
  readonly symbol: string;
  /** Indices into ProgramBinding.slots, in the order of the kernel's parameters. */
  readonly slots: readonly number[];
  readonly writes: readonly WriteBinding[];
}

/** What a program is made of. */
export interface ProgramBinding {
  readonly pool: NativePool;
  /** The sizes that a call provides. Kernels take them all, in this order. */
  readonly extents: readonly ProgramExtent[];
  /** Scratch bytes of each worker, a multiple of 64, and memory for all workers (absent if 0). */
  readonly scratchBytes: number;
  readonly scratch?: Slot;
  readonly slots: readonly Slot[];
  readonly launches: readonly LaunchBinding[];
  /** Copied in by each run, in this order. */
  readonly inputs: readonly PortBinding[];
  /** Copied out after each run. */
  readonly outputs: readonly PortBinding[];
}

/** One run of a program. */
export interface RunRequest {
  /** A size for each of the program's extents, in their order. */
  readonly extents: readonly number[];
  readonly inputs: readonly PortData[];
  /** Measure each launch. */
  readonly isTimed?: boolean;
  /** Search what each launch writes; stop at the first value that is not finite. */
  readonly isChecked?: boolean;
}

/** What a run leaves. */
export interface RunResult {
  readonly outputs: readonly ArrayBuffer[];
  /** Nanoseconds of each launch, when timed. */
  readonly launchNs?: Float64Array;
  /** The first launch that wrote a value that is not finite, and its position, when checked. */
  readonly nonFinite?: {
    readonly launch: number;
    readonly write: number;
    readonly row: number;
    readonly column: number;
  };
}

/** Launches bound to memory. Keeps its pool, libraries and memories alive. */
export interface NativeProgram {
  run(request: RunRequest): Promise<RunResult>;
  /**
   * Seconds of each of `repeats` runs of one launch, after one that is not counted. If inputs are absent, those of the
   * last run are used.
   */
  timeLaunch(request: {
    readonly launch: number;
    readonly extents: readonly number[];
    readonly repeats: number;
    readonly inputs?: readonly PortData[];
  }): Promise<Float64Array>;
  release(): void;
}
