/** Scores tokenized questions, and keeps every answer as soon as it is known. */
import { defined } from '../system/defined.js';
import { inParts, type Parts } from '../system/text.js';
import { prepareOutput } from '../system/write.js';
import { AnswerCollector, type Computation, type Landed } from './answers.js';
import type { Dataset } from './dataset.js';
import { checkJournal, Journal, journalPath, type RunIdentity } from './journal.js';
import { measure, type Scores } from './metrics.js';
import { countOrdered, keepPaths, type TokenCounts } from './pathOrder.js';
import type { Question, TaskName } from './question.js';
import { planQuestions, type QuestionPlan } from './questionPlan.js';
import { batchComputation } from './scoreBatches.js';
import { twoPhaseComputation, walkComputation } from './scorePaths.js';
import { type PathScorer, type Scorer, type Sharing, treeSharing } from './scorer.js';
import { printDocs } from './selection.js';
import { checkResumedShard, resultsFolder, type WorkOf } from './shard.js';
import { type Shard, shardName } from './shardName.js';
import { tokenizeAll, type TokenizedQuestion, type TokenizeOptions } from './tokenize.js';
import { type Turn, Turns } from './turns.js';

export interface EvaluateOptions {
  readonly questions: readonly Question[];
  /** The same questions, in the same order. */
  readonly tokenized: readonly TokenizedQuestion[];
  readonly scorer: Scorer;
  readonly sharing: Sharing;
  /** Scores the questions of one shard only. */
  readonly shard?: (Shard & { readonly workOf: WorkOf }) | undefined;
  /** The result of planQuestions for the same arguments, if computed ahead. */
  readonly plan?: QuestionPlan | undefined;
  /**
   * If given, common beginnings are computed once and kept, or contexts with sharing `kv`, which needs it. Of `plan`
   * only its list of questions is used then.
   */
  readonly pathScorer?: PathScorer | undefined;
  /** Questions that are already finished, by doc_id. They are not scored again. */
  readonly done?: ReadonlyMap<number, Scores>;
  /** Called with groups of finished questions. If it throws, the run ends. */
  readonly onFinished?: (finished: readonly Scores[]) => void;
  readonly onProgress?: (progress: Progress) => void;
  /** File that holds what onFinished saw, for messages; absent where nothing is kept. */
  readonly journal?: string;
  /** Called with warnings; the run continues. */
  readonly onWarning?: (line: string) => void;
  /** Stops after the calls that are being computed. */
  readonly signal?: AbortSignal | undefined;
  /** Its place among sets that are computed one behind another; alone by default. */
  readonly turn?: Turn | undefined;
  /** Scores name the log-probability of every token. */
  readonly keepsTokens?: boolean | undefined;
}

export interface Evaluation {
  /** Finished questions by doc_id: all of the run or shard, unless isInterrupted. */
  readonly scores: readonly Scores[];
  readonly isInterrupted: boolean;
  /**
   * What this call did, without questions that were taken over. Seconds are measured from the first micro-batch, or
   * from the end of the set before, to the last. A call over kept keys and values counts as a micro-batch.
   */
  readonly questionsScored: number;
  readonly tokensComputed: number;
  /** What other ways would have computed for the same questions. */
  readonly tokenCounts: TokenCounts;
  readonly microBatches: number;
  readonly scoreSeconds: number;
}

/**
 * Scores every question that is not finished. Throws UserError if a choice does not fit the model or a value is NaN.
 * Questions that finish before an error or an interruption are passed to onFinished.
 */
