/** Tensors that an adapter changes in ways that do not ride: what each is made of. */
import type { LowRank } from './adapter.js';

/** Rows from `first` on that the adapter has whole. */
export interface NewRows {
  readonly first: number;
  readonly count: number;
  /** f32[count, columns] from row `from` of them on. */
  readonly read: (from: number, count: number) => Float32Array;
}

/**
 * A tensor [rows, columns], or a vector of rows. In this order: what it begins as, what is added, the norms that rows
 * or columns are given, rows that are the adapter's.
 */
export interface TensorChange {
  readonly tensor: string;
  readonly shape: readonly number[];
  /** The tensor of the base that it begins as; undefined: zeros, of a tensor that the base lacks. */
  readonly from: string | undefined;
  readonly begins: readonly NewRows[];
  /** B·A times its scale. */
  readonly product?: Pick<LowRank, 'rank' | 'scale' | 'read'>;
  /** A vector that is added, times a factor. */
  readonly added?: { readonly scale: number; readonly read: () => Float32Array };
  /** DoRA: each row, or each column, is given this norm. */
  readonly magnitude?: { readonly of: 'rows' | 'columns'; readonly read: () => Float32Array };
  /** Rows that are the adapter's, by number: f32[ids, columns]. */
  readonly tokens?: { readonly ids: readonly number[]; readonly read: () => Float32Array };
}

/** A product that rides, as a change of its matrix. */
export const asChange = ({ tensor, outputs, inputs, rank, scale, read }: LowRank): TensorChange => ({
  tensor,
  shape: [outputs, inputs],
  from: tensor,
  begins: [],
  product: { rank, scale, read },
});
