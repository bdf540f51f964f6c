/** The last step of a run: results, as files where there is a folder. */
import { formatTable, summariseResults, throughputOf, writeResults, type ResultsInput } from '../eval/index.js';
import { isaOf } from './compile.js';
import type { LoadedModel } from './loadModel.js';
import type { PreparedRun } from './prepareRun.js';
import type { PackedQuestions } from './questionSet.js';
import type { RunRequest, RunResult } from './requests.js';
import type { ScoredSet } from './scoreSet.js';
import { VERSION } from './version.js';

export interface RunReport {
  readonly request: RunRequest;
  readonly prepared: PreparedRun;
  readonly model: Pick<LoadedModel, 'model' | 'devices'>;
  readonly questions: PackedQuestions;
  readonly scored: ScoredSet;
  readonly started: Date;
  /** From the command to the first micro-batch. */
  readonly loadSeconds: number;
}

function resultsInput({ request, prepared, model, questions, scored, started, loadSeconds }: RunReport): ResultsInput {
  const { task, modelName } = prepared;
  const { loaded, shard } = questions;
  const finished = new Set(scored.scores.map(({ docId }) => docId));
  return {
    taskName: task.name,
    taskVersion: task.version,
    modelName,
    config: {
      model: 'tilewright',
      model_args: `model=${request.model},precision=${request.precision}`,
      batch_size: 'auto',
      device: model.model.target,
      arithmetic: model.model.arithmetic,
      isa: isaOf(model.model),
      sharing: request.sharing,
      limit: request.limit ?? null,
    },
    taskConfig: { dataset_path: request.data, dataset_sha256: loaded.sha256 },
    questionsInDataset: loaded.total,
    questions: loaded.questions.filter(({ docId }) => finished.has(docId)),
    scores: scored.scores,
    throughput: throughputOf({
      questions: scored.questionsScored,
      tokensComputed: scored.tokensComputed,
      tokensWithoutSharing: scored.tokensWithoutSharing,
      loadSeconds,
      scoreSeconds: scored.scoreSeconds,
      modelFlops: scored.scorer.modelFlops,
      devices: scored.scorer.timeline.use(model.devices),
    }),
    started,
    finished: new Date(),
    version: VERSION,
    ...(shard === undefined || scored.identity === undefined ? {} : { shard: { ...shard, run: scored.identity } }),
  };
}

/** Throws UserError where the disk refuses. */
export function reportRun(report: RunReport): RunResult {
  const input = resultsInput(report);
  const { output } = report.request;
  if (output === undefined) {
    const results = summariseResults(input);
    return { results, table: formatTable(results), resultsPath: undefined, samplesPath: undefined };
  }
  const { results, resultsPath, samplesPath } = writeResults(output, input);
  return { results, table: formatTable(results), resultsPath, samplesPath };
}
