/** Weights as kernels read them: from which tensors they are packed, and in what layout. */
import type { RotaryOrder } from './rotaryOrder.js';
import type { GroupSize } from './groups.js';
import type { CodeFormat, Layout, WeightFormat } from './storage.js';

/**
 * How the logical columns of the result are arranged in the packed weight, so that an epilogue finds both elements that
 * it combines in one tile. `width` lanes of the first element are followed by `width` lanes of the second.
 * - `none`: the physical column is the logical column.
 * - `rotate`: columns i and i + headDim/2 of each head (rotary embedding). `width` divides headDim/2.
 * - `interleave`: column i of two matrices (gate and up). `width` may be any number; columns are padded to a multiple
 *   of it.
 */
export type Pairing =
  | { readonly kind: 'none' }
  | { readonly kind: 'rotate'; readonly headDim: number; readonly width: number }
  | { readonly kind: 'interleave'; readonly width: number };

/** The stored matrix that a weight is packed from. Names are those of checkpoint tensors, [out, in] as in Linear. */
export interface WeightSource {
  readonly tensor: string;
  /** Rows (outputs) of the tensor. */
  readonly rows: number;
  /** Default: the rows as they are stored. A source in another order is the only one of its weight. */
  readonly order?: RotaryOrder;
}

/**
 * A weight as kernels read it. `sources` are stacked by rows in order; pairing `interleave` has exactly two. With
 * `experts`, there are that many lists of sources of equal shape, one per expert, and a matrix for each. Column c
 * of every row is multiplied by columnScale[c] (a folded norm weight), to which columnOffset is added first, before it
 * is rounded to the format.
 * - `panels`: [⌈n/p⌉][k][p], panels of p adjacent output columns: 16 of f32, 32 of a 16-bit format (panelColumns).
 * - `vnni`: [⌈n/16⌉][⌈k/32⌉·16][16][2], pairs of adjacent k, as AMX requires.
 * - `quads`: panels of 32 columns of codes, with or without their scales (ir/quads.ts).
 * - `kmajor`: [n, roundUp(k, 8)], row-major with rows in physical order, as tensor cores read it from shared memory.
 * - `groups`: codes of 4 bits with their scales and zero points, in blocks of 8 rows × 128 columns (ir/groups.ts).
 * - `rows`: the checkpoint's own [n, k] in its own format, mapped and never copied (embedding tables); no scale.
 * ir/storage.ts says which formats each layout supports.
 */
export interface WeightDecl {
  readonly name: string;
  readonly layout: Layout;
  readonly format: WeightFormat;
  readonly sources: readonly WeightSource[];
  /** Default: one matrix. */
  readonly experts?: number;
  readonly k: number;
  readonly pairing: Pairing;
  readonly columnScale?: string;
  /** Default 0. */
  readonly columnOffset?: number;
  /**
   * The weight holds the scales of rows of a matrix of codes [rows, scalesOf.k]: f32[rows] in layout `rows`, k is 1.
   * Sources and columns' factors are those of the codes.
   */
  readonly scalesOf?: { readonly format: CodeFormat; readonly k: number };
  /**
   * Codes: `values` (the default) if the sources' values are rounded while they are packed; `codes` if the sources are
   * encoded with these codes and scales for whole rows, which are kept.
   */
  readonly from?: 'values' | 'codes';
  /** Of format `u4`: adjacent columns that share a scale and a zero point. */
  readonly group?: GroupSize;
}
