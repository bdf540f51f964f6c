/** The last step of a run: its results, written to files if there is a folder. */
import { createHash } from 'node:crypto';
import {
  formatTable,
  printDocs,
  summariseResults,
  throughputOf,
  writeResults,
  type Provenance,
  type Question,
  type Results,
  type ResultsInput,
} from '../../eval/index.js';
import { checkpointId, type LoadedModel } from './loadModel.js';
import { clock } from '../phases.js';
import type { PreparedRun } from './prepareRun.js';
import type { PackedQuestions } from './questionSet.js';
import type { RunRequest, RunResult } from '../requests.js';
import type { ScoredSet } from './scoreSet.js';
import { VERSION } from '../version.js';

export interface RunReport {
  readonly request: RunRequest;
  readonly prepared: PreparedRun;
  /** The model's name in results. */
  readonly modelName: string;
  readonly model: Pick<LoadedModel, 'model' | 'devices' | 'reference' | 'tokenizer' | 'limits'>;
  readonly questions: PackedQuestions;
  readonly scored: ScoredSet;
  readonly started: Date;
  /** Seconds from the command to the first micro-batch. */
  readonly loadSeconds: number;
}

const questionsHash = (questions: readonly Question[]): string => {
  const hash = createHash('sha256');
  for (const { docId, context, choices, gold, delimiter } of questions)
    hash.update(JSON.stringify([docId, context, choices, gold, delimiter]));
  return hash.digest('hex');
};

const provenanceOf = ({ request, model, questions }: RunReport): Provenance => ({
  checkpoint: checkpointId(model),
  checkpoint_path: model.reference.path,
  tokenizer_sha256: model.tokenizer.hash,
  bos_tokens: questions.loaded.addedTokens,
  context_length: model.limits.contextLength,
  overlong: questions.overlong ?? 'truncate',
  truncated_choices: questions.truncatedChoices,
  dataset_path: request.data,
  dataset_sha256: questions.loaded.sha256,
  docs: printDocs(questions.loaded.docs),
  questions: questions.loaded.questions.length,
  questions_sha256: questionsHash(questions.loaded.questions),
});

function resultsInput(report: RunReport): ResultsInput {
  const { request, prepared, modelName, model, questions, scored, started, loadSeconds } = report;
  const { task } = prepared;
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
      device: model.model.target.name,
      arithmetic: model.model.arithmetic,
      isa: model.model.isa,
      sharing: request.sharing,
      limit: request.limit ?? null,
      bootstrap_iters: 0,
      fewshot_seed: 1234,
    },
    taskConfig: { dataset_path: request.data, dataset_sha256: loaded.sha256 },
    provenance: provenanceOf(report),
    questionsInDataset: loaded.total,
    questions: loaded.questions.filter(({ docId }) => finished.has(docId)),
    scores: scored.scores,
    throughput: throughputOf({
      questions: scored.questionsScored,
      tokensComputed: scored.tokensComputed,
      tokensWithoutSharing: scored.tokenCounts.alone,
      tokensGrouped: scored.tokenCounts.grouped,
      tokensShared: scored.tokenCounts.shared,
      loadSeconds,
      scoreSeconds: scored.scoreSeconds,
      modelFlops: scored.scorer.modelFlops,
      devices: scored.scorer.timeline.use(model.devices),
    }),
    started,
    finished: new Date(clock()),
    version: VERSION,
    ...(shard === undefined || scored.identity === undefined ? {} : { shard: { ...shard, run: scored.identity } }),
  };
}

/** Throws UserError if the files cannot be written. */
export function reportRun(report: RunReport): RunResult & { readonly results: Results } {
  const input = resultsInput(report);
  const { output } = report.request;
  if (output === undefined) {
    const results = summariseResults(input);
    return { results, table: formatTable(results), resultsPath: undefined, samplesPath: undefined };
  }
  const { results, resultsPath, samplesPath } = writeResults(output, input);
  return { results, table: formatTable(results), resultsPath, samplesPath };
}
