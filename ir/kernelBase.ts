/** What kernels of every anchor have, and the results that their programs write. */
import type { Dim, ExtentName } from './types.js';
import type { Scalar } from './scalar.js';

/**
 * One result that a program writes for each element of its domain.
 * - `store`: buffer[row, column] = value, rounded to the buffer's dtype. With `via`, an i32 vector, it is
 *   buffer[via[row], column], and nothing where via[row] is −1. Only loops and contractions store so, and only into
 *   states. No two rows have the same target.
 * - `rowSum`: buffer[row, floor(column / ROW_SUM_BLOCK)] = Σ of value over the block's columns. The fixed block makes
 *   the order of additions, and so the result, independent of tiles and of the number of threads. With `by` it is the
 *   largest of the values instead, of whole blocks, or of the row where the buffer has one column (`isRowMax`). Only
 *   loops write so: they have whole rows.
 */
export type Output =
  | { readonly kind: 'store'; readonly buffer: string; readonly via?: string; readonly value: Scalar }
  | { readonly kind: 'rowSum'; readonly by?: 'max'; readonly buffer: string; readonly value: Scalar };

/** Columns that are summed into one part of a row sum. Every column tile is a multiple of it. */
export const ROW_SUM_BLOCK = 16;

/** Whether `output`, which writes a buffer of `columns` columns, is the largest value of a whole row. */
export const isRowMax = (output: Output, columns: Dim): boolean =>
  output.kind === 'rowSum' && output.by === 'max' && columns === 1;

/** What every kernel has. */
export interface KernelBase {
  /** Unique identifier, [a-z][a-z0-9_]*. */
  readonly name: string;
  /** Model path, `layers.3.attention.qkv`, for traces and error messages. */
  readonly path: string;
  /** Rows of the iteration domain. */
  readonly rows: ExtentName;
  /** Graph ops that are fused into the kernel, in order, for `inspect`. */
  readonly ops: readonly string[];
  /**
   * For each state that it reads or writes, the version that it finds: how many kernels have written the state before
   * it in this call. Lowering states it, and the verifier checks it against the order of launches.
   */
  readonly versions?: Readonly<Record<string, number>>;
}

/**
 * Elements become codes of 8 bits, −127 … 127, times a scale: the largest magnitude / 127 of `columns` neighbours in a
 * row, or of all of them (ir/rounding.ts).
 */
export interface Rounding {
  readonly columns: number;
}
