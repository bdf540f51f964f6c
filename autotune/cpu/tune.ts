/** Tuning on a CPU: the search in search.ts over this machine's schedule grids, ranked by its cost model. */
import { arch } from 'node:os';
import { z } from 'zod';
import { type CpuFacts, templatesHash } from '../../codegen/cpu/index.js';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import type { Bucket, CpuIsa, CpuSchedule } from '../../ir/plan.js';
import { loadAddon } from '../../runtime/addon.js';
import { findCompiler } from '../../runtime/cpu/systemCompiler.js';
import { readSettings, type Settings } from '../../settings.js';
import type { TuningDatabase } from '../database.js';
import { recordDigest, type RecordFormat, recordText, recordVersion } from '../records.js';
import { type Candidates, type SearchRequest, type SearchResult, searchSchedules } from '../search.js';
import { kernelWork, sizeOf } from '../work.js';
import { enumerateSpace, neighbours, scheduleSpace } from './candidates.js';
import { type CpuMachine, cpuCost, cpuShareOfPeak } from './costModel.js';

export interface CpuTuneOptions extends SearchRequest<CpuSchedule> {
  /** What default schedules and legality are derived from. */
  readonly facts: CpuFacts;
  readonly machine: CpuMachine;
  readonly database: TuningDatabase<CpuSchedule, CpuTuningTarget>;
  readonly target: CpuTuningTarget;
}

function candidatesOf(
  { module, facts, machine }: { module: KernelModule; facts: CpuFacts; machine: CpuMachine },
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
    cost: cpuCost(kernel, module, sizeOf(bucket), machine),
    mayUse: (schedule) =>
      key(schedule) === key(start) ||
      (schedule.isa === start.isa && cpuScheduling.legality(kernel, module, schedule, facts) === true),
    enumerate: () => enumerateSpace(space),
    neighbours: (from) => neighbours(space, from),
    shareOfPeak: (seconds) => cpuShareOfPeak(work, machine, seconds),
  };
}

/** searchSchedules on this machine. Measurements are stored in the database under the target's name. */
export function tuneCpu({
  facts,
  machine,
  database,
  target,
  ...request
}: CpuTuneOptions): Promise<SearchResult<CpuSchedule>> {
  const { module } = request;
  return searchSchedules<CpuSchedule>({
    ...request,
    keyOf: cpuScheduling.key,
    candidates: (kernel, bucket) => candidatesOf({ module, facts, machine }, kernel, bucket),
    records: database.recordsFor(target),
  });
}

const schema = z.strictObject({
  /** Architecture and the strongest instruction set in the plan: `x64/avx512`. */
  isa: recordText,
  cpu: recordText,
  threads: z.int().min(1).max(4096),
  /** First line of the compiler's --version. */
  compiler: recordText,
  /** TW_ABI of generated kernels. */
  abi: recordVersion,
  /** Digest of the templates that kernels are printed from. */
  codegen: recordDigest,
});
export type CpuTuningTarget = z.infer<typeof schema>;

export const CPU_RECORDS: RecordFormat<CpuSchedule, CpuTuningTarget> = {
  field: 'target',
  target: schema,
  scheduling: cpuScheduling,
};

const short = (text: string): string => text.slice(0, 200) || 'unknown';

/** What a measurement depends on that does not change from run to run: not the compiler, and not the threads. */
export function thisCpu(isa: CpuIsa): Pick<CpuTuningTarget, 'isa' | 'cpu' | 'abi' | 'codegen'> {
  const addon = loadAddon();
  return { isa: `${arch()}/${isa}`, cpu: short(addon.cpuInfo().model), abi: addon.abi, codegen: templatesHash() };
}

/** This machine, its compiler and the kernel ABI. Throws UserError if the addon or a compiler is missing. */
export async function cpuTarget(
  isa: CpuIsa,
  threads: number,
  settings: Settings = readSettings(),
): Promise<CpuTuningTarget> {
  const compiler = await findCompiler(settings);
  return { ...thisCpu(isa), threads, compiler: short(compiler.version) };
}
