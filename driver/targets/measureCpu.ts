/** Tunes for a CPU in this process, on the threads that a run would use. */
import { defined } from '../../system/defined.js';
import { machineModel } from '../../autotune/cpu/costModel.js';
import { Measurer } from '../../autotune/cpu/measure.js';
import { CPU_RECORDS, currentTarget } from '../../autotune/cpu/target.js';
import { tuneCpu } from '../../autotune/cpu/tune.js';
import { peaksOf } from '../../autotune/peaks.js';
import { deadline, unlessStopped } from '../../autotune/until.js';
import { defaultDatabasePath, renderTable, TuningDatabase, type TuneResult } from '../../autotune/index.js';
import type { CpuSchedule, LinkedFunction } from '../../ir/plan.js';
import type { Machine } from '../machine.js';
import type { CpuModel } from './cpuModel.js';
import { isIdleSoon } from './measured.js';
import type { MeasureOptions, Tuned } from './target.js';
import { tuneFunctions, type FunctionSearch } from './tuneFunctions.js';

type Options = Omit<MeasureOptions, 'rebuild'>;

/** The most of a function's time that compiling what the database knows may take. */
const SHARE_OF_KNOWN = 0.6;

/**
 * Compiles the kernels that the database has chosen. Those whose times another function has measured are new machine
 * code here, which the end of the budget has no time for.
 */
async function prepareKnown(
  measurer: Measurer,
  fn: LinkedFunction,
  { rows }: TuneResult<CpuSchedule>,
  seconds: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const limit = deadline(seconds, signal);
  try {
    const known = rows.filter(({ bestSeconds }) => bestSeconds !== undefined);
    await unlessStopped(measurer.prepare(fn, known, limit.signal), limit.signal);
  } finally {
    limit.end();
  }
}

export async function measureCpu(
  { plan, device }: CpuModel,
  machine: Machine,
  { budgetSeconds, onProgress, ...options }: Options,
): Promise<Tuned<CpuSchedule>> {
  const begin = performance.now();
  const { isa } = device;
  const { l3Bytes } = machine.cpu;
  const { threads, onActivity, signal } = options;
  const target = await currentTarget(isa, threads);
  const database = TuningDatabase.open(options.database ?? defaultDatabasePath(), CPU_RECORDS);
  let peaks: Awaited<ReturnType<Measurer['peaks']>> | undefined;
  const search = async (
    fn: LinkedFunction,
    { budgetSeconds: share, ...part }: FunctionSearch<CpuSchedule>,
  ): Promise<TuneResult<CpuSchedule>> => {
    const from = performance.now();
    const measurer = new Measurer({
      isa,
      threads,
      capacity: fn.capacity,
      l3Bytes,
      onCompiled: (done, total) => onActivity(done === total ? 'measuring' : `compiled ${done} of ${total} kernels`),
    });
    try {
      if (peaks === undefined) {
        onActivity('measuring the peak');
        peaks = await measurer.peaks();
        database.appendPeaks(target, peaksOf(peaks, 'measured'));
      }
      const request = {
        module: fn,
        buckets: fn.buckets,
        facts: device,
        machine: machineModel({ ...device, l3: l3Bytes }, { isa, threads, ...peaks }),
        capacity: fn.capacity.extents,
        database,
        target,
        measure: measurer.measure,
        ...defined({ signal }),
      };
      const secondsLeft = (): number => Math.max(0, share - (performance.now() - from) / 1000);
      const known = await tuneCpu({ ...request, budgetSeconds: 0 });
      await prepareKnown(measurer, fn, known, SHARE_OF_KNOWN * secondsLeft(), signal);
      return await tuneCpu({ ...request, ...part, budgetSeconds: secondsLeft() });
    } finally {
      if (await isIdleSoon(measurer)) measurer.release();
    }
  };
  try {
    return await tuneFunctions(plan, { budgetSeconds, begin, onProgress }, (rows) => renderTable(rows), search);
  } finally {
    database.close();
  }
}
