/**
 * Scores tokenised questions: trees, micro-batches, answers. Enough micro-batches are in flight to keep the scorer
 * busy.
 */
import { UserError } from '../errors.js';
import { BatchQueue } from './batchQueue.js';
import type { Scores } from './metrics.js';
import { layBatch, type LaidBatch } from './microBatch.js';
import type { Pack } from './packing.js';
import { Tally, type Progress } from './progress.js';
import { planBatches, planQuestions, type PackedTree, type QuestionPlan } from './questionPlan.js';
import type { ScoredRows, Scorer } from './scorer.js';
import type { Shard, WorkOf } from './shard.js';
import type { Question } from './tasks/task.js';
import { contextOf, type TokenisedQuestion } from './tokenise.js';
import type { Sharing } from './tree.js';

export interface EvaluateOptions {
  readonly questions: readonly Question[];
  /** The same questions, in the same order. */
  readonly tokenised: readonly TokenisedQuestion[];
  readonly scorer: Scorer;
  readonly sharing: Sharing;
  /** Scores the questions of one shard only. */
  readonly shard?: (Shard & { readonly workOf: WorkOf }) | undefined;
  /** The result of planQuestions for the same arguments, if computed ahead. */
  readonly plan?: QuestionPlan | undefined;
  /** Questions that are already finished, by doc_id. They are not scored again. */
  readonly done?: ReadonlyMap<number, Scores>;
  /** Called with groups of finished questions. If it throws, the run ends. */
  readonly onFinished?: (finished: readonly Scores[]) => void;
  readonly onProgress?: (progress: Progress) => void;
  /** File that holds what onFinished saw, for messages; absent where nothing is kept. */
  readonly journal?: string;
  /** Called with warnings; the run continues. */
  readonly onWarning?: (line: string) => void;
  /** Stops after the micro-batches that are being computed. */
  readonly signal?: AbortSignal | undefined;
}

export interface Evaluation {
  /** Finished questions by doc_id: all of the run or shard, unless isInterrupted. */
  readonly scores: readonly Scores[];
  readonly isInterrupted: boolean;
  /**
   * What this call did, without questions that were taken over. Seconds are measured from the first micro-batch to the
   * last.
   */
  readonly questionsScored: number;
  readonly tokensComputed: number;
  readonly tokensWithoutSharing: number;
  readonly microBatches: number;
  readonly scoreSeconds: number;
}

/** A question with some of its choices answered. */
interface Partial {
  readonly ll: number[];
  readonly greedy: boolean[];
  missing: number;
}

/** Collects answers until questions are whole. */
class Collector {
  readonly #questions: readonly TokenisedQuestion[];
  readonly #partial = new Map<number, Partial>();

  constructor(questions: readonly TokenisedQuestion[]) {
    this.#questions = questions;
  }

  /** The questions that these results complete, by doc_id. */
  take(laid: LaidBatch, { logProb, isArgmax }: ScoredRows): Scores[] {
    const finished: Scores[] = [];
    for (const { question, choice, scored } of laid.answers) {
      const source = this.#questions[question];
      if (source === undefined) throw new Error(`no question ${question}`);
      const count = source.continuations.length;
      const partial = this.#partial.get(question) ?? {
        ll: new Array<number>(count).fill(0),
        greedy: new Array<boolean>(count).fill(true),
        missing: count,
      };
      this.#partial.set(question, partial);
      // Added in token order and in float64: the sum does not depend on how the choice was batched.
      let sum = 0,
        isGreedy = true;
      for (const index of scored) {
        sum += logProb[index] ?? NaN;
        isGreedy &&= isArgmax[index] === 1;
      }
      partial.ll[choice] = sum;
      partial.greedy[choice] = isGreedy;
      if (--partial.missing > 0) continue;
      this.#partial.delete(question);
      finished.push({ docId: source.docId, ll: partial.ll, greedy: partial.greedy });
    }
    return finished.sort((a, b) => a.docId - b.docId);
  }

  /** `question 7, choice 2` for each choice that has one of these rows, at most a few. */
  nameRows(laid: LaidBatch, rows: readonly number[]): string {
    const wanted = new Set(rows);
    const hit = laid.answers.filter(({ scored }) => wanted.size === 0 || scored.some((index) => wanted.has(index)));
    const names = hit
      .slice(0, 3)
      .map(({ question, choice }) => `question ${this.#questions[question]?.docId}, choice ${choice}`);
    return `${names.join('; ')}${hit.length > 3 ? ` and ${hit.length - 3} more choices` : ''}`;
  }
}

