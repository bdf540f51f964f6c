/** What the jobs of a search share: the measurements of equal launches, and the time of the whole search. */
import type { Bucket } from '../ir/plan.js';
import type { Known, Records } from './records.js';
import type { Job } from './searchJob.js';

/** Records of all places of a launch, which other buckets and functions share. A bucket's own record counts more. */
export const knownOf = <S>(records: Records<S>, key: string, places: readonly Bucket[]): readonly Known<S>[] =>
  [...new Set(places)].flatMap((place) => [...records.known(key, place)]);

/** The share of time of each job. `isEven`: those of a bucket add up to 1. */
export function weightsOf<S>(jobs: readonly Job<S>[], isEven: boolean): ReadonlyMap<Job<S>, number> {
  const totals = new Map<number, number>();
  for (const { bucketIndex, weight } of jobs) totals.set(bucketIndex, (totals.get(bucketIndex) ?? 0) + weight);
  return new Map(jobs.map((job) => [job, isEven ? job.weight / totals.get(job.bucketIndex)! : job.weight]));
}

/** The other jobs that measure the same launch: kernels over tokens in buckets that differ in their paths alone. */
export function twinsOf<S>(
  jobs: readonly Job<S>[],
  placeOf: (job: Job<S>) => Bucket,
): ReadonlyMap<Job<S>, readonly Job<S>[]> {
  const groups = new Map<string, Job<S>[]>();
  const groupOf = jobs.map((job) => {
    const key = JSON.stringify([job.recordKey, placeOf(job)]);
    const group = groups.get(key) ?? [];
    groups.set(key, [...group, job]);
    return key;
  });
  return new Map(jobs.map((job, i) => [job, groups.get(groupOf[i]!)!.filter((other) => other !== job)]));
}
