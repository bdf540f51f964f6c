/** `model.score` and `run`: one set of questions, read, packed for a model, and scored on one that is open. */
import { defined } from '../system/defined.js';
import type { LoadedModel, ModelLoading } from '../commands/loadModel.js';
import {
  keepWithin,
  mayCutPaths,
  mayKeepPrefixes,
  mayNeedCache,
  packWithCache,
  tellOfPacking,
  withContexts,
} from '../commands/prefixes.js';
import { type PackedQuestions, packQuestions, tokenize } from '../commands/questionSet.js';
import { RunReporter } from '../commands/runReporter.js';
import { Interrupted, type RunRequest } from '../commands/runRequest.js';
import { scoreSet } from '../commands/scoreSet.js';
import { openFile, sourceOfQuestions, type TaskSource } from '../commands/sources.js';
import { TaskTotals } from '../commands/taskTotals.js';
import { modelName } from '../driver/names.js';
import { clock } from '../driver/phases.js';
import type { LoadRequest, Ui } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { datasetOfRecords } from '../evaluate/dataset.js';
import { fileTaskByName } from '../evaluate/fileTasks.js';
import { argmax, meanAndError, measure, type Scores } from '../evaluate/metrics.js';
import type { Question } from '../evaluate/question.js';
import type { Results } from '../evaluate/resultTypes.js';
import type { TaskWindow } from '../evaluate/windows.js';
import { counted, inParts } from '../system/text.js';
import { present, type ScoreOptions } from './options.js';
import { uiOf } from './progress.js';

/** A set of questions that has been read. */
export interface AskedSet {
  readonly request: RunRequest;
  readonly source: TaskSource;
  /** All its questions. */
  readonly window: TaskWindow;
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
    ...defined({ docs: docs && docs.map(present) }),
  };
  const { signal } = request;
  if (signal?.aborted === true) throw new Interrupted(0);
  const source = typeof data === 'string' ? await openFile(request) : sourceOfRecords(request, data);
  return { request, source, window: source.file!, started, begin };
}

/** Decides, as the command does, what is kept between calls, and compiles the model for it. */
export async function packFor(loading: ModelLoading, set: AskedSet, ui: Ui): Promise<AskedSet> {
  const { request } = set;
  const { questions } = set.window.dataset;
  const isChosenByTokens =
    mayKeepPrefixes(request, questions) ||
    request.sharing === 'kv' ||
    (await mayNeedCache(loading, request, questions));
  if (!isChosenByTokens) return set;
  ui.phase('tokenize');
  const packed = await packWithCache(loading, request, await tokenize(set.window.dataset, loading));
  tellOfPacking(packed, ui);
  return { ...set, packed };
}

/** A set as the model that is open can take it. */
async function packWithin(model: LoadedModel, cores: number, { request, window }: AskedSet): Promise<PackedQuestions> {
  const { target } = model.model;
  const tokens = await tokenize(window.dataset, { tokenizer: model.tokenizer, target, cores });
  const packed = await inParts(packQuestions(tokens, request, model.limits, mayCutPaths(request)));
  return request.sharing === 'kv' ? withContexts(packed, model.model) : keepWithin(model, packed, request);
}

function sourceOfRecords(request: RunRequest, records: Exclude<ScoreOptions['data'], string>): TaskSource {
  const task = fileTaskByName(request.task);
  const { docs, limit } = request;
  if (request.resume && request.output === undefined)
    throw new UsageError('score: resume needs output, the folder of the run that it continues', 'give output');
  const dataset = datasetOfRecords(records, { task, docs, limit });
  return sourceOfQuestions(task, request.data, request.modelName ?? modelName(request.model), dataset);
}

/** A share of the questions. */
export interface Accuracy {
  readonly value: number;
  /** Standard error of the mean over the sample; undefined for fewer than two questions. */
  readonly standardError: number | undefined;
}

