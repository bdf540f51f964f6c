/** Tuning on a CPU: the search of searchLoop.ts over this machine's grids, judged by its cost model. */
import { defaultSchedule, isLegal, type CpuFacts } from '../codegen/cpu/index.js';
import type { Kernel, KernelModule } from '../ir/kernel.js';
import type { Bucket, CpuSchedule } from '../ir/plan.js';
import { enumerateSpace, neighbours, scheduleKey, scheduleSpace } from './candidates.js';
import { scheduleCost, shareOfPeak, type MachineModel } from './costModel.js';
import type { TuningDatabase, TuningTarget } from './database.js';
import type { Measure } from './measure.js';
import type { Candidates } from './searchJob.js';
import { searchSchedules, type TuneProgress, type TuneResult } from './searchLoop.js';
import { kernelWork, sizeOf } from './work.js';

export type { Rival, TuneRow } from './searchJob.js';
export type { TuneProgress, TuneResult } from './searchLoop.js';

export interface TuneOptions {
  readonly module: KernelModule;
  readonly buckets: readonly Bucket[];
  /** What defaults and legality are judged by. */
  readonly facts: CpuFacts;
  readonly machine: MachineModel;
  /** Largest T of the plan: part of signatures. */
  readonly tokensCapacity: number;
  /** 0: only what the database knows. */
  readonly budgetSeconds: number;
  readonly database: TuningDatabase;
  readonly target: TuningTarget;
  readonly measure: Measure;
  readonly onProgress?: (progress: TuneProgress) => void;
  /** Aborted: the search ends at the next measurement and returns the best so far. */
  readonly signal?: AbortSignal;
  /** Seconds that pass; tests bring their own. */
  readonly now?: () => number;
}

function candidatesOf(
  { module, facts, machine }: TuneOptions,
  kernel: Kernel,
  bucket: Bucket,
): Candidates<CpuSchedule> {
  const start = defaultSchedule(kernel, module, facts, bucket);
  const space = scheduleSpace(kernel, module, start, facts, bucket);
  const work = kernelWork(kernel, module, sizeOf(bucket));
  return {
    start,
    work,
    cost: scheduleCost(kernel, module, sizeOf(bucket), machine),
    mayUse: (schedule) =>
      scheduleKey(schedule) === scheduleKey(start) ||
      (schedule.isa === start.isa && isLegal(kernel, module, schedule, facts) === true),
    enumerate: () => enumerateSpace(space),
    neighbours: (from) => neighbours(space, from),
    shareOfPeak: (seconds) => shareOfPeak(work, machine, seconds),
  };
}

/** searchSchedules on this machine; what it measures is kept in the database under the target's name. */
export function tune(options: TuneOptions): Promise<TuneResult> {
  const { module, buckets, tokensCapacity, budgetSeconds, database, target, measure, onProgress, signal, now } =
    options;
  return searchSchedules<CpuSchedule>({
    module,
    buckets,
    tokensCapacity,
    budgetSeconds,
    measure,
    keyOf: scheduleKey,
    candidates: (kernel, bucket) => candidatesOf(options, kernel, bucket),
    records: {
      known: (signature, bucket) => database.known(signature, bucket, target).values(),
      append: (key, bucket, schedule, seconds, failure) => {
        database.append({
          key,
          bucket,
          target,
          schedule,
          seconds: [...seconds],
          ...(failure === undefined ? {} : { failure }),
        });
      },
    },
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(signal === undefined ? {} : { signal }),
    ...(now === undefined ? {} : { now }),
  });
}
