/** Kernels behind the last layer: log-probabilities of targets, and the choice of tokens. */
import type { SampleInput } from './sampleInputs.js';
import type { Scalar } from './scalar.js';
import type { KernelBase, Rounding } from './kernelBase.js';

/**
 * Vocabulary columns covered by one part of the online log-sum-exp. This is the width of one tensor-core instruction.
 */
export const LOGPROB_BLOCK = 256;

/** What a token of each row is drawn with (ir/gumbel): f32[rows], and the two halves of keys, i32[rows] each. */
export interface Draw {
  readonly inverseTemperature: string;
  readonly low: string;
  readonly high: string;
}

/** The names of a draw's buffers. */
export const drawBuffers = (draw: Draw | undefined): readonly string[] =>
  draw === undefined ? [] : [draw.inverseTemperature, draw.low, draw.high];

/**
 * Let z = rowScale·(a·Wᵀ), or with a cap, cap·tanh(rowScale·(a·Wᵀ) / cap). For each block of LOGPROB_BLOCK vocabulary
 * columns, the kernel writes max z, Σ exp(z − max), the first column of the max, and z at the target column (−inf
 * outside the block) to parts[row, 4·block …]. The logits themselves are never stored. With a draw, 8 numbers are
 * written for a block: those, the largest score of the draw (drawScore), its first column, z there, and 0. With
 * `logits`, the z of the first rows are stored as well.
 */
export interface LogProbKernel extends KernelBase {
  readonly anchor: 'logprob';
  readonly k: number;
  readonly a: string;
  readonly rounding?: Rounding;
  readonly weight: string;
  readonly vocab: number;
  /**
   * Scale of a row before the softmax (the final norm's 1/rms). The expression is the same for all columns of a row.
   */
  readonly rowScale: Scalar;
  readonly cap?: number;
  /** i32[rows] */
  readonly target: string;
  readonly draw?: Draw;
  /** f32[F, vocab], where F is within the rows. */
  readonly logits?: string;
  /** f32[rows, partWidth·⌈vocab/LOGPROB_BLOCK⌉] */
  readonly parts: string;
}

/** Numbers that a block's part has. */
export const partWidth = ({ draw }: { readonly draw?: unknown }): 4 | 8 => (draw === undefined ? 4 : 8);

/** Combines the parts in block order: logProb[row] = zTarget − logSumExp, isArgmax[row] = (argmax == target). */
export interface LogProbReduceKernel extends KernelBase {
  readonly anchor: 'logprobReduce';
  readonly vocab: number;
  readonly parts: string;
  readonly target: string;
  /** f32[rows] */
  readonly logProb: string;
  /** i32[rows], 0 or 1 */
  readonly isArgmax: string;
  /** Where parts have a draw: i32[rows], the token, and f32[rows], its log-probability at temperature 1. */
  readonly draw?: { readonly token: string; readonly logProb: string };
  /** f32[rows] each: the largest z and Σ exp(z − largest), for kernels that compute more of a row. */
  readonly totals?: Totals;
}

/** The sums of rows' softmax, for other kernels. */
export interface Totals {
  readonly top: string;
  readonly sum: string;
}

/**
 * Chooses a token for each row of logits (ir/filters), and finds the most likely ones. Log-probabilities are those of
 * the logits as they are: z − (top + ln sum), by the totals of their rows. The kernel overwrites the logits, which
 * nobody reads afterwards.
 */
export interface SampleKernel extends KernelBase {
  readonly anchor: 'sample';
  readonly vocab: number;
  /** f32[rows, vocab] */
  readonly logits: string;
  readonly totals: Totals;
  readonly inputs: Readonly<Record<SampleInput, string>>;
  /** f32[E]: where the kernel keeps the logits that its entries change. */
  readonly saved: string;
  /** i32[rows], f32[rows] */
  readonly token: string;
  readonly logProb: string;
  /** The `count` most likely tokens, at most `most`: i32[rows]; i32[rows, most] and f32[rows, most], 0 past them. */
  readonly best: { readonly most: number; readonly count: string; readonly tokens: string; readonly logProbs: string };
}
