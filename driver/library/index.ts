/** The library: models that stay open and score any number of question sets. See docs/library.md. */
import { UsageError } from '../../errors.js';
import { counted } from '../../system/format.js';
import {
  argmax,
  datasetOfRecords,
  meanAndError,
  measure,
  taskByName,
  type Question,
  type Scores,
} from '../../eval/index.js';
import type { Results } from '../../eval/index.js';
import { beginLoading, type LoadedModel } from '../commands/loadModel.js';
import { settleTarget, compile as compileModel, tune as tuneArtifact } from '../commands/index.js';
import { eventsOf, ModelGenerator, type GenerateEvent } from './generate.js';
import { checkOptions, present } from './options.js';
import type {
  CompileOptions,
  GenerateOptions,
  ModelOptions,
  RunOptions,
  ScoreOptions,
  TuneOptions,
} from './options.js';
import { uiOf } from './progress.js';
import { detectMachine } from '../machine.js';
import { modelName, parseInit, type WeightInit } from '../names.js';
import { clock, Phases } from '../phases.js';
import { prepareRun, type PreparedRun } from '../commands/prepareRun.js';
import { withContexts } from '../commands/cachedContexts.js';
import { packQuestions, tokenise } from '../commands/questionSet.js';
import { reportRun } from '../commands/reportRun.js';
import { Interrupted, type CompileResult, type LoadRequest, type RunRequest, type TuneResult } from '../requests.js';
import { scoreSet } from '../commands/scoreSet.js';

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

/** A model loaded onto its devices. */
export interface Model {
  /** Instruction set or GPU architecture: `avx512`, `cuda:sm_90a`. */
  readonly isa: string;
  readonly arithmetic: 'bf16' | 'f16' | 'f32';
  /** Longest context, in tokens. */
  readonly contextLength: number;
  /** Scores a set of questions. Overlapping calls run one after another. */
  score(options: ScoreOptions): Promise<ScoreResult>;
  /**
   * Continues prompts; needs `cacheTokens` of `openModel`, or an artifact with a cache. Calls that overlap are computed
   * together. Leaving the loop ends the work.
   */
  generate(options: GenerateOptions): AsyncGenerator<GenerateEvent, void, undefined>;
  /** Releases devices and memory when the current scoring is done. */
  close(): Promise<void>;
}

const initOf = (text: string | undefined): WeightInit =>
  text === undefined ? { kind: 'checkpoint' } : parseInit(text);

