/** `model.score` and `run`: one set of questions, on a model that is open. */
import type { LoadedModel } from '../commands/loadModel.js';
import { reportRun } from '../commands/reportRun.js';
import { Interrupted } from '../commands/runRequest.js';
import { scoreSet } from '../commands/scoreSet.js';
import { argmax, meanAndError, measure, type Question, type Results, type Scores } from '../evaluate/index.js';
import { counted } from '../system/text.js';
import { type AskedSet, packWithin } from './askedSet.js';
import type { ScoreOptions } from './options.js';
import { uiOf } from './progress.js';

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
  const { request, prepared, started, begin } = set;
  const { signal, resume } = request;
  const ui = uiOf(onProgress);
  const questions = set.packed ?? (await packWithin(model, cores, set));
  const loadSeconds = (performance.now() - begin) / 1000;
  const { modelName: name } = prepared;
  ui.phase('score', counted(prepared.dataset.questions.length, 'question'));
  const { output } = request;
  const to = { task: prepared.task, modelName: name, output, resume, signal };
  const score = () => scoreSet(model, questions, to, ui);
  const scored = await (questions.cacheTokens === undefined ? score() : useCache(score));
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