export async function evaluate(options: EvaluateOptions): Promise<Evaluation> {
  const { questions, tokenized } = options;
  if (questions.length !== tokenized.length)
    throw new Error(`${questions.length} questions, ${tokenized.length} tokenized`);
  const plan = options.plan ?? (await inParts(planQuestions(options)));
  const turn = options.turn ?? new Turns().next();
  const byId = new Map(questions.map((question) => [question.docId, question]));
  const nothing = withoutChoices(options);
  const own = new Set([...plan.questions.map((question) => tokenized[question]!.docId), ...nothing]);
  const all = new Map<number, Scores>();
  const tally = new Tally(own.size);
  const finish = (scores: Scores): void => {
    const question = byId.get(scores.docId);
    if (question === undefined || !own.has(scores.docId)) return;
    all.set(scores.docId, scores);
    tally.add(question, scores);
  };
  for (const scores of options.done?.values() ?? []) finish(scores);
  for (const docId of nothing) finish({ docId, ll: [], greedy: [] });

  const isLeft = tokenized.map(({ docId }) => own.has(docId) && !all.has(docId));
  const computation = await inParts(computationOf(options, plan, isLeft));
  const { tokensTotal, estimateTotal } = computation;
  const collector = new AnswerCollector(tokenized, options.keepsTokens);
  let tokensDone = 0,
    estimateDone = 0,
    callsDone = 0,
    questionsScored = 0;
  const report = (): void =>
    options.onProgress?.(
      tally.progress({ tokensDone, tokensTotal, estimateDone, estimateTotal, elapsed: turn.seconds }),
    );
  report();
  let canKeep = true;
  const land = ({ scored, rows, tokens, seconds }: Landed): void => {
    if (!canKeep) return;
    canKeep = false;
    const finished = collector.take(scored, rows).filter(({ docId }) => !all.has(docId));
    options.onFinished?.(finished);
    finished.forEach(finish);
    questionsScored += finished.length;
    tokensDone += tokens;
    estimateDone += seconds;
    callsDone++;
    report();
    canKeep = true;
  };
  const { journal, signal, onWarning } = options;
  const computed = computation.compute({ collector, turn, journal, signal, onWarning, land });
  // It is awaited below; a set without walks is ordered meanwhile.
  computed.catch(() => undefined);
  const ordered = await inParts(plan.order());
  await computed;
  const scoreSeconds = turn.seconds;
  turn.close();
  const scores = [...all.values()].sort((a, b) => a.docId - b.docId);
  const isScored = tokenized.map(({ docId }, i) => isLeft[i] === true && all.has(docId));
  const tokenCounts = countOrdered(keepPaths(ordered, ({ question }) => isScored[question] === true));
  return {
    scores,
    isInterrupted: all.size < own.size,
    questionsScored,
    tokensComputed: tokensDone,
    tokenCounts,
    microBatches: callsDone,
    scoreSeconds,
  };
}

/** Documents that ask nothing, such as empty texts: they are finished. One shard has them. */
const withoutChoices = ({ tokenized, shard }: EvaluateOptions): number[] =>
  shard !== undefined && shard.index > 1
    ? []
    : tokenized.flatMap(({ docId, continuations }) => (continuations.length === 0 ? [docId] : []));

function* computationOf(
  { tokenized, scorer, pathScorer, sharing }: EvaluateOptions,
  plan: QuestionPlan,
  isLeft: readonly boolean[],
): Parts<Computation> {
  const isTwoPhase = sharing === 'kv';
  if (pathScorer !== undefined) {
    const options = { tokenized, plan, scorer: pathScorer };
    return isTwoPhase ? twoPhaseComputation(options, isLeft) : yield* walkComputation(options, isLeft);
  }
  if (isTwoPhase) throw new Error('sharing kv needs a model that keeps keys and values');
  if (plan.oversized.length > 0)
    throw new Error('paths that fit no micro-batch need a model that keeps keys and values');
  return yield* batchComputation({ plan, scorer, sharing: treeSharing(sharing) }, isLeft);
}

/** The progress of a run, as a terminal shows it. */

export interface Progress {
  /** Finished questions, including those taken over from a journal. */
  readonly questionsDone: number;
  readonly questionsTotal: number;
  /** Finished questions that have a right choice. */
  readonly questionsMeasured: number;
  /** Tokens computed by this process, and how many it will have computed at the end. */
  readonly tokensDone: number;
  readonly tokensTotal: number;
  /** Fractions of the finished questions with a right choice; 0 if there are none. */
  readonly runningAcc: number;
  readonly runningAccNorm: number;
  /** null until the first micro-batch has finished. */
  readonly secondsLeft: number | null;
  readonly tokensPerSecond: number;
}

/** Work and wall time so far. The time left assumes that estimated costs are right up to a constant factor. */
export interface Work {
  readonly tokensDone: number;
  readonly tokensTotal: number;
  /** Estimated seconds of the finished micro-batches, and of all. */
  readonly estimateDone: number;
  readonly estimateTotal: number;
  /** Measured seconds since scoring began. */
  readonly elapsed: number;
}

/** Counts correct answers as questions finish. */
export class Tally {
  readonly #questionsTotal: number;
  #questions = 0;
  /** Those with a right choice. */
  #measured = 0;
  #acc = 0;
  #accNorm = 0;

  constructor(questionsTotal: number) {
    this.#questionsTotal = questionsTotal;
  }

  add(question: Question, scores: Scores): void {
    this.#questions++;
    if (question.gold < 0) return;
    const metrics = measure(question, scores);
    this.#measured++;
    this.#acc += metrics.acc;
    this.#accNorm += metrics.accNorm;
  }

