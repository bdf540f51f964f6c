/** The results of a run as files, in the public harness's layout with a `throughput` block. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { defined } from '../system/defined.js';
import { writeAtomically } from '../system/write.js';
import { meanAndError, type QuestionMetrics } from './metrics.js';
import { sanitiseModelName } from './output.js';
import type {
  Results,
  ResultsHeader,
  ResultsInput,
  SampleTotals,
  StandardError,
  Throughput,
  WrittenResults,
} from './resultTypes.js';
import { makeSample, toJson } from './samples.js';
import { resultsFolder } from './shard.js';
import { tokenLine } from './tokenLines.js';

/** The delimiter between a context and a choice: the same for every task. */
export const DELIMITER = ' ';

/** The harness's names of the metrics, best known first. */
const METRICS = [
  { name: 'acc', field: 'acc' },
  { name: 'acc_norm', field: 'accNorm' },
] as const;

/** `2026-01-31T10-20-30.123000`: an ISO date in UTC without characters that file systems refuse. */
export const fileDate = (date: Date): string => `${date.toISOString().slice(0, -1).replaceAll(':', '-')}000`;

export const samplesName = (task: string, date: string): string => `samples_${task}_${date}.jsonl`;
export const tokensName = (task: string, date: string): string => `tokens_${task}_${date}.jsonl`;
export const resultsName = (date: string): string => `results_${date}.json`;

function taskResults(
  input: ResultsHeader,
  metrics: readonly QuestionMetrics[],
): Record<string, StandardError | string> {
  const block: Record<string, StandardError | string> = {
    name: input.taskName,
    alias: input.taskName,
    sample_len: metrics.length,
  };
  for (const { name, field } of METRICS) {
    const { mean, stderr } = meanAndError(metrics.map((question) => question[field]));
    block[`${name},none`] = mean;
    block[`${name}_stderr,none`] = stderr ?? 'N/A';
  }
  return block;
}

/**
 * The metrics that are reported, as the public harness's task configurations list them. Tools that read its results
 * rely on this.
 */
const METRIC_LIST = METRICS.map(({ name }) => ({ metric: name, aggregation: 'mean', higher_is_better: true }));

/** The content of results_*.json. */
export function buildResults(input: ResultsHeader, { metrics, taskHash, samplesHash }: SampleTotals): Results {
  const { taskName, modelName } = input;
  const seconds = (input.finished.getTime() - input.started.getTime()) / 1000;
  const isBetter = Object.fromEntries(METRICS.map(({ name }) => [name, true]));
  return {
    results: { [taskName]: taskResults(input, metrics) },
    group_subtasks: { [taskName]: [] },
    configs: {
      [taskName]: {
        task: taskName,
        ...input.taskConfig,
        description: '',
        target_delimiter: DELIMITER,
        fewshot_delimiter: '\n\n',
        num_fewshot: 0,
        metric_list: METRIC_LIST,
        output_type: 'multiple_choice',
        repeats: 1,
        should_decontaminate: false,
        metadata: { version: input.taskVersion },
      },
    },
    versions: { [taskName]: input.taskVersion },
    'n-shot': { [taskName]: 0 },
    higher_is_better: { [taskName]: isBetter },
    'n-samples': { [taskName]: { original: input.questionsInDataset, effective: metrics.length } },
    config: input.config,
    git_hash: input.version,
    date: input.started.getTime() / 1000,
    task_hashes: { [taskName]: taskHash },
    samples_sha256: { [taskName]: samplesHash },
    max_length: input.provenance.context_length,
    provenance: input.provenance,
    model_source: 'tilewright',
    model_name: modelName,
    model_name_sanitized: sanitiseModelName(modelName),
    start_time: input.started.getTime() / 1000,
    end_time: input.finished.getTime() / 1000,
    total_evaluation_time_seconds: String(seconds),
    throughput: input.throughput,
    ...defined({ shard: input.shard }),
  };
}

