/** Types of packing: its input and its result. */
import type { Scorer } from './scorer.js';
import type { TreeSize } from './tree.js';

export type BatchCost = Pick<Scorer, 'maxTokens' | 'maxRows' | 'cost'>;

/** What packing needs to know about a tree. */
export interface Packable extends TreeSize {
  /** Orders trees instead of their own length. Trees of one question have the same value and so stay together. */
  readonly orderLength?: number;
  /** Trees of one group go into one micro-batch if they fit. */
  readonly group?: number;
}

/** A planned micro-batch. */
export interface Pack<T extends Packable> {
  readonly items: readonly T[];
  readonly tokens: number;
  readonly rows: number;
  readonly longest: number;
  /** Estimated seconds. */
  readonly seconds: number;
}
