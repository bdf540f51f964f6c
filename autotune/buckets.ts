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
