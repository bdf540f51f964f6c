/** How many row tiles a contraction visits before the next column tile. */
import type { CudaGemmSchedule } from '../../../ir/cuda.js';

/** Part of a group's row tiles up to which those of a last group are few. */
const FEW_LEFT = 0.25;

/**
 * Row tiles per group: as many as fit in `most` rows, and if possible a number that divides the blocks at work. A block
 * then stays on its row tile through the group and keeps the values computed for those rows. Kernels that finish rows
 * read none of their own, and are faster in high groups. Where `rows` would leave a group of few row tiles, which reads
 * all weights for itself, groups are equal instead: o of E4M3 takes 4 % less at 5,760 rows in groups of 15 than in
 * those of 22, 22 and 1.
 */
export function rasterOf(
  multiprocessors: number,
  { cluster, tm }: Pick<CudaGemmSchedule, 'cluster' | 'tm'>,
  { rows, most, finishes }: { readonly rows: number; readonly most: number; readonly finishes: boolean },
): number {
  const clusters = Math.max(1, Math.floor(multiprocessors / cluster));
  const tallest = Math.max(1, Math.floor(most / (tm * cluster)));
  if (finishes) return tallest * cluster;
  let height = tallest;
  while (clusters % height !== 0 && height > tallest / 2) height--;
  if (clusters % height !== 0) height = tallest;
  const tiles = Math.ceil(rows / (tm * cluster));
  const left = tiles % height;
  const isFewLeft = tiles > height && left > 0 && left <= FEW_LEFT * height;
  return (isFewLeft ? Math.ceil(tiles / Math.ceil(tiles / height)) : height) * cluster;
}