/** The model's answer to one question. */
export interface QuestionAnswer {
  /** Index in the data set, from 0. */
  readonly docId: number;
  readonly choices: readonly string[];
  /** Index of the correct choice. */
  readonly gold: number;
  /** Index of the most likely choice. */
  readonly answer: number;
  /** Natural logarithm of each choice's probability after the context. */
  readonly logLikelihoods: readonly number[];
  /** Whether each token of a choice is the most likely one. */
  readonly isGreedy: readonly boolean[];
}

export interface ScoreResult {
  /** Whether the most likely choice is correct. */
  readonly accuracy: Accuracy;
  /** Whether the most likely choice per character is correct. */
  readonly accuracyNorm: Accuracy;
  readonly answers: readonly QuestionAnswer[];
  /** The contents of results_*.json, in the public harness's layout. */
  readonly results: Results;
  /** Files that were written; undefined without `output`. */
  readonly files: { readonly results: string; readonly samples: string } | undefined;
}

/** The model's memory for keys and values, for a while. */
export type UseCache = <T>(work: () => Promise<T>) => Promise<T>;

/** Scores one set. `useCache` is called where keys and values are kept, which overwrites all memory for them. */
export async function scoreOnce(
  model: LoadedModel,
  cores: number,
  set: AskedSet,
  { onProgress }: Pick<ScoreOptions, 'onProgress'>,
  useCache: UseCache,
): Promise<ScoreResult> {
  const { request, source, window, started, begin } = set;
  const { signal, resume } = request;
  const ui = uiOf(onProgress);
  const questions = set.packed ?? (await packWithin(model, cores, set));
  const loadSeconds = (performance.now() - begin) / 1000;
  const { task, modelName: name } = source;
  ui.phase('score', counted(window.dataset.questions.length, 'question'));
  const { output } = request;
  const to = { task, modelName: name, output, resume, signal };
  const score = () => scoreSet(model, questions, to, ui);
  const scored = await (questions.cacheTokens === undefined ? score() : useCache(score));
  if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
  const reporter = new RunReporter({ request, source, started });
  await reporter.add(
    window,
    { scores: new Map(scored.scores.map((each) => [each.docId, each])), texts: new Map() },
    name,
  );
  const totals = new TaskTotals(request.overlong);
  totals.add({ window, questions, prompts: undefined }, scored);
  const { modelFlops, timeline } = scored.scorer;
  const { results, resultsPath, samplesPath } = reporter.write({
    model,
    modelName: name,
    loadSeconds,
    about: totals.about,
    computed: totals.computed({ modelFlops, devices: timeline.use(model.devices) }),
    identity: scored.identity ?? {},
  });
  return {
    ...answersOf(window.dataset.questions, scored.scores),
    results,
    files:
      resultsPath === undefined || samplesPath === undefined
        ? undefined
        : { results: resultsPath, samples: samplesPath },
  };
}

function answersOf(
  questions: readonly Question[],
  scores: readonly Scores[],
): Pick<ScoreResult, 'accuracy' | 'accuracyNorm' | 'answers'> {
  const byId = new Map(questions.map((question) => [question.docId, question]));
  const pairs = scores.flatMap((each) => {
    const question = byId.get(each.docId);
    return question === undefined ? [] : [{ question, scores: each, metrics: measure(question, each) }];
  });
  const accuracy = (values: readonly number[]): Accuracy => {
    const { mean, stderr } = meanAndError(values);
    return { value: mean, standardError: stderr ?? undefined };
  };
  return {
    accuracy: accuracy(pairs.map(({ metrics }) => metrics.acc)),
    accuracyNorm: accuracy(pairs.map(({ metrics }) => metrics.accNorm)),
    answers: pairs.map(({ question, scores: { docId, ll, greedy } }) => ({
      docId,
      choices: question.choices,
      gold: question.gold,
      answer: argmax(ll),
      logLikelihoods: ll,
      isGreedy: greedy,
    })),
  };
}