/** The result of `work`, or Interrupted as soon as the signal is aborted. A late result is passed to `late`. */
async function unlessAborted<T>(
  signal: AbortSignal | undefined,
  work: Promise<T>,
  late: (value: T) => void,
): Promise<T> {
  if (signal === undefined) return work;
  let stop = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    stop = () => {
      work.then(late, () => undefined);
      reject(new Interrupted(0));
    };
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Compiles a model, or reads an artifact, and loads it. Rejects with UserError if the user can fix the problem. */
export async function openModel(options: ModelOptions): Promise<Model> {
  checkOptions('openModel', options);
  const { init, target, precision = 'auto', threads, onProgress, signal, ...rest } = present(options);
  const ui = uiOf(onProgress);
  const phases = new Phases();
  const asked = { ...rest, init: initOf(init), precision, threads: threads ?? detectMachine().cpu.cores };
  const load = async (): Promise<{ readonly request: LoadRequest; readonly loaded: LoadedModel; cores: number }> => {
    const chosen = await settleTarget({ ...asked, ...(target === undefined ? {} : { target }) }, ui);
    const request: LoadRequest = { ...asked, ...chosen };
    if (signal?.aborted === true) throw new Interrupted(0);
    const loading = beginLoading(request, ui, phases);
    return { request, loaded: await loading.finish(), cores: loading.cores };
  };
  const { request, loaded, cores } = await unlessAborted(signal, load(), ({ loaded: late }) => void late.close());
  return modelOf(request, loaded, cores);
}

function modelOf(request: LoadRequest, loaded: LoadedModel, cores: number): Model {
  let last: Promise<unknown> = Promise.resolve();
  let closed: Promise<void> | undefined;
  const { model } = loaded;
  let generator: ModelGenerator | undefined;
  const requireOpen = (name: string): void => {
    if (closed !== undefined)
      throw new UsageError(`${name}: the model is closed`, 'open it again: await openModel({ … })');
  };
  return {
    isa: model.isa,
    arithmetic: model.arithmetic,
    contextLength: loaded.limits.contextLength,
    async score(options) {
      checkOptions('score', options);
      requireOpen('score');
      const result = last.then(() => scoreOnce(request, loaded, cores, options));
      last = result.catch(() => undefined);
      return result;
    },
    generate: (options) =>
      eventsOf((tell, stopped) => {
        checkOptions('generate', options);
        requireOpen('generate');
        const own = (generator ??= new ModelGenerator(loaded));
        const signals = [stopped, ...(options.signal === undefined ? [] : [options.signal])];
        const work = own.run(options, AbortSignal.any(signals), tell);
        last = Promise.allSettled([last, work]);
        return work;
      }),
    close: () =>
      (closed ??= last.then(async () => {
        await generator?.close();
        await loaded.close();
      })),
  };
}

async function scoreOnce(
  load: LoadRequest,
  model: LoadedModel,
  cores: number,
  options: ScoreOptions,
): Promise<ScoreResult> {
  const { data, docs, sharing = 'tree', resume = false, onProgress, ...rest } = present(options);
  const ui = uiOf(onProgress);
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
  const target = model.model.target;
  const tokens = await tokenise(prepared.dataset, { tokenizer: model.tokenizer, target, cores });
  const packed = packQuestions(tokens, request, model.limits);
  const questions = sharing === 'kv' ? withContexts(packed, model.model) : packed;
  const loadSeconds = (performance.now() - begin) / 1000;
  const { modelName: name } = prepared;
  ui.phase('score', counted(prepared.dataset.questions.length, 'question'));
  const { output } = request;
  const to = { task: prepared.task, modelName: name, output, resume, signal };
  const scored = await scoreSet(model, questions, to, ui);
  if (scored.isInterrupted) throw new Interrupted(scored.scores.length);
  const report = { request, prepared, modelName: name, model, questions, scored, started, loadSeconds };
  const { results, resultsPath, samplesPath } = reportRun(report);
  return {
    ...answersOf(prepared.dataset.questions, scored.scores),
    results,
    files:
      resultsPath === undefined || samplesPath === undefined
        ? undefined
        : { results: resultsPath, samples: samplesPath },
  };
}

function prepareRecords(request: RunRequest, records: Exclude<ScoreOptions['data'], string>): PreparedRun {
  const task = taskByName(request.task);
  const { docs, limit } = request;
  if (request.resume && request.output === undefined)
    throw new UsageError('score: resume needs output, the folder of the run that it continues', 'give output');
  return {
    task,
    modelName: request.modelName ?? modelName(request.model),
    dataset: datasetOfRecords(records, { task, docs, limit }),
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

/** Opens a model, scores one set of questions and closes it. */
export async function run(options: RunOptions): Promise<ScoreResult> {
  checkOptions('run', options);
  const { task, data, sharing, overlong, docs, limit, output, modelName: name, resume, ...load } = options;
  const { signal, onProgress } = options;
  const model = await openModel(load);
  try {
    return await model.score({
      task,
      data,
      sharing,
      overlong,
      docs,
      limit,
      output,
      modelName: name,
      resume,
      signal,
      onProgress,
    });
  } finally {
    await model.close();
  }
}

/** Checkpoint to artifact. */
export async function compile(options: CompileOptions): Promise<CompileResult> {
  checkOptions('compile', options);
  const { init, precision = 'auto', onProgress, ...rest } = present(options);
  return compileModel({ ...rest, init: initOf(init), precision }, uiOf(onProgress));
}

/** Better schedules for an artifact, measured on this machine; five minutes unless told otherwise. */
export async function tune(options: TuneOptions): Promise<TuneResult> {
  checkOptions('tune', options);
  const { budgetSeconds = 300, threads = detectMachine().cpu.cores, onProgress, ...rest } = present(options);
  return tuneArtifact({ ...rest, budgetSeconds, threads }, uiOf(onProgress));
}
