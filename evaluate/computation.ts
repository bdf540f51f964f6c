/** How questions are computed: in micro-batches of trees, or by walks over kept keys and values. */
import type { AnswerCollector } from './answers.js';
import type { ScoredRows } from './scorer.js';
import type { ScoredToken } from './tree.js';
import type { Turn } from './turns.js';

/** A call whose results are there. */
export interface Landed {
  readonly scored: readonly ScoredToken[];
  readonly rows: ScoredRows;
  /** Tokens that it computed. */
  readonly tokens: number;
  /** What it was estimated to take; 0 where nothing is known. */
  readonly seconds: number;
}

/** Where a computation leaves its results. */
export interface Sink {
  readonly collector: AnswerCollector;
  /** When it may make calls. */
  readonly turn: Turn;
  /** File that holds what was landed, for messages. */
  readonly journal?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onWarning?: ((line: string) => void) | undefined;
  /** Keeps the results of a call. If it throws, the computation must end; later results are ignored then. */
  land(landed: Landed): void;
}

export interface Computation {
  /** Tokens that it will have computed at the end. */
  readonly tokensTotal: number;
  /** Estimated seconds of all calls; 0 where nothing is known. */
  readonly estimateTotal: number;
  /** Computes everything, or stops after the calls in flight once the signal is aborted. Call it once. */
  compute(sink: Sink): Promise<void>;
}
