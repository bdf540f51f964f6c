/** How many clusters of blocks a Hopper GPU runs at once, where each block takes a whole multiprocessor. */
import { at } from '../../../system/at.js';

/** Groups of multiprocessors of a GPU, and pairs of them in a group, at most. */
const GROUPS = 8;
const PAIRS = 9;

/**
 * Clusters of `size` blocks that certainly run at once. A cluster lies in one group, and how many multiprocessors of
 * each group work differs from GPU to GPU: of 132 the fewest clusters are 66 of 2, 29 of 4, 13 of 8 and 5 of 16. On an
 * H200, 16 clusters of 8 and 32 of 4 take twice as long as one.
 */
export function clustersAtOnce(multiprocessors: number, size: number): number {
  const pairs = Math.min(Math.floor(multiprocessors / 2), GROUPS * PAIRS);
  // The fewest clusters in the groups so far, by the pairs that these have.
  let least = [0];
  for (let group = 0; group < GROUPS; group++) {
    const next: number[] = [];
    least.forEach((clusters, before) => {
      for (let own = 0; own <= PAIRS && before + own <= pairs; own++)
        next[before + own] = Math.min(next[before + own] ?? Infinity, clusters + Math.floor((2 * own) / size));
    });
    least = next;
  }
  return at(least, pairs);
}
