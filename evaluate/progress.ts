/** The progress of a run, as a terminal shows it. */
import { measure, type Scores } from './metrics.js';
import type { Question } from './tasks/task.js';

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
