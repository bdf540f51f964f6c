/** A shard of a run, and its name. */

/** One part of a run. */
export interface Shard {
  /** 1 to count. */
  readonly index: number;
  readonly count: number;
}

/** Limit on shards: more than any cluster starts for one question set. */
export const MAX_SHARDS = 10_000;

export const shardName = ({ index, count }: Shard): string => `${index}/${count}`;
