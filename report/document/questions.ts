/**
 * The section of questions: numbers of all questions, which are read at once, and texts in blocks of some hundred
 * questions, which are read when they are looked at. A row is a question; rows of a task follow each other.
 */

/** JSON cannot express NaN and infinities. */
export type Likelihood = number | 'nan' | 'inf' | '-inf';

/** What a run answered, by row. */
export interface RunAnswers {
  /** Log-likelihoods of the choices in nats, rounded to four digits; null where the run has no choices for the row. */
  readonly lls: readonly (readonly Likelihood[] | null)[];
  /** The most likely choice, from 0; -1 where there is none. */
  readonly chosen: readonly number[];
  /**
   * By how much the right choice exceeds the best other one, in nats: below 0 where another is more likely. Where the
   * right one is not known, the most likely one takes its place. Null without two numbers.
   */
  readonly margins: readonly (number | null)[];
  /** For each metric of the document, by row: 1 is right, 0 is wrong; null where the row has no such value. */
  readonly values: readonly (readonly (number | null)[])[];
}

export interface QuestionsDocument {
  /** Names of the runs, as in the results. */
  readonly runs: readonly string[];
  readonly tasks: readonly { readonly task: string; readonly firstRow: number; readonly rows: number }[];
  /** `acc`, `acc_norm`, with their filters where these are named. */
  readonly metrics: readonly string[];
  /** Numbers of the questions in their task. */
  readonly docIds: readonly number[];
  /** The right choice, from 0; -1 where it is not known. */
  readonly golds: readonly number[];
  /** By run. */
  readonly answers: readonly RunAnswers[];
  /** First rows of the blocks of texts. */
  readonly blocks: readonly number[];
  /** Questions that are in the files and not on the page. */
  readonly left: number;
}

export interface QuestionText {
  /** What stands before the choices. */
  readonly context: string;
  /** How many characters of it other questions begin with, too: the examples before this one. */
  readonly shots: number;
  readonly choices: readonly string[];
  /** The right answer, where it is a text. */
  readonly target?: string;
  /** Of each run, the texts that it generated. */
  readonly outputs?: readonly (readonly string[])[];
  /** Characters that were too many for the page; -1 where all of its texts are. */
  readonly cut?: number;
}

/** The content of a block of texts, by row from its first. */
export type QuestionTexts = readonly QuestionText[];

export const textsBlock = (block: number): string => `questions.texts.${block}`;

/** As JSON holds it: four digits behind the point. */
export const likelihood = (value: number): Likelihood =>
  Number.isFinite(value) ? Math.round(value * 1e4) / 1e4 : Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';

export const numberOf = (value: Likelihood): number =>
  typeof value === 'number' ? value : value === 'nan' ? NaN : value === 'inf' ? Infinity : -Infinity;
