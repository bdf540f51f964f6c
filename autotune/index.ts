/** The tuner: schedules for each (kernel, bucket) on the machine at hand. */
export { defaultBuckets } from './buckets.js';
export { kernelWork, moduleWork, type Work, type WorkSize } from './work.js';
export { analyticBucketCost, bucketCostModel, type BucketCost, type BucketSeconds, type Rates } from './bucketCost.js';
export { estimateSeconds, machineModel, type MachineModel } from './costModel.js';
