/** Scores tokenized questions, and keeps every answer as soon as it is known. */
import { inParts, type Parts } from '../system/parts.js';
import { AnswerCollector } from './answers.js';
import type { Computation, Landed } from './computation.js';
import type { Scores } from './metrics.js';
import { keepPaths } from './pathOrder.js';
import { type Progress, Tally } from './progress.js';
import { planQuestions, type QuestionPlan } from './questionPlan.js';
import { batchComputation } from './scoreBatches.js';
import { twoPhaseComputation, walkComputation } from './scorePaths.js';
import type { PathScorer, Scorer } from './scorer.js';
import type { Shard, WorkOf } from './shard.js';
import { type Sharing, treeSharing } from './sharing.js';
import type { Question } from './tasks/task.js';
import { countOrdered, type TokenCounts } from './tokenCounts.js';
import type { TokenizedQuestion } from './tokenize.js';
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
