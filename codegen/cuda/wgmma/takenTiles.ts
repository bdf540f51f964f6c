/** Rows of experts whose tiles blocks take when they have time for them: experts/takenTiles.cuh. */
import type { GemmKernel } from '../../../ir/kernel.js';
import type { CudaOperands } from '../text/operands.js';

/** Bytes of shared memory for a block's tiles, beside a ring of `stages`: a barrier and a number for each. */
export const takenBytes = (stages: number): number => (stages + 2) * (8 + 4);

/** What a unit of such a product declares: tiles taken so far. */
export const TAKEN = '__device__ TakenTiles taken_tiles;';

/** A SharedTiles of it: a C++ expression. */
export const sharedTiles = ({ starts }: Pick<NonNullable<GemmKernel['experts']>, 'starts'>, operands: CudaOperands) =>
  `SharedTiles{ ${operands.base(operands.get(starts))}, &taken_tiles }`;
