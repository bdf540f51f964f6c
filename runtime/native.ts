/** Objects of the native addon that others are made of: memory, libraries of kernels, and threads. */

/** Read-only mapping of a file, or zero-initialized memory aligned to 64 bytes. Freed when nothing uses it any more. */
export interface NativeMemory {
  readonly sizeBytes: number;
  /** For alignment checks and messages only: native code takes the object itself. */
  readonly address: bigint;
  readonly isWritable: boolean;
  /** Releases it. Programs and running jobs that use it keep it alive. */
  release(): void;
  /**
   * Advice for a range; default: all of it. `dontneed` drops the pages of a mapped file from this process; they are
   * read again when touched.
   */
  advise(advice: 'willneed' | 'dontneed', offset?: number, length?: number): void;
  /** Copies bytes in, out of. Neither checks that no job is running. */
  write(offset: number, data: NodeJS.TypedArray): void;
  read(offset: number, bytes: number): ArrayBuffer;
  /**
   * Puts memory, in whole pages, behind the first `bytes` that were reserved, and takes it from behind the others,
   * which nobody may be using. New memory is zero, and becomes the process's own where it is touched. Returns the bytes
   * that there is memory behind: fewer than were asked for where the system has no more.
   */
  map(bytes: number): number;
  /** Bytes of reserved memory that were touched. */
  readonly residentBytes: number;
  /** Bytes that there is memory behind: all of what was not reserved. */
  readonly usableBytes: number;
}

/** A shared object of generated kernels, closed when no program uses it. */
export interface NativeLibrary {
  has(symbol: string): boolean;
  release(): void;
}

/** Threads that sleep unless a job runs. One job at a time: starting another while `isBusy` throws. */
export interface NativePool {
  readonly threads: number;
  readonly isBusy: boolean;
  /** Stops work before the process exits: the running job rejects at its next launch, later jobs at once. */
  stop(): void;
  release(): void;
}

/** A range of a memory. */
export interface Slot {
  readonly memory: NativeMemory;
  readonly offset: number;
  readonly bytes: number;
}

/** What the native addon packs weights from, and into what. */
import type { Encoding, PerPart } from '../ir/encoding.js';
import type { EncodedColumns, EncodedPart } from './tensorSource.js';

/**
 * A [rows, k] matrix; `format` is the code of its StorageFormat. Random values are nearly normal, a function of (seed,
 * flat index) only, rounded to the format.
 */
export type PackSource =
  | {
      readonly kind: 'memory';
      readonly format: number;
      readonly rows: number;
      readonly memory: NativeMemory;
      readonly offset: number;
    }
  | {
      readonly kind: 'random';
      readonly format: number;
      readonly rows: number;
      readonly seed: bigint;
      readonly scale: number;
    }
  | { readonly kind: 'constant'; readonly format: number; readonly rows: number; readonly value: number }
  | { readonly kind: 'tiles'; readonly format: number; readonly rows: number; readonly tiles: readonly PackTile[] }
  | EncodedMatrix;

/** An encoded matrix [rows, k], decoded as f32. The addon checks that its parts lie inside their memories. */
export interface EncodedMatrix {
  readonly kind: 'encoded';
  readonly format: number;
  readonly rows: number;
  readonly k: number;
  /** Which columns of the matrix that is stored the k ones are. Default: all. */
  readonly columns?: EncodedColumns;
  /** For messages. */
  readonly name: string;
  readonly encoding: Encoding;
  /** See EncodedPart in tensorSource.ts. Default: values. Uploads only. */
  readonly reads?: EncodedPart;
  readonly parts: PerPart<{ readonly memory: NativeMemory; readonly offset: number }>;
}

/**
 * A rectangle of a matrix: element (row + i, column + j) lies i·rowStride + j·columnStride elements behind `offset`.
 * The tiles of a matrix cover it and do not overlap.
 */
export interface PackTile {
  readonly memory: NativeMemory;
  /** Bytes. */
  readonly offset: number;
  readonly row: number;
  readonly rows: number;
  readonly column: number;
  readonly columns: number;
  readonly rowStride: number;
  readonly columnStride: number;
}

/** A weight to pack, and where to. */
export interface PackJob {
  readonly layout: 'rows' | 'panels' | 'vnni' | 'quads';
  readonly format: number;
  /** The format of layout `quads`, in whose blocks all sources are stored; `i8` for codes with scales for rows. */
  readonly quads?: string;
  /**
   * The result is codes of rows (quads of i8), or their scales (rows): rounded here, or as encoded sources have them.
   */
  readonly codes?: 'stored' | 'rounded';
  readonly k: number;
  /** ir/packing's physicalToLogical. */
  readonly rowMap: Int32Array;
  readonly sources: readonly PackSource[];
  /** One row of k factors, multiplied in f32 before rounding. */
  readonly columnScale?: PackSource;
  /** Added to the factors in f32. */
  readonly columnOffset?: number;
  readonly target: Slot;
}

// What the native addon quantizes matrices from (GPTQ), and what it makes of them.

/** The sum H of the products of a layer's inputs (hessian.ts). */
export interface HessianJob {
  readonly k: number;
  readonly hessian: NativeMemory;
}

/** The factor of H, or that of its inverse. */
export interface FactorJob {
  readonly k: number;
  readonly factor: NativeMemory;
}

/** Rows of weights to code. `order`: columns as they are quantized. Without `inverse` they are rounded. */
export interface CodeJob {
  readonly k: number;
  readonly weights: Float32Array;
  readonly order: Int32Array;
  readonly bits: number;
  readonly group: number;
  readonly isSymmetric: boolean;
  readonly inverse?: NativeMemory;
}

/** A matrix [rows, k] as (code − zero)·scale, with a scale for each row and group of columns, in their order. */
export interface CodedRows {
  /** [rows, k], columns as stored. */
  readonly codes: Uint8Array;
  /** [groups, rows]: bits of f16. */
  readonly scales: Uint16Array;
  /** [groups, rows] */
  readonly zeros: Uint8Array;
  /** The error of the outputs by the damped matrix of inputs; 0 where rows were rounded. */
  readonly loss: number;
}

// Programs of the native addon: launches that are bound to memory, and their runs.

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
  /** It does nothing in a call without adapters. */
  readonly isForAdapters?: boolean;
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
export interface ProgramRun {
  /** A size for each of the program's extents, in their order. */
  readonly extents: readonly number[];
  readonly inputs: readonly PortData[];
  /** Measure each launch. */
  readonly isTimed?: boolean;
  /** Search what each launch writes; stop at the first value that is not finite. */
  readonly isChecked?: boolean;
  /** Leave out launches that are for adapters alone. */
  readonly skipsAdapters?: boolean;
}

/** What a run leaves. */
export interface ProgramResult {
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
  run(request: ProgramRun): Promise<ProgramResult>;
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
