/** Sizes of trees and micro-batches: what fits together, and what packing takes and gives. */
import type { Scorer } from './scorer.js';
import type { TreeSize } from './tree.js';

/** The largest micro-batch. */
export type Capacity = Pick<Scorer, 'maxTokens' | 'maxRows' | 'maxKeys'>;
export type BatchCost = Capacity & Pick<Scorer, 'cost'>;

/** Whether trees of this size in total fit in a micro-batch. */
export const fits = ({ tokens, rows, keys }: TreeSize, { maxTokens, maxRows, maxKeys = Infinity }: Capacity): boolean =>
  tokens <= maxTokens && rows <= maxRows && keys <= maxKeys;

/** The size of no tree. */
export const EMPTY: TreeSize = { tokens: 0, rows: 0, keys: 0, longest: 0 };

/** The size of two micro-batches as one. */
export const together = (a: TreeSize, b: TreeSize): TreeSize => ({
  tokens: a.tokens + b.tokens,
  rows: a.rows + b.rows,
  keys: a.keys + b.keys,
  longest: Math.max(a.longest, b.longest),
});

const totalSize = (sizes: readonly TreeSize[]): TreeSize => sizes.reduce(together, EMPTY);

/** What packing needs to know about a tree. */
export interface Packable extends TreeSize {
  /** Orders trees instead of their own length. Trees of one question have the same value and so stay together. */
  readonly orderLength?: number;
  /** Trees of one group go into one micro-batch if they fit. */
  readonly group?: number;
}

/** A planned micro-batch. */
export interface Pack<T extends Packable> extends TreeSize {
  readonly items: readonly T[];
  /** Estimated seconds. */
  readonly seconds: number;
}

/** The micro-batch of `items`. */
export function packOf<T extends Packable>(items: readonly T[], { cost }: Pick<BatchCost, 'cost'>): Pack<T> {
  const size = totalSize(items);
  return { items, ...size, seconds: cost(size.tokens, size.rows, size.longest) };
}
