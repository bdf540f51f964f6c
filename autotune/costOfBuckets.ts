/** Seconds of a call of each bucket's size, from what a search has measured. */
import type { Bucket, BucketSeconds } from '../ir/plan.js';
import { tokensIn, TOKENS } from '../ir/scoring.js';
import type { Job } from './searchJob.js';

/** Share of a bucket's predicted time that must be measured before its cost can be trusted. */
const ENOUGH = 0.5;

/**
 * Seconds of each bucket. Measured kernels count as measured; the others as estimated, with the estimates scaled by the
 * ratio of measured to estimated time over all buckets. Empty if less than half of the largest bucket was measured.
 */
export function costOfBuckets<S>(jobs: readonly Job<S>[], buckets: readonly Bucket[]): readonly BucketSeconds[] {
  const sum = (of: readonly Job<S>[], seconds: (job: Job<S>) => number): number =>
    of.reduce((total, job) => total + job.count * seconds(job), 0);
  const estimate = (job: Job<S>): number => job.candidates.cost(job.chosen);
  const measured = jobs.filter((job) => job.standing !== undefined);
  const largest = buckets.reduce((top, bucket, i) => (tokensIn(bucket) > tokensIn(buckets[top]!) ? i : top), 0);
  const inLargest = (job: Job<S>): boolean => job.bucketIndex === largest;
  if (
    measured.length === 0 ||
    sum(measured.filter(inLargest), estimate) < ENOUGH * sum(jobs.filter(inLargest), estimate)
  )
    return [];
  const scale = sum(measured, (job) => job.standing!.seconds) / sum(measured, estimate);
  const seconds = (job: Job<S>): number => job.standing?.seconds ?? scale * estimate(job);
  const isAttention = (job: Job<S>): boolean => job.kernel.anchor === 'attention';
  return buckets.map((bucket, i) => {
    const own = jobs.filter((job) => job.bucketIndex === i);
    return {
      ...bucket,
      seconds: sum(own, seconds),
      attentionSeconds: sum(own.filter(isAttention), seconds),
      rowSeconds: sum(
        own.filter((job) => !isAttention(job) && job.kernel.rows !== TOKENS),
        seconds,
      ),
    };
  });
}
