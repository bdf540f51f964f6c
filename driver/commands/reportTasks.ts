/** The last step of a run of tasks: results_*.json, and samples_*.jsonl of each task. */
import { join } from 'node:path';
import { resultsFolder } from '../../eval/index.js';
import type { GroupAnswers, TaskAnswers } from '../../eval/harness/answers.js';
import { buildTaskResults, type TasksHeader } from '../../eval/harness/results.js';
import { jsonOf } from '../../eval/harness/config.js';
import { sampleLines } from '../../eval/harness/samples.js';
import { formatTasks } from '../../eval/harness/table.js';
import { fileDate, resultsName, samplesName } from '../../eval/results.js';
import { BOOTSTRAP_DRAWS } from '../../tasks/scores/aggregate.js';
import { SEEDS } from '../../tasks/requests/seeds.js';
import { writeAtomically } from '../../system/write.js';
import { clock } from '../phases.js';
import type { RunResult, TasksRequest } from '../requests.js';
import { VERSION } from '../version.js';
import type { PreparedTasks } from './prepareTasks.js';
import { provenanceOf, ratesOf, settingsOf, type RunFacts } from './runFacts.js';
import type { GeneratedTexts } from './taskWriting.js';

export interface TasksReport extends RunFacts {
  readonly request: TasksRequest;
  readonly prepared: PreparedTasks;
  readonly modelName: string;
  readonly tasks: readonly TaskAnswers[];
  readonly groups: readonly GroupAnswers[];
  readonly started: Date;
  /** The chat template that prompts were written with. */
  readonly template: string | undefined;
  readonly generated: GeneratedTexts | undefined;
  /** Prompts of generated texts that lost their beginning. */
  readonly truncatedPrompts: number;
}

const AGAIN =
  'Free some space or fix the folder, then run the same command with --resume: finished documents are in the journal';

const textsIn = ({ texts }: GeneratedTexts): number => [...texts.values()].flat(2).length;

const generationOf = ({ generated }: TasksReport): TasksHeader['generation'] =>
  generated && { ...generated.counts, texts: textsIn(generated), seconds: generated.seconds };

/** Settings that only tasks have, under the names of the public harness. */
const askedOf = ({ seeds = SEEDS, generation }: TasksRequest): TasksHeader['config'] => ({
  gen_kwargs: generation === undefined ? null : jsonOf(generation),
  random_seed: seeds.python,
  numpy_seed: seeds.numpy,
  torch_seed: seeds.torch,
  fewshot_seed: seeds.fewshot,
});

/** Throws UserError if a file cannot be written. */
export function reportTasks(report: TasksReport): RunResult {
  const { request, modelName, tasks, groups, started } = report;
  const finished = new Date(clock());
  const { loaded } = report.questions;
  const results = buildTaskResults(
    {
      modelName,
      config: { ...settingsOf(report, BOOTSTRAP_DRAWS), ...askedOf(request) },
      provenance: provenanceOf(report, request.dataRoot ?? '', loaded.sha256, report.truncatedPrompts),
      throughput: ratesOf(report),
      systemInstruction: request.systemInstruction ?? null,
      chatTemplate: report.template ?? null,
      fewshotAsMultiturn: report.template === undefined ? null : request.isMultiturn !== false,
      generation: generationOf(report),
      started,
      finished,
      version: VERSION,
    },
    tasks,
    groups,
  );
  const table = formatTasks(tasks, groups);
  const { output } = request;
  if (output === undefined) return { results, table, resultsPath: undefined, samplesPath: undefined };
  const { resultsStem } = request;
  const folder = resultsStem === undefined ? resultsFolder(output, modelName) : output;
  const date = fileDate(finished);
  const paths = tasks.map((each) => join(folder, samplesName(each.task.name, date)));
  const logs = request.logsSamples !== false;
  if (logs) tasks.forEach((each, i) => writeAtomically(paths[i]!, sampleLines(each), AGAIN));
  const resultsPath = join(folder, resultsStem === undefined ? resultsName(date) : `${resultsStem}_${date}.json`);
  writeAtomically(resultsPath, [`${JSON.stringify(results, null, 2)}\n`], AGAIN);
  return { results, table, resultsPath, samplesPath: logs ? samplesShown(paths, folder, date) : undefined };
}

const samplesShown = (paths: readonly string[], folder: string, date: string): string =>
  paths.length === 1 ? paths[0]! : join(folder, samplesName('*', date));
