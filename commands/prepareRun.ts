/** The first step of a run: checks its inputs and reads its questions before anything is compiled or loaded. */
import { modelName } from '../driver/names.js';
import type { RunRequest } from './runRequest.js';
import { UsageError } from '../errors.js';
import { type Dataset, loadDataset, modelFolder, type Task, taskByName, type TaskName } from '../evaluate/index.js';
import { prepareFile, prepareOutput } from '../system/write.js';
import { Interrupted, type ScoreRequest } from './runRequest.js';

export interface PreparedQuestions {
  readonly task: TaskName;
  /** The chosen questions. */
  readonly dataset: Dataset;
  /** Where they are from, for messages. */
  readonly source: string;
  /** The model's name in results, unless that name belongs to another checkpoint. */
  readonly modelName: string;
  /** Stands in for a context without tokens; without it, such a context is refused. */
  readonly prefixToken?: number | undefined;
  /** More sets follow, which the model is to be ready for. */
  readonly isFirst?: boolean | undefined;
}

export interface PreparedRun extends PreparedQuestions {
  readonly task: Task;
}

/** Checks the folders of a run, and names the model. Throws UserError. */
export function prepareFolders(request: ScoreRequest): string {
  const { output, shard } = request;
  if (request.resume && output === undefined)
    throw new UsageError('--resume needs the folder of the run that it continues', 'add --out DIR');
  if (shard !== undefined && output === undefined)
    throw new UsageError('--shard needs a folder: merge joins what the shards write there', 'add --out DIR');
  const name = request.modelName ?? modelName(request.model);
  if (output !== undefined) {
    prepareOutput(modelFolder(output, name));
  }
  if (request.trace !== undefined) prepareFile(request.trace);
  return name;
}

/** Throws UserError if the request, its folders or its questions are invalid. */
export async function prepareRun(request: RunRequest): Promise<PreparedRun> {
  const task = taskByName(request.task);
  const name = prepareFolders(request);
  const { data: path, docs, limit, signal } = request;
  try {
    return { task, modelName: name, source: path, dataset: await loadDataset({ path, task, docs, limit, signal }) };
  } catch (error) {
    if (signal?.aborted === true) throw new Interrupted(0);
    throw error;
  }
}
