/** The section of comparisons: each run beside the first one. Differences are the other run less the first. */
import type { Likelihood } from './questions.js';
import type { Interval } from './results.js';

export interface MetricRow {
  /** A task or a group. */
  readonly name: string;
  readonly metric: string;
  readonly questions: number;
  readonly first: number;
  readonly other: number;
  readonly difference: number;
  readonly interval: Interval | null;
  readonly test: string | null;
  readonly p: number | null;
  /** Right before and wrong now, and the other way; null where values are no shares. */
  readonly lost: number | null;
  readonly gained: number | null;
  readonly isHigherBetter: boolean | null;
}

export interface LikelihoodRow {
  readonly task: string;
  readonly count: number;
  readonly equal: number;
  readonly notFinite: number;
  readonly meanAbsolute: number;
  readonly mean: number;
  readonly worst: { readonly difference: number; readonly docId: number; readonly choice: number } | null;
}

export interface QuestionsInBoth {
  readonly task: string;
  readonly common: number;
  readonly onlyFirst: number;
  readonly onlyOther: number;
  readonly renumbered: number;
  readonly otherContent: number;
  readonly otherPrompt: number;
}

export interface ChoicesChanged {
  readonly task: string;
  readonly questions: number;
  readonly changed: number;
  /** The median lead of the choice in the first run, of questions that changed, and of all, in nats; null: of none. */
  readonly leadOfChanged: Likelihood | null;
  readonly lead: Likelihood | null;
}

export interface RunComparison {
  /** Places in the page's list of runs. */
  readonly first: number;
  readonly other: number;
  readonly summary: string;
  readonly verdicts: readonly string[];
  /** What the two were given that is not the same. */
  readonly unlike: readonly { readonly what: string; readonly first: string; readonly other: string }[];
  readonly onlyFirst: readonly string[];
  readonly onlyOther: readonly string[];
  readonly metrics: readonly MetricRow[];
  readonly questions: readonly QuestionsInBoth[];
  readonly likelihoods: readonly LikelihoodRow[];
  readonly choices: readonly ChoicesChanged[];
  readonly texts: readonly { readonly task: string; readonly questions: number; readonly equal: number }[];
  readonly notes: readonly string[];
}

export interface ComparisonDocument {
  readonly runs: readonly string[];
  readonly comparisons: readonly RunComparison[];
  /** Runs that have nothing in common with the first, and why. */
  readonly apart: readonly { readonly run: number; readonly why: string }[];
}
