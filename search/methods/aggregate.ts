/** One number from the scores of a path's steps. */
import type { Aggregate } from '../options.js';

/** A path without steps, and so without scores, is worth 0. Products are taken from the left. */
export function aggregateScores(scores: readonly number[], aggregate: Aggregate): number {
  if (scores.length === 0) return 0;
  switch (aggregate) {
    case 'last':
      return scores.at(-1)!;
    case 'min':
      return scores.reduce((least, score) => Math.min(least, score));
    case 'prod':
      return scores.reduce((product, score) => product * score);
    default:
      return aggregate satisfies never;
  }
}

/** The index of the largest, of equal ones the first. -1 for none. */
export function firstLargest(values: readonly number[]): number {
  let best = values.length === 0 ? -1 : 0;
  for (const [index, value] of values.entries()) if (value > values[best]!) best = index;
  return best;
}