  progress({ tokensDone, tokensTotal, estimateDone, estimateTotal, elapsed }: Work): Progress {
    const share = (count: number): number => (this.#measured > 0 ? count / this.#measured : 0);
    const left =
      estimateDone > 0
        ? (elapsed / estimateDone) * (estimateTotal - estimateDone)
        : tokensDone > 0
          ? (elapsed / tokensDone) * (tokensTotal - tokensDone)
          : null;
    return {
      questionsDone: this.#questions,
      questionsTotal: this.#questionsTotal,
      questionsMeasured: this.#measured,
      tokensDone,
      tokensTotal,
      runningAcc: share(this.#acc),
      runningAccNorm: share(this.#accNorm),
      secondsLeft: left === null ? null : Math.max(0, left),
      tokensPerSecond: elapsed > 0 ? tokensDone / elapsed : 0,
    };
  }
}

/** A whole evaluation: questions to tokens, tokens to answers with a journal, answers to files. */

export interface LoadedQuestions extends Dataset {
  readonly tokenized: readonly TokenizedQuestion[];
  /** Tokens that the tokenizer adds to every text. */
  readonly addedTokens: readonly number[];
}

/** Start it before the model loads and await it after. Throws UserError. */
export async function tokenizeDataset(dataset: Dataset, options: TokenizeOptions): Promise<LoadedQuestions> {
  const { questions: tokenized, added } = await tokenizeAll(dataset.questions, options);
  return { ...dataset, tokenized, addedTokens: added };
}

export interface ScoreOptions extends Pick<
  EvaluateOptions,
  'keepsTokens' | 'onProgress' | 'onWarning' | 'pathScorer' | 'plan' | 'shard' | 'signal' | 'turn'
> {
  readonly task: TaskName;
  readonly loaded: LoadedQuestions;
  readonly scorer: Scorer;
  readonly sharing: Sharing;
  /**
   * The folder given with --out; The journal and results go to its subfolder for the model, those of a shard one level
   * deeper.
   */
  readonly out: string;
  readonly modelName: string;
  /**
   * What else determines the answers: hashes of model and tokenizer, arithmetic, options. Task, questions and sharing
   * are added.
   */
  readonly identity: RunIdentity;
  readonly resume: boolean;
  /** Called with the new name of an earlier run's journal if it had to be renamed. */
  readonly onKept?: (path: string, kept: { readonly path: string; readonly questions: number }) => void;
}

export interface Scored extends Evaluation {
  readonly journal: string;
  /** Questions taken over from the journal. */
  readonly questionsResumed: number;
  /** What must agree for answers of different shards to be merged. */
  readonly identity: RunIdentity;
}

/** What a journal says of its questions. */
const identityOf = (task: TaskName, { sha256, docs, questions }: Dataset, sharing: Sharing): RunIdentity => ({
  task: task.name,
  taskVersion: task.version,
  dataset: sha256,
  sharing,
  docs: printDocs(docs),
  questions: questions.length,
});

/**
 * Refuses to resume with the journal of another run, before anything is compiled or tokenized. `identity`: what is
 * known of the model by then. Throws UserError.
 */
export function checkResumed(
  options: Pick<ScoreOptions, 'out' | 'modelName' | 'task' | 'sharing' | 'identity'> & {
    readonly shard: Shard | undefined;
    readonly dataset: Dataset;
  },
): void {
  const { out, modelName, shard, task, dataset, sharing, identity } = options;
  checkResumedShard(out, modelName, { task: task.name, dataset: dataset.sha256 }, shard);
  checkJournal(journalPath(resultsFolder(out, modelName, shard), task.name, dataset.sha256), {
    ...identity,
    ...identityOf(task, dataset, sharing),
  });
}

/** Scores with a journal. The journal is closed and on disk when this returns or throws. */
export async function scoreQuestions(options: ScoreOptions): Promise<Scored> {
  const { task, loaded, scorer, pathScorer, sharing, shard, plan, keepsTokens, onProgress, onWarning, signal, turn } =
    options;
  if (options.resume)
    checkResumedShard(options.out, options.modelName, { task: task.name, dataset: loaded.sha256 }, shard);
  const folder = resultsFolder(options.out, options.modelName, shard);
  prepareOutput(folder);
  const identity: RunIdentity = {
    ...options.identity,
    ...identityOf(task, loaded, sharing),
  };
  const journal = new Journal({
    path: journalPath(folder, task.name, loaded.sha256),
    resume: options.resume,
    choices: new Map(loaded.tokenized.map(({ docId, continuations }) => [docId, continuations.length])),
    identity: { ...identity, ...defined({ shard: shard && shardName(shard) }) },
  });
  // Answers without tokens, of a run that kept none, are computed again where tokens are asked for.
  const done =
    keepsTokens === true ? new Map([...journal.done].filter(([, { tokens }]) => tokens !== undefined)) : journal.done;
  if (journal.kept !== undefined) options.onKept?.(journal.path, journal.kept);
  try {
    const evaluation = await evaluate({
      questions: loaded.questions,
      tokenized: loaded.tokenized,
      scorer,
      pathScorer,
      sharing,
      shard,
      plan,
      done,
      keepsTokens,
      journal: journal.path,
      signal,
      turn,
      onFinished: (finished) => journal.append(finished),
      ...defined({ onProgress, onWarning }),
    });
    return { ...evaluation, journal: journal.path, questionsResumed: done.size, identity };
  } finally {
    journal.close();
  }
}
