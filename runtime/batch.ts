/** Micro-batches as the executor takes them: what is checked before native code reads them, and which bucket fits. */
import { scoringExtents } from '../ir/scoring.js';
import { extentIn, fitsIn, printExtents, type Extents } from '../ir/extents.js';
import type { Bucket } from '../ir/plan.js';
import type { RuntimePlan } from './ports.js';

/** Token trees in depth-first order; the same shape as eval's MicroBatch. */
export interface Batch {
  readonly tokens: Int32Array;
  readonly position: Int32Array;
  readonly subtreeEnd: Int32Array;
  readonly row: Int32Array;
  readonly target: Int32Array;
}

export interface BatchLimits {
  readonly vocab: number;
  readonly maxLength: number;
}

/** The vocabulary that the head was compiled for; without a head, no bound is known. */
export function vocabOf(plan: RuntimePlan): number {
  for (const kernel of plan.kernels)
    if (kernel.anchor === 'logprob' || kernel.anchor === 'logprobReduce') return kernel.vocab;
  return Infinity;
}

/** The extents of a call that scores `batch`. */
export const sizeOfBatch = ({ tokens, row }: Batch): Extents =>
  scoringExtents({ tokens: tokens.length, rows: row.length });

/** Tokens of the largest tree. */
export function longestTree(batch: Batch): number {
  let longest = 0;
  for (let i = 0; i < batch.tokens.length; i++)
    if (batch.position[i] === 0) longest = Math.max(longest, batch.subtreeEnd[i]! - i);
  return longest;
}

function requireRange(name: string, values: Int32Array, low: number, below: (i: number) => number): void {
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (value < low || value >= below(i))
      throw new RangeError(`${name}[${i}] = ${value} lies outside ${low} to ${below(i) - 1}.`);
  }
}

/**
 * Every number that kernels use as an index is in range: token ids, positions, subtree ends, rows, targets.
 * Throws RangeError naming the array and the entry.
 */
export function checkBatch(batch: Batch, limits: BatchLimits): void {
  const tokens = batch.tokens.length;
  const rows = batch.row.length;
  if (batch.position.length !== tokens || batch.subtreeEnd.length !== tokens) {
    throw new RangeError(
      `A micro-batch of ${tokens} tokens has ${batch.position.length} positions and ${batch.subtreeEnd.length} subtree ends.`,
    );
  }
  if (batch.target.length !== rows)
    throw new RangeError(`A micro-batch of ${rows} rows has ${batch.target.length} targets.`);
  requireRange('tokens', batch.tokens, 0, () => limits.vocab);
  requireRange('position', batch.position, 0, (i) => Math.min(limits.maxLength, i + 1));
  requireRange('row', batch.row, 0, () => tokens);
  requireRange('target', batch.target, 0, () => limits.vocab);
  for (let i = 0; i < tokens; i++) {
    const end = batch.subtreeEnd[i]!;
    if (end <= i || end > tokens) throw new RangeError(`subtreeEnd[${i}] = ${end} lies outside ${i + 1} to ${tokens}.`);
  }
}

/**
 * Index of the smallest bucket that holds a call of this size, by its extents in order; of equals, the one whose paths
 * are long enough and no longer than needed. Throws RangeError where none does.
 */
export function chooseBucket(buckets: readonly Bucket[], size: Extents, longest: number): number {
  let best = -1;
  const isBetter = (a: Bucket, b: Bucket): boolean => {
    for (const name of Object.keys(size)) {
      const [left, right] = [extentIn(name, a.extents), extentIn(name, b.extents)];
      if (left !== right) return left < right;
    }
    const aFits = a.longest >= longest;
    return aFits === b.longest >= longest ? a.longest < b.longest === aFits : aFits;
  };
  buckets.forEach((bucket, i) => {
    if (!fitsIn(size, bucket.extents)) return;
    if (best < 0 || isBetter(bucket, buckets[best]!)) best = i;
  });
  if (best < 0)
    throw new RangeError(
      `No bucket holds ${printExtents(size)}; the largest has ${printExtents(buckets.at(-1)?.extents ?? {})}.`,
    );
  return best;
}
