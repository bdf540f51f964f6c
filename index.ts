/** The library. docs/library.md shows its use. */
export { compile, openModel, quantize, run, tune } from './library/index.js';
export type { Accuracy, Model, QuestionAnswer, ScoreResult } from './library/index.js';
export type { GenerateEvent } from './library/generate.js';
export type {
  CompileOptions,
  GenerateOptions,
  ModelOptions,
  QuantizeOptions,
  RunOptions,
  ScoreOptions,
  TuneOptions,
} from './library/options.js';
export type { ProgressEvent, ProgressListener } from './library/progress.js';
export type { MatrixReport, QuantizeResult } from './commands/quantize.js';
export { Interrupted, type CompileResult, type RunProgress, type TuneResult } from './driver/requests.js';
export { mergeShards as merge, type Merged, type MergeRequest } from './evaluate/merge.js';
export { compareRuns as compare, type Comparison } from './evaluate/compare/compareRuns.js';
export type { DatasetRecord } from './evaluate/dataset.js';
export type { Results, Throughput } from './evaluate/resultTypes.js';
export { UsageError, UserError } from './errors.js';
