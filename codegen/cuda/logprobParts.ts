/**
 * Pieces of a vocabulary block whose maxima and sums the contraction keeps in shared memory, and then combines in
 * order.
 */
import { LOGPROB_BLOCK } from '../../ir/kernel.js';

/**
 * Columns of a piece: a warp's, one a lane, or a thread quad's. Every tile is a multiple of it, so none shows in the
 * bits.
 */
export const LOGPROB_PIECE = 32;

/**
 * Shared memory of the pieces of `tm` rows, bytes: maximum, sum and column of each, and the row's value at its target.
 */
export const partsBytes = (tm: number): number => tm * ((LOGPROB_BLOCK / LOGPROB_PIECE) * 12 + 4);
