/** Tensors that an adapter changes in ways that do not ride: what each is made of. */
import type { LowRank } from './adapter.js';

/** Rows of a tensor that the adapter has whole. */
export interface NewRows {
  /** Rows of the tensor, in the order of `read`. */
  readonly rows: readonly number[] | { readonly first: number; readonly count: number };
  /** f32[rows, columns] */
  readonly read: () => Float32Array;
}

/**
 * A tensor [rows, columns], or a vector of rows. In this order: what it begins as, products that are added, magnitudes,
 * rows that are the adapter's.
 */
export interface TensorChange {
  readonly tensor: string;
  readonly shape: readonly number[];
  /** The tensor of the base that it begins as; undefined: zeros, of a tensor that the base lacks. */
  readonly from: string | undefined;
  /** Rows that take the place of the base's before anything is added. */
  readonly begins: readonly NewRows[];
  /** What is added: B·A, with the scale in it. */
  readonly product: Pick<LowRank, 'rank' | 'scale' | 'read'> | undefined;
  /** DoRA: each row, or each column, is given this norm. */
  readonly magnitude: { readonly of: 'rows' | 'columns'; readonly read: () => Float32Array } | undefined;
  /** A vector that is added, times a factor. */
  readonly added: { readonly scale: number; readonly read: () => Float32Array } | undefined;
  /** Rows that take the place of what there is at last. */
  readonly ends: readonly NewRows[];
}
