/** Classes of micro-batch shapes that schedules are chosen for. */
import { scoringBucket } from '../ir/scoring.js';
import type { Bucket } from '../ir/plan.js';

/** Below this many tokens, launch overhead and reading weights dominate, so one bucket is enough. */
const SMALLEST = 64;
/** Trees of benchmark questions are rarely longer; attention is measured on trees of this length. */
const TYPICAL_LONGEST = 256;

/**
 * Buckets for micro-batches of at most `capacityTokens`: powers of two from 64, and the capacity itself. Doubling is
 * fine enough because a CPU's cost is nearly linear above 256 tokens: a micro-batch between two buckets uses the larger
 * one's schedules, and tiles that suit 512 rows suit 400. `rows` equals `tokens`, because any number of them may be
 * scored. Attention is tuned for paths of `longest` tokens; the last bucket takes any tree that fits. Ascending, at
 * least one bucket.
 */
export function defaultBuckets(capacityTokens: number, capacityRows = capacityTokens): readonly Bucket[] {
  const tokens: number[] = [];
  for (let t = SMALLEST; t < capacityTokens; t *= 2) tokens.push(t);
  // Tuning a bucket just below the capacity would be wasted time.
  if ((tokens.at(-1) ?? 0) > 0.75 * capacityTokens) tokens.pop();
  tokens.push(capacityTokens);
  return tokens.map((t) =>
    scoringBucket({ tokens: t, rows: Math.min(t, capacityRows), longest: Math.min(t, TYPICAL_LONGEST) }),
  );
}

/** Columns of the residual stream up to which a call of twice as many tokens is faster. */
const NARROW = 4096;
/** Multiprocessors of the smallest GPU that capacities are made for. */
const FEWEST_MULTIPROCESSORS = 16;
/** Room for a long context, whatever the GPU. */
const LONG_CONTEXT = 16_384;

/**
 * Bounds of a GPU's default largest micro-batch, in tokens. A row tile of 128 for every other multiprocessor: if the
 * number of column tiles is even, whole waves of tiles keep all multiprocessors busy. The products of a narrow model
 * have few waves, and its experts few tokens each, so it gets twice as many tokens (decision 76). An H100: 8,448 and
 * 16,896 tokens.
 */
export function cudaCapacity(
  multiprocessors: number,
  width: number,
): { readonly least: number; readonly most: number } {
  const waves = 64 * Math.max(FEWEST_MULTIPROCESSORS, multiprocessors);
  return { least: width <= NARROW ? 2 * waves : waves, most: Math.max(2 * waves, LONG_CONTEXT) };
}

/**
 * Buckets for micro-batches on a GPU: the capacity and its halves down to 64 tokens. Most micro-batches fill the
 * capacity, which by default is a whole number of waves of tiles.
 */
export function cudaBuckets(capacityTokens: number): readonly Bucket[] {
  const steps: number[] = [];
  for (let t = capacityTokens; t >= SMALLEST || steps.length === 0; t = Math.ceil(t / 2)) {
    steps.unshift(t);
    if (t === 1) break;
  }
  return steps.map((t) => scoringBucket({ tokens: t, rows: t, longest: Math.min(t, TYPICAL_LONGEST) }));
}
