/** What results of a part of a run of tasks hold beside their figures, so that parts can be merged. */
import { z } from 'zod';
import { tasksBelow } from '../../tasks/definition/settings.js';
import { type AggregationName, isAggregation } from '../../tasks/scores/aggregate.js';
import type { RunIdentity } from '../journalLines.js';
import { MAX_SHARDS, type Shard } from '../shard.js';
import type { GroupAnswers, TaskAnswers } from './answers.js';

const scalar = z.union([z.string().max(4096), z.number(), z.boolean(), z.null()]);
const name = z.string().min(1).max(300);
const names = z.array(name).max(10_000);

const aggregation = z.custom<AggregationName>((value) => typeof value === 'string' && isAggregation(value));

/** Checked when it is read: files of shards come from other machines. */
export const SHARD_BLOCK = z.object({
  index: z.int().min(1).max(MAX_SHARDS),
  count: z.int().min(1).max(MAX_SHARDS),
  run: z.record(z.string(), scalar),
  tasks: z.record(
    name,
    z.object({
      /** Of the file of samples; absent where none was written. */
      samples: z
        .string()
        .regex(/^[0-9a-f]{64}$/)
        .optional(),
      filters: names,
      metrics: z.array(z.object({ name, aggregation })).max(1000),
    }),
  ),
  groups: z
    .array(
      z.object({
        name,
        tasks: names,
        aggregates: z.array(z.object({ metric: name, weightBySize: z.boolean(), filters: names.optional() })).max(1000),
      }),
    )
    .max(10_000),
});
export type ShardBlock = z.infer<typeof SHARD_BLOCK>;

export function shardBlock(
  { index, count }: Shard,
  run: RunIdentity,
  tasks: readonly TaskAnswers[],
  samples: ReadonlyMap<string, string>,
  groups: readonly GroupAnswers[],
): ShardBlock {
  return {
    index,
    count,
    run: { ...run },
    tasks: Object.fromEntries(
      tasks.map(({ task: { name: of, scores } }) => [
        of,
        {
          ...(samples.has(of) ? { samples: samples.get(of)! } : {}),
          filters: scores.filters.map((filter) => filter.name),
          metrics: scores.metrics.map((metric) => ({ name: metric.name, aggregation: metric.aggregation })),
        },
      ]),
    ),
    groups: groups.map(({ group }) => ({
      name: group.name,
      tasks: tasksBelow([group]).map((task) => task.name),
      aggregates: group.aggregates.map(({ metric, weightBySize, filters }) => ({
        metric,
        weightBySize,
        ...(filters === undefined ? {} : { filters: [...filters] }),
      })),
    })),
  };
}
