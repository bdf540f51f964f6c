/** The first step of a run: its inputs are checked and its questions read, before anything is compiled or loaded. */
import { dirname, resolve } from 'node:path';
import { UserError } from '../errors.js';
import { checkResumedShard, loadDataset, resultsFolder, taskByName, type Dataset, type Task } from '../eval/index.js';
import { prepareOutput } from '../system/write.js';
import { modelName } from './names.js';
import type { RunRequest } from './requests.js';

export interface PreparedRun {
  readonly task: Task;
  /** The chosen questions. */
  readonly dataset: Dataset;
  /** The model's name in results. */
  readonly modelName: string;
}

/** Throws UserError for whatever is wrong with the request, its folders or its questions. */
export async function prepareRun(request: RunRequest): Promise<PreparedRun> {
  const task = taskByName(request.task);
  const { output, shard } = request;
  if (request.resume && output === undefined)
    throw new UserError('--resume needs the folder of the run that it continues', 'add --out DIR');
  if (shard !== undefined && output === undefined)
    throw new UserError('--shard needs a folder: merge joins what the shards write there', 'add --out DIR');
  const name = modelName(request.model);
  if (output !== undefined) {
    if (request.resume) checkResumedShard(output, name, task.name, shard);
    prepareOutput(resultsFolder(output, name, shard));
  }
  if (request.trace !== undefined) prepareOutput(dirname(resolve(request.trace)));
  const { data: path, docs, limit, signal } = request;
  const dataset = await loadDataset({ path, task, docs, limit, signal });
  return { task, dataset, modelName: name };
}
