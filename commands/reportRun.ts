/** The last step of a run: its results, written to files if there is a folder. */
import { createHash } from 'node:crypto';
import { clock } from '../driver/phases.js';
import { VERSION } from '../driver/program.js';
import {
  formatTable,
  type Question,
  type Results,
  type ResultsInput,
  summarizeResults,
  writeResults,
} from '../evaluate/index.js';
import type { TokenSource } from '../evaluate/tokenLines.js';
import type { PreparedRun } from './prepareRun.js';
import type { PackedQuestions } from './questionSet.js';
import { computedBy, provenanceOf, questionFacts, ratesOf, type RunFacts, settingsOf } from './runFacts.js';
import { recordOf } from './runRecord.js';
import type { RunRequest, RunResult } from './runRequest.js';
import type { ScoredSet } from './scoreSet.js';

export interface RunReport extends Pick<RunFacts, 'model' | 'loadSeconds' | 'start'> {
  readonly request: RunRequest;
  readonly prepared: PreparedRun;
  readonly questions: PackedQuestions;
  readonly scored: ScoredSet;
  readonly tokens?: TokenSource | undefined;
  /** The model's name in results. */
  readonly modelName: string;
  readonly started: Date;
}

const questionsHash = (questions: readonly Question[]): string => {
  const hash = createHash('sha256');
  for (const { docId, context, choices, gold, delimiter } of questions)
    hash.update(JSON.stringify([docId, context, choices, gold, delimiter]));
  return hash.digest('hex');
};

function resultsInput(report: RunReport): ResultsInput {
  const { request, prepared, modelName, questions, scored, started } = report;
  const { task } = prepared;
  const { loaded, shard } = questions;
  const facts = { ...report, about: questionFacts(questions), computed: computedBy(scored, report.model.devices) };
  const finished = new Set(scored.scores.map(({ docId }) => docId));
  return {
    taskName: task.name,
    taskVersion: task.version,
    modelName,
    config: settingsOf(report, 0),
    taskConfig: { dataset_path: request.data, dataset_sha256: loaded.sha256 },
    provenance: {
      ...provenanceOf(facts, request.data, questionsHash(loaded.questions)),
      record: recordOf(request, report.model),
    },
    questionsInDataset: loaded.total,
    questions: loaded.questions.filter(({ docId }) => finished.has(docId)),
    scores: scored.scores,
    tokens: report.tokens,
    throughput: ratesOf(facts),
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
    const results = summarizeResults(input);
    return { results, table: formatTable(results), resultsPath: undefined, samplesPath: undefined };
  }
  const { results, resultsPath, samplesPath } = writeResults(output, input);
  return { results, table: formatTable(results), resultsPath, samplesPath };
}
