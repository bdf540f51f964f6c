/** The tuner: schedules for each (kernel, bucket) on the machine at hand. */
export { defaultBuckets } from './buckets.js';
export { parseBudget } from './budget.js';
export { kernelWork, moduleWork, type Work, type WorkSize } from './work.js';
export {
  analyticBucketCost,
  bucketCostModel,
  kernelSeconds,
  type BucketCost,
  type BucketSeconds,
  type Rates,
} from './bucketCost.js';
export { estimateSeconds, machineModel, shareOfPeak, type MachineModel } from './costModel.js';
export { enumerateSpace, neighbours, scheduleKey, scheduleSpace, type Space } from './candidates.js';
export { isCandidate, type CpuFacts } from './legality.js';
export {
  defaultDatabasePath,
  median,
  TuningDatabase,
  type Known,
  type TuningRecord,
  type TuningTarget,
} from './database.js';
export { Measurer, type Measure, type MeasureRequest, type Measurement, type MeasurerOptions } from './measure.js';
export { tune, type TuneOptions, type TuneProgress, type TuneResult, type TuneRow } from './search.js';
export { changeLine, formatSeconds, gainOf, LiveTable, renderTable, statusLine, type TableOptions } from './table.js';
export { currentTarget } from './target.js';
