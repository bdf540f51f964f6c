/** The tuner: chooses schedules for each (kernel, bucket) on this machine. Target-specific parts are in subfolders. */
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
export { TuningDatabase } from './database.js';
export { defaultDatabasePath } from './databaseFile.js';
export type { Known } from './records.js';
export { median } from './median.js';
export type { Measure, Measurement, MeasureRequest } from './measurement.js';
export type { TuneProgress, TuneResult, TuneRow } from './search.js';
export { changeLine, formatSeconds, gainOf, LiveTable, renderTable, statusLine, type TableOptions } from './table.js';
