/** What the native addon packs weights from, and into what. */
import type { Encoding, PerPart } from '../ir/encoding.js';
import type { EncodedPart } from './tensorSource.js';
import type { NativeMemory, Slot } from './nativeObjects.js';

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
