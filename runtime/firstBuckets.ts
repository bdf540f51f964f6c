/** Buckets of calls that are known before they come. */
import { fitsIn } from '../ir/extents.js';
import { bucketsFor } from './call.js';
import { functionOf, nameOf, type RuntimeFunction, type RuntimePlan } from './runtimePlan.js';
import type { FirstCall } from './stageRunner.js';

/** A bucket of a function, by its index. */
export interface BucketOf {
  readonly fn: RuntimeFunction;
  readonly bucket: number;
}

/** Names it among all buckets of a plan. */
export const keyOf = ({ fn, bucket }: BucketOf): string => `${bucket} ${nameOf(fn)}`;

/** Each once. */
export const distinctBuckets = (buckets: readonly BucketOf[]): readonly BucketOf[] => [
  ...new Map(buckets.map((of) => [keyOf(of), of])).values(),
];

/** The bucket that holds every call of a function. */
export const largestOf = (fn: RuntimeFunction): BucketOf => ({
  fn,
  bucket: bucketsFor(fn.buckets, fn.capacity.extents, fn.capacity.longest)[0]!,
});

/** The best bucket of each call; of a larger call than the plan allows, the largest. */
export const bucketsOfCalls = (plan: RuntimePlan, calls: readonly FirstCall[]): readonly BucketOf[] =>
  distinctBuckets(
    calls.map(({ function: name, extents, run }): BucketOf => {
      const fn = functionOf(plan, name);
      if (!fitsIn(extents, fn.capacity.extents)) return largestOf(fn);
      return { fn, bucket: bucketsFor(fn.buckets, extents, 0, run)[0]! };
    }),
  );
