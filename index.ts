/** The public interface: the commands as functions, and what they take and return. */
export { compile, run, tune } from './driver/commands.js';
export type {
  CompileRequest,
  CompileResult,
  RunProgress,
  RunRequest,
  RunResult,
  TuneRequest,
  TuneResult,
  Ui,
} from './driver/requests.js';
export { mergeShards as merge, type Merged, type MergeRequest } from './eval/merge.js';
export { parseInit } from './driver/names.js';
export { Interrupted } from './driver/requests.js';
export { UserError } from './errors.js';