function nonFinite(
  collector: Collector,
  laid: LaidBatch,
  rows: readonly number[],
  where: string | undefined,
  hint: string,
  cause?: unknown,
): UserError {
  const names = collector.nameRows(laid, rows);
  return new UserError(
    `${names}: a value is NaN or infinite` +
      `${where === undefined ? '' : `, first in ${where}`}` +
      (rows.length === 0 ? ' (one or more of the choices named)' : ''),
    hint,
    { cause },
  );
}

/** Runs one micro-batch and checks the result. */
async function score(scorer: Scorer, laid: LaidBatch, collector: Collector, journal?: string): Promise<ScoredRows> {
  const kept = journal === undefined ? '' : `; finished questions are in ${journal}`;
  const hint = `${scorer.nonFiniteAdvice ?? 'The weights may hold NaN: check the checkpoint'}${kept}`;
  let scored: ScoredRows;
  try {
    scored = await scorer.score(laid.batch);
  } catch (error) {
    if (!(error instanceof Error) || error.name !== 'NonFiniteError') throw error;
    const rows = 'rows' in error && Array.isArray(error.rows) ? (error.rows as readonly number[]) : [];
    throw nonFinite(
      collector,
      laid,
      rows,
      'where' in error && typeof error.where === 'string' ? error.where : undefined,
      hint,
      error,
    );
  }
  const expected = laid.batch.row.length;
  if (scored.logProb.length !== expected || scored.isArgmax.length !== expected) {
    throw new Error(
      `the scorer returned ${scored.logProb.length} log-probabilities and ${scored.isArgmax.length} flags ` +
        `for ${expected} rows`,
    );
  }
  const bad: number[] = [];
  for (let i = 0; i < expected; i++) if (!Number.isFinite(scored.logProb[i])) bad.push(i);
  if (bad.length > 0) throw nonFinite(collector, laid, bad, undefined, hint);
  return scored;
}

/**
 * Scores every question that is not finished. Throws UserError if a choice does not fit the model or a value is NaN.
 * Questions that finish before an error or an interruption are passed to onFinished.
 */
