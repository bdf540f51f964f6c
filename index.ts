/** The library. docs/library.md shows its use. */
export { compile, openModel, quantize, run, tune } from './library/index.js';
export type { Accuracy, Model, QuestionAnswer, ScoreResult } from './library/index.js';
export { openEngine } from './library/engine.js';
export type { Engine, InputEnd, RewardEvent, RowEvent, UnloadOptions } from './library/engine.js';
export type { GenerateEvent } from './library/generate.js';
export type { SearchEvent } from './library/search.js';
export type { ProblemResult } from './search/result.js';
export type {
  CompileOptions,
  EngineGenerateOptions,
  EngineOptions,
  EngineSearchOptions,
  GenerateOptions,
  ModelOptions,
  QuantizeOptions,
  RewardOptions,
  RowsOptions,
  RunOptions,
  ScoreOptions,
  TuneOptions,
} from './library/options.js';
export type { ProgressEvent, ProgressListener } from './library/progress.js';
export type { MatrixReport, QuantizeResult } from './commands/quantize.js';
export { type RunProgress } from './driver/requests.js';
export { Interrupted } from './commands/runRequest.js';
export type { CompileResult } from './commands/compile.js';
export type { TuneResult } from './commands/tune.js';
export { mergeShards as merge, type Merged, type MergeRequest } from './evaluate/merge.js';
export { compare } from './commands/compare.js';
export type { Comparison } from './evaluate/compare/compareRuns.js';
export type { DatasetRecord } from './evaluate/dataset.js';
export type { Results, Throughput } from './evaluate/resultTypes.js';
export { DeadlinePassed, QueueFull } from './engine/engine.js';
export { UsageError, UserError } from './errors.js';