/** Aggregates the samples of a run. Lines are made one at a time: together they are larger than the question set. */
class SampleSummary {
  readonly metrics: QuestionMetrics[] = [];
  readonly #taskHash = createHash('sha256');
  readonly #samplesHash = createHash('sha256');

  /** The lines of samples_*.jsonl by doc_id. They are aggregated as they are read. */
  *lines({ questions, scores }: ResultsInput): Generator<string> {
    const byId = new Map(scores.map((entry) => [entry.docId, entry]));
    for (const question of questions.slice().sort((a, b) => a.docId - b.docId)) {
      const entry = byId.get(question.docId);
      if (entry === undefined) throw new Error(`question ${question.docId} has not been scored`);
      const sample = makeSample(question, entry);
      this.metrics.push(sample.metrics);
      this.#taskHash.update(sample.hashes);
      this.#samplesHash.update(sample.line);
      yield sample.line;
    }
  }

  /** Call after all lines are read. */
  results(input: ResultsInput): Results {
    return buildResults(input, {
      metrics: this.metrics,
      taskHash: this.#taskHash.digest('hex'),
      samplesHash: this.#samplesHash.digest('hex'),
    });
  }
}

/** The results of a run that writes nothing. */
export function summarizeResults(input: ResultsInput): Results {
  const summary = new SampleSummary();
  for (const _line of summary.lines(input));
  return summary.results(input);
}

/**
 * Writes samples_<task>_<date>.jsonl, ordered by doc_id, then results_<date>.json, each whole or not at all, into
 * `<out>/<model>/`, or a shard's folder there. Throws UserError if writing fails.
 */
export function writeResults(out: string, input: ResultsInput): WrittenResults {
  const summary = new SampleSummary();
  return writeFiles(out, input, summary.lines(input), () => summary.results(input), AGAIN, tokenLines(input));
}

const AGAIN =
  'Free some space or fix the folder, then run the same command with --resume: finished questions are in the journal';

/** The lines of tokens_*.jsonl by doc_id; undefined where they are not asked for. */
function tokenLines({ scores, tokens }: ResultsInput): Iterable<string> | undefined {
  if (tokens === undefined) return undefined;
  const sorted = scores.slice().sort((a, b) => a.docId - b.docId);
  return (function* () {
    for (const each of sorted) yield tokenLine(each.docId, each.docId, each, tokens) ?? '';
  })();
}

/** The samples first, then the results that are computed from them. `hint`: what to do where the disk refuses. */
export function writeFiles(
  out: string,
  header: ResultsHeader,
  samples: Iterable<string>,
  resultsOf: () => Results,
  hint: string,
  tokens?: Iterable<string>,
): WrittenResults {
  const folder = resultsFolder(out, header.modelName, header.shard);
  const date = fileDate(header.finished);
  const samplesPath = join(folder, samplesName(header.taskName, date));
  writeAtomically(samplesPath, samples, hint);
  if (tokens !== undefined) writeAtomically(join(folder, tokensName(header.taskName, date)), tokens, hint);
  const results = resultsOf();
  const resultsPath = join(folder, resultsName(date));
  writeAtomically(resultsPath, [`${toJson(results, 2)}\n`], hint);
  return { results, resultsPath, samplesPath };
}

/** The throughput block from the measurements. Rates over no time are 0. */
export function throughputOf(measured: Omit<Throughput, 'questionsPerSecond' | 'tokensPerSecond'>): Throughput {
  const { questions, tokensComputed, scoreSeconds, devices, start } = measured;
  const rate = (count: number): number => (scoreSeconds > 0 ? count / scoreSeconds : 0);
  return {
    questions,
    tokensComputed,
    tokensWithoutSharing: measured.tokensWithoutSharing,
    tokensGrouped: measured.tokensGrouped,
    tokensShared: measured.tokensShared,
    loadSeconds: measured.loadSeconds,
    scoreSeconds,
    questionsPerSecond: rate(questions),
    tokensPerSecond: rate(tokensComputed),
    modelFlops: measured.modelFlops,
    ...defined({ devices, start }),
  };
}
