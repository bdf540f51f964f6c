/** The section of results: what runs came to, and what they took. Shares are from 0 to 1. */

import type { StartUp } from '../../evaluate/startUp.js';

/** From, to. */
export type Interval = readonly [number, number];

/** A figure of a task or a group. */
export interface Figure {
  readonly metric: string;
  /** `none` where there is only one way to read answers. */
  readonly filter: string;
  readonly value: number;
  /** The standard error in the file; null where there is none. */
  readonly error: number | null;
  /** Of 95 %; null where it is not known. */
  readonly interval: Interval | null;
  /** Whether values are from 0 to 1, and shown as per cent. */
  readonly isShare: boolean;
  readonly isHigherBetter: boolean | null;
}

export interface TaskResult {
  readonly task: string;
  /** The group above it, and its depth in the tree of groups: 0 where it is in none. */
  readonly depth: number;
  readonly kind: 'task' | 'group';
  /** Null where the files do not say. */
  readonly questions: number | null;
  readonly shots: number | null;
  readonly figures: readonly Figure[];
}

/** Questions of one kind: of a length, or of a category. */
export interface Slice {
  readonly label: string;
  readonly questions: number;
  /** For each metric of the breakdown. */
  readonly right: readonly number[];
  readonly shares: readonly number[];
  readonly intervals: readonly Interval[];
}

/** The accuracy of a task by a property of its questions. */
export interface Breakdown {
  readonly task: string;
  /** A field of the documents, or `length` of the context in characters. */
  readonly by: string;
  /** Lengths have an order; categories are sorted by their number of questions. */
  readonly kind: 'length' | 'category';
  readonly metrics: readonly string[];
  readonly slices: readonly Slice[];
  /** Of what is not shown: slices that are left out, and their questions. */
  readonly left: { readonly slices: number; readonly questions: number };
}

/** How probable choices are by their log-likelihoods, beside how often they are right. */
export interface Calibration {
  readonly task: string;
  readonly questions: number;
  /** Expected calibration error: the mean distance of confidence and accuracy over the bins. */
  readonly ece: number;
  readonly bins: readonly {
    readonly from: number;
    readonly to: number;
    readonly questions: number;
    /** Mean confidence, and share of right answers; 0 where there is no question. */
    readonly confidence: number;
    readonly accuracy: number;
    readonly interval: Interval;
  }[];
}

/** By how many nats right choices exceed the next best ones; below 0 where the answer is wrong. */
export interface Margins {
  readonly task: string;
  readonly questions: number;
  readonly median: number;
  /** Questions with less than half a nat either way. */
  readonly close: number;
  /** The first and last bins hold all that is beyond. */
  readonly bins: readonly { readonly from: number; readonly to: number; readonly questions: number }[];
}

export interface DeviceShare {
  readonly device: number;
  readonly computeSeconds: number;
  readonly copySeconds: number;
  readonly busyShare: number;
}

/** What a run took; numbers that files do not have are null. */
export interface RunCost {
  readonly questions: number | null;
  readonly tokensComputed: number | null;
  readonly tokensWithoutSharing: number | null;
  readonly tokensGrouped: number | null;
  readonly tokensShared: number | null;
  readonly loadSeconds: number | null;
  readonly scoreSeconds: number | null;
  readonly questionsPerSecond: number | null;
  readonly tokensPerSecond: number | null;
  readonly modelFlops: number | null;
  readonly devices: readonly DeviceShare[];
  /** How its first answer was come to. */
  readonly start: StartUp | null;
}

export interface RunResult {
  /** A short name that no other run of the page has. */
  readonly name: string;
  readonly model: string;
  readonly file: string;
  /** Settings of the run, as pairs of name and value. */
  readonly settings: readonly (readonly [string, string])[];
  readonly tasks: readonly TaskResult[];
  readonly breakdowns: readonly Breakdown[];
  readonly calibrations: readonly Calibration[];
  readonly margins: readonly Margins[];
  /** Null where the files do not say. */
  readonly cost: RunCost | null;
}

export interface ResultsDocument {
  readonly runs: readonly RunResult[];
}
