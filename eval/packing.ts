/** What packing works on, and what it makes. */
import type { Scorer } from './scorer.js';
import type { TreeSize } from './tree.js';

export type BatchCost = Pick<Scorer, 'maxTokens' | 'maxRows' | 'cost'>;

/** What packing needs to know of a tree. */
export interface Packable extends TreeSize {
  /** Orders trees in place of their own length: trees of one question carry the same, and so stay together. */
  readonly orderLength?: number;
  /** Trees of one group go into one micro-batch where they fit. */
  readonly group?: number;
}

/** A micro-batch to be. */
export interface Pack<T extends Packable> {
  readonly items: readonly T[];
  readonly tokens: number;
  readonly rows: number;
  readonly longest: number;
  /** Estimated seconds. */
  readonly seconds: number;
}
