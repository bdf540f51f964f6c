/** Sets of questions on their way into a model: read, and packed for the memory that it has or is to get. */
import { packWithCache, withContexts } from '../commands/cachedContexts.js';
import type { LoadedModel, ModelLoading } from '../commands/loadModel.js';
import { keepWithin, mayCutPaths, mayKeepPrefixes, mayNeedCache, tellOfPacking } from '../commands/prefixes.js';
import { type PreparedRun, prepareRun } from '../commands/prepareRun.js';
import { type PackedQuestions, packQuestions, tokenize } from '../commands/questionSet.js';
import { Interrupted } from '../commands/runRequest.js';
import { modelName } from '../driver/names.js';
import { clock } from '../driver/phases.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import type { RunRequest } from '../commands/runRequest.js';
import { UsageError } from '../errors.js';
import { datasetOfRecords, taskByName } from '../evaluate/index.js';
import { inParts } from '../system/text.js';
import { present, type ScoreOptions } from './options.js';

/** A set of questions that has been read. */
export interface AskedSet {
  readonly request: RunRequest;
  readonly prepared: PreparedRun;
  /** Present where the model was compiled for these questions. */
  readonly packed?: PackedQuestions;
  readonly started: Date;
  /** The same moment on the clock of `performance.now()`, milliseconds. */
  readonly begin: number;
}

/** Reads a set. Rejects with UserError where it cannot be read, and with Interrupted. */
export async function readSet(load: LoadRequest, options: ScoreOptions): Promise<AskedSet> {
  const { data, docs, sharing = 'tree', resume = false, onProgress: _, ...rest } = present(options);
  const started = new Date(clock());
  const begin = performance.now();
  const request: RunRequest = {
    ...load,
    ...rest,
    sharing,
    resume,
    data: typeof data === 'string' ? data : '(memory)',
    ...(docs === undefined ? {} : { docs: docs.map(present) }),
  };
  const { signal } = request;
  if (signal?.aborted === true) throw new Interrupted(0);
  const prepared = typeof data === 'string' ? await prepareRun(request) : prepareRecords(request, data);
  return { request, prepared, started, begin };
}

/** Decides, as the command does, what is kept between calls, and compiles the model for it. */
export async function packFor(loading: ModelLoading, set: AskedSet, ui: Ui): Promise<AskedSet> {
  const { request } = set;
  const { questions } = set.prepared.dataset;
  const isChosenByTokens =
    mayKeepPrefixes(request, questions) ||
    request.sharing === 'kv' ||
    (await mayNeedCache(loading, request, questions));
  if (!isChosenByTokens) return set;
  ui.phase('tokenize');
  const packed = await packWithCache(loading, request, await tokenize(set.prepared.dataset, loading));
  tellOfPacking(packed, ui);
  return { ...set, packed };
}

/** A set as the model that is open can take it. */
export async function packWithin(
  model: LoadedModel,
  cores: number,
  { request, prepared }: AskedSet,
): Promise<PackedQuestions> {
  const { target } = model.model;
  const tokens = await tokenize(prepared.dataset, { tokenizer: model.tokenizer, target, cores });
  const packed = await inParts(packQuestions(tokens, request, model.limits, mayCutPaths(request)));
  return request.sharing === 'kv' ? withContexts(packed, model.model) : keepWithin(model, packed, request);
}

function prepareRecords(request: RunRequest, records: Exclude<ScoreOptions['data'], string>): PreparedRun {
  const task = taskByName(request.task);
  const { docs, limit } = request;
  if (request.resume && request.output === undefined)
    throw new UsageError('score: resume needs output, the folder of the run that it continues', 'give output');
  return {
    task,
    source: request.data,
    modelName: request.modelName ?? modelName(request.model),
    dataset: datasetOfRecords(records, { task, docs, limit }),
  };
}
