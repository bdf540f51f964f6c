/** Tuning on a CPU: the search in search.ts over this machine's schedule grids, ranked by its cost model. */
import type { CpuFacts } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/scheduling.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket, CpuSchedule } from '../../ir/plan.js';
import type { TuningDatabase } from '../database.js';
import { searchSchedules, type Candidates, type SearchRequest, type TuneResult } from '../search.js';
import { kernelWork, sizeOf } from '../work.js';
import { enumerateSpace, neighbours, scheduleSpace } from './candidates.js';
import { scheduleCost, shareOfPeak, type MachineModel } from './costModel.js';
import type { CpuTuningTarget } from './target.js';

export interface CpuTuneOptions extends SearchRequest<CpuSchedule> {
  /** What default schedules and legality are derived from. */
  readonly facts: CpuFacts;
  readonly machine: MachineModel;
  readonly database: TuningDatabase<CpuSchedule, CpuTuningTarget>;
  readonly target: CpuTuningTarget;
}

function candidatesOf(
  { module, facts, machine }: { module: KernelModule; facts: CpuFacts; machine: MachineModel },
  kernel: Kernel,
  bucket: Bucket,
): Candidates<CpuSchedule> {
  const { key } = cpuScheduling;
  const start = cpuScheduling.default(kernel, module, facts, bucket);
  const space = scheduleSpace(kernel, module, start, facts, bucket);
  const work = kernelWork(kernel, module, sizeOf(bucket));
  return {
    start,
    work,
    cost: scheduleCost(kernel, module, sizeOf(bucket), machine),
    mayUse: (schedule) =>
      key(schedule) === key(start) ||
      (schedule.isa === start.isa && cpuScheduling.legality(kernel, module, schedule, facts) === true),
    enumerate: () => enumerateSpace(space),
    neighbours: (from) => neighbours(space, from),
    shareOfPeak: (seconds) => shareOfPeak(work, machine, seconds),
  };
}

/** searchSchedules on this machine. Measurements are stored in the database under the target's name. */
export function tuneCpu({
  facts,
  machine,
  database,
  target,
  ...request
}: CpuTuneOptions): Promise<TuneResult<CpuSchedule>> {
  const { module } = request;
  return searchSchedules<CpuSchedule>({
    ...request,
    keyOf: cpuScheduling.key,
    candidates: (kernel, bucket) => candidatesOf({ module, facts, machine }, kernel, bucket),
    records: database.recordsFor(target),
  });
}