export async function evaluate(options: EvaluateOptions): Promise<Evaluation> {
  const { questions, tokenised, scorer, sharing, signal } = options;
  if (questions.length !== tokenised.length)
    throw new Error(`${questions.length} questions, ${tokenised.length} tokenised`);
  const plan = options.plan ?? planQuestions(options);
  const byId = new Map(questions.map((question) => [question.docId, question]));
  const own = new Set(plan.trees.flatMap(({ paths }) => paths.map(({ question }) => tokenised[question]?.docId)));
  const all = new Map<number, Scores>();
  const tally = new Tally(own.size);
  const finish = (scores: Scores): void => {
    const question = byId.get(scores.docId);
    if (question === undefined || !own.has(scores.docId)) return;
    all.set(scores.docId, scores);
    tally.add(question, scores);
  };
  for (const scores of options.done?.values() ?? []) finish(scores);

  const isLeft = tokenised.map(({ docId }) => own.has(docId) && !all.has(docId));
  const trees = plan.trees.filter(({ paths }) => paths.some(({ question }) => isLeft[question]));
  const tokensTotal = trees.reduce((sum, { tokens }) => sum + tokens, 0);
  const packs = trees.length === plan.trees.length ? plan.packs : planBatches(trees, scorer);
  const collector = new Collector(tokenised);
  const estimateTotal = packs.reduce((sum, pack) => sum + pack.seconds, 0);
  let tokensDone = 0,
    estimateDone = 0,
    batchesDone = 0,
    questionsScored = 0;
  const started = performance.now();
  const elapsed = (): number => (performance.now() - started) / 1000;
  const report = (): void =>
    options.onProgress?.(
      tally.progress({
        tokensDone,
        tokensTotal,
        estimateDone,
        estimateTotal,
        elapsed: elapsed(),
      }),
    );
  report();

  /** A micro-batch that is being computed. `ended` never rejects; errors come from `scored`. */
  interface Flight {
    readonly pack: Pack<PackedTree>;
    readonly laid: LaidBatch;
    readonly scored: Promise<ScoredRows>;
    readonly ended: Promise<Flight>;
  }
  const flights = new Set<Flight>();
  const launch = (pack: Pack<PackedTree>): void => {
    const laid = layBatch(
      pack.items.map(({ paths }) => paths),
      sharing,
    );
    const scored = score(scorer, laid, collector, options.journal);
    const flight: Flight = {
      pack,
      laid,
      scored,
      ended: scored.then(
        () => flight,
        () => flight,
      ),
    };
    flights.add(flight);
  };
  const land = ({ pack, laid }: Flight, scored: ScoredRows): void => {
    const finished = collector.take(laid, scored).filter(({ docId }) => !all.has(docId));
    options.onFinished?.(finished);
    finished.forEach(finish);
    questionsScored += finished.length;
    tokensDone += pack.tokens;
    estimateDone += pack.seconds;
    batchesDone++;
    report();
  };

  const queue = new BatchQueue(packs, scorer, options.onWarning);
  /** If the device ran out of memory, there is no result and halves are put back into the queue. */
  const resultOf = async ({ pack, scored }: Flight): Promise<ScoredRows | undefined> => {
    try {
      return await scored;
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'OutOfDeviceMemory') throw error;
      queue.returnHalved(pack, error);
      return undefined;
    }
  };
  const fill = (): void => {
    while (!isAborted(signal) && flights.size < Math.max(1, scorer.inFlight)) {
      const pack = queue.take();
      if (pack === undefined) return;
      launch(pack);
    }
  };

  let canKeep = true;
  const keep = (flight: Flight, scored: ScoredRows): void => {
    canKeep = false;
    land(flight, scored);
    canKeep = true;
  };
  try {
    for (fill(); flights.size > 0;) {
      const flight = await Promise.race([...flights].map(({ ended }) => ended));
      flights.delete(flight);
      const scored = await resultOf(flight);
      // The event loop turns once per micro-batch, so that Ctrl-C works even if scoring never waits.
      await new Promise((resolve) => setImmediate(resolve));
      fill();
      if (scored !== undefined) keep(flight, scored);
    }
  } finally {
    // After an error the scorer may still be at work on memory that the caller is about to release; and what other
    // devices have finished is kept, unless keeping is what failed.
    for (const flight of flights) {
      const scored = await flight.scored.catch(() => undefined);
      if (scored !== undefined && canKeep) keep(flight, scored);
    }
  }
  const isInterrupted = all.size < own.size;
  const scores = [...all.values()].sort((a, b) => a.docId - b.docId);
  const scoreSeconds = elapsed();
  const tokensWithoutSharing = tokenised
    .filter(({ docId }, i) => isLeft[i] === true && all.has(docId))
    .reduce((sum, question) => sum + unsharedTokens(question), 0);
  return {
    scores,
    isInterrupted,
    questionsScored,
    tokensComputed: tokensDone,
    tokensWithoutSharing,
    microBatches: batchesDone,
    scoreSeconds,
  };
}

/** Tokens of a question if each choice is a separate sequence. */
const unsharedTokens = (question: TokenisedQuestion): number =>
  question.continuations.reduce((sum, tokens, i) => sum + contextOf(question, i).length + tokens.length - 1, 0);

/** A function, because the signal changes while the loop waits. */
const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true;
