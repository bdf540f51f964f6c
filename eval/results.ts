/** The results of a run as files, in the public harness's layout with a `throughput` block. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import type { RunIdentity } from './journal.js';
import { meanAndError, type QuestionMetrics, type Scores } from './metrics.js';
import { writeAtomically } from '../system/write.js';
import { sanitiseModelName } from './output.js';
import { resultsFolder, type Shard } from './shard.js';
import { makeSample, toJson } from './samples.js';
import type { Question } from './tasks/task.js';
import type { Overlong } from './pathLengths.js';
import { tokenLine, type TokenSource } from './tokenLines.js';

/** What this process did and how fast. A resumed run counts only its own part. */
export interface Throughput {
  readonly questions: number;
  readonly tokensComputed: number;
  /** Tokens if every choice were a sequence of its own. */
  readonly tokensWithoutSharing: number;
  /** Tokens if choices with equal inputs were one sequence, as those of one letter are. */
  readonly tokensGrouped: number;
  /** Tokens if every common beginning of all these questions were computed once. */
  readonly tokensShared: number;
  /** Seconds from start to the first micro-batch: dataset, tokens, weights, kernels. */
  readonly loadSeconds: number;
  readonly scoreSeconds: number;
  readonly questionsPerSecond: number;
  /** tokensComputed / scoreSeconds */
  readonly tokensPerSecond: number;
  /** Floating-point operations of the model on the tokens and rows computed. */
  readonly modelFlops: number;
  /** What each device did while questions were scored, if known. */
  readonly devices?: readonly DeviceUse[] | undefined;
}

/** How a device spent the time between the first and the last computation of any device. */
export interface DeviceUse {
  /** From 0. */
  readonly device: number;
  readonly computeSeconds: number;
  /** Seconds of sending results to the next stage. This may overlap with computing. */
  readonly copySeconds: number;
  /** computeSeconds divided by the whole time, 0 to 1. The device was idle for the rest. */
  readonly busyShare: number;
}

/** Everything that answers depend on. Hashes are hex SHA-256. */
export interface Provenance {
  /** Identity of the checkpoint: a hash of its contents. */
  readonly checkpoint: string;
  readonly checkpoint_path: string;
  readonly tokenizer_sha256: string;
  /** Tokens that the tokenizer adds to every text: its beginning-of-text token, or none. Nothing else is added. */
  readonly bos_tokens: readonly number[];
  /** Tokens. */
  readonly context_length: number;
  /** What happened to choices that were too long with their context, and their number. */
  readonly overlong: Overlong;
  readonly truncated_choices: number;
  readonly dataset_path: string;
  readonly dataset_sha256: string;
  /** Numbers of the questions, as --docs takes them, how many they are, and a hash of their texts. */
  readonly docs: string;
  readonly questions: number;
  readonly questions_sha256: string;
}

/** The part of a run that the results cover, and what must agree for parts to be merged. */
export interface ShardOfRun extends Shard {
  readonly run: RunIdentity;
}

export interface ResultsInput extends ResultsHeader {
  /** Of all questions, or of those of the shard. */
  readonly questions: readonly Question[];
  readonly scores: readonly Scores[];
  /** What tokens_*.jsonl is made of, where it is asked for. */
  readonly tokens?: TokenSource | undefined;
}

/** Everything but the questions. */
export interface ResultsHeader {
  readonly taskName: string;
  readonly taskVersion: number;
  /** As the user named it; its sanitised form names the folder. */
  readonly modelName: string;
  /**
   * Fields of the `config` block: model, model_args, batch_size, device, limit, precision, sharing … Nothing volatile.
   */
  readonly config: Readonly<Record<string, string | number | boolean | null>>;
  /** Fields of the task's block under `configs`: dataset hash, path … Nothing volatile. */
  readonly taskConfig: Readonly<Record<string, string | number | boolean | null>>;
  /** What was scored, and with what: enough to repeat it. */
  readonly provenance: Provenance;
  /** Questions in the dataset, before --docs and --limit. */
  readonly questionsInDataset: number;
  readonly throughput: Throughput;
  /** Wall-clock time at the start of the command, and now. */
  readonly started: Date;
  readonly finished: Date;
  /** Version of this program, in place of the harness's git hash. */
  readonly version: string;
  readonly shard?: ShardOfRun | undefined;
}

/** The delimiter between a context and a choice: the same for every task. */
export const DELIMITER = ' ';

/** Standard errors need two questions; the harness writes "N/A" for fewer. */
type StandardError = number | 'N/A';

/** The parsed content of results_*.json. */
export interface Results {
  readonly results: Readonly<Record<string, Readonly<Record<string, StandardError | string>>>>;
  readonly versions: Readonly<Record<string, number>>;
  readonly 'n-shot': Readonly<Record<string, number>>;
  readonly higher_is_better: Readonly<Record<string, Readonly<Record<string, boolean>>>>;
  readonly throughput: Throughput;
  readonly [field: string]: unknown;
}

export interface WrittenResults {
  readonly results: Results;
  readonly resultsPath: string;
  readonly samplesPath: string;
}

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

/** Of all samples, in their order. */
export interface SampleTotals {
  readonly metrics: readonly QuestionMetrics[];
  /** Hash of the hashes of documents, prompts and targets. */
  readonly taskHash: string;
  /** Hash of the whole file. */
  readonly samplesHash: string;
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
    ...(input.shard === undefined ? {} : { shard: input.shard }),
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
export function summariseResults(input: ResultsInput): Results {
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
  const { questions, tokensComputed, scoreSeconds, devices } = measured;
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
    ...(devices === undefined ? {} : { devices }),
  };
}
