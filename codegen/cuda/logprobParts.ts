/**
 * Parts of a vocabulary block. The contraction keeps their maxima and sums in shared memory and then combines them in
 * order.
 */
import { LOGPROB_BLOCK, type LogProbKernel } from '../../ir/kernel.js';

/**
 * Columns of a part: a warp's, one per lane, or a thread quad's. Every tile is a multiple of it, so results do not
 * depend on the tile.
 */
export const LOGPROB_PIECE = 32;

/**
 * Bytes of shared memory for the parts of `tm` rows: maximum, sum and column of each, and the row's value at its
 * target; with a draw also its score, column and logit.
 */
export const partsBytes = (tm: number, { draw }: Pick<LogProbKernel, 'draw'>): number =>
  tm * ((LOGPROB_BLOCK / LOGPROB_PIECE) * (draw === undefined ? 12 : 24) + 4);
