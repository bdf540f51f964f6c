/** Tunes for a CPU in this process, on the threads that a run would use. */
import { machineModel } from '../../autotune/cpu/costModel.js';
import { Measurer } from '../../autotune/cpu/measure.js';
import { CPU_RECORDS, currentTarget } from '../../autotune/cpu/target.js';
import { tuneCpu } from '../../autotune/cpu/tune.js';
import { defaultDatabasePath, renderTable, statusLine, TuningDatabase } from '../../autotune/index.js';
import { scoreOf, type CpuSchedule } from '../../ir/plan.js';
import type { Machine } from '../machine.js';
import type { CpuModel } from './cpuModel.js';
import { measuredRows, isIdleSoon } from './measured.js';
import type { MeasureOptions, Tuned } from './target.js';

export async function measureCpu(
  { plan: whole, device }: CpuModel,
  machine: Machine,
  { budgetSeconds, threads, onProgress, onActivity, ...options }: Omit<MeasureOptions, 'rebuild'>,
): Promise<Tuned<CpuSchedule>> {
  const begin = performance.now();
  const plan = scoreOf(whole);
  const { isa } = device;
  const { l3Bytes } = machine.cpu;
  const measurer = new Measurer({
    isa,
    threads,
    capacity: plan.capacity,
    l3Bytes,
    onCompiled: (done, total) => onActivity(done === total ? 'measuring' : `compiled ${done} of ${total} kernels`),
  });
  const database = TuningDatabase.open(options.database ?? defaultDatabasePath(), CPU_RECORDS);
  try {
    onActivity('measuring the peak');
    const peaks = await measurer.peaks();
    const search = await tuneCpu({
      module: plan,
      buckets: plan.buckets,
      facts: device,
      machine: machineModel({ ...device, l3: l3Bytes }, { isa, threads, ...peaks }),
      capacity: plan.capacity.extents,
      database,
      target: await currentTarget(isa, threads),
      measure: measurer.measure,
      budgetSeconds: Math.max(0, budgetSeconds - (performance.now() - begin) / 1000),
      onProgress: (progress) => onProgress(renderTable(measuredRows(progress.rows)), statusLine(progress)),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    return { search, table: renderTable(measuredRows(search.rows)) };
  } finally {
    database.close();
    if (await isIdleSoon(measurer)) measurer.release();
  }
}
