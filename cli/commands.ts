/** What the command line calls. Tests hand in fakes. */
import type { ContinueListener } from '../commands/continueAll.js';
import type { Conversation, ConverseRequest } from '../commands/converse.js';
import type { Check } from '../commands/doctorProbes.js';
import type { Explored, ExploreRequest } from '../commands/explore/exploreModel.js';
import type { GenerateRequest, GenerateResult } from '../commands/generate.js';
import type { Inspection, InspectRequest } from '../commands/inspect.js';
import type { ErrorReport, ErrorRequest } from '../commands/inspectError.js';
import type { TaskNames } from '../commands/listTasks.js';
import type { PrintedPrompt, PrintRequest } from '../commands/printPrompts.js';
import type { QuantizeRequest, QuantizeResult } from '../commands/quantize.js';
import type { WriteReportRequest, WrittenReport } from '../commands/report.js';
import type {
  CompileRequest,
  CompileResult,
  RunRequest,
  RunResult,
  TasksRequest,
  TuneRequest,
  TuneResult,
  Ui,
} from '../driver/requests.js';
import type { Asked } from '../driver/targets/precision.js';
import type { Comparison } from '../evaluate/compare/compareRuns.js';
import type { Merged, MergeRequest } from '../evaluate/index.js';

/** A command rejects with UserError where the user can act; with anything else once its signal is aborted. */
export interface Commands {
  compile(request: Asked<CompileRequest>, ui: Ui): Promise<CompileResult>;
  tune(request: TuneRequest, ui: Ui): Promise<TuneResult>;
  run(request: Asked<RunRequest>, ui: Ui): Promise<RunResult>;
  runTasks(request: Asked<TasksRequest>, ui: Ui): Promise<RunResult>;
  generate(request: Asked<GenerateRequest>, ui: Ui, listener: ContinueListener): Promise<GenerateResult>;
  converse(request: Asked<ConverseRequest>, ui: Ui): Promise<Conversation>;
  printPrompts(request: PrintRequest, tell: (prompt: PrintedPrompt) => void): Promise<void>;
  merge(request: MergeRequest): Promise<Merged>;
  /** Folders or files of results. */
  compare(request: { readonly a: string; readonly b: string }): Promise<Comparison>;
  /** Results as a page. */
  report(request: WriteReportRequest): Promise<WrittenReport>;
  quantize(request: QuantizeRequest, ui: Ui): Promise<QuantizeResult>;
  inspect(request: Asked<InspectRequest>): Promise<Inspection>;
  explore(request: Asked<ExploreRequest>): Promise<Explored>;
  inspectError(request: ErrorRequest): Promise<ErrorReport>;
  listTasks(includePaths: readonly string[]): Promise<TaskNames>;
  doctor(): Promise<readonly Check[]>;
  /** Processors to use where --threads is absent. */
  cores(): number;
}
