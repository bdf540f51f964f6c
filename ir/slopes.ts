/** What ALiBi (arXiv:2108.12409) adds to the score of a head. */
import { roundToBf16 } from './scalar.js';

/** Where a key is: how many positions it is further on than the query, and its own. */
export interface KeyPlace {
  readonly distance: number;
  readonly position: number;
}

/**
 * slope·distance. With a factor, r(slope·r(position))·factor, where r rounds to bf16: what code gives that computes
 * these numbers in bf16, from the first token on, and divides scores behind them.
 */
export const slopeTerm = (slope: number, { distance, position }: KeyPlace, factor: number | undefined): number =>
  factor === undefined ? slope * distance : roundToBf16(slope * roundToBf16(position)) * factor;
