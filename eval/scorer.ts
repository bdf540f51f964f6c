/** The one thing eval/ asks of a runtime. */

/**
 * A micro-batch of token trees, all arrays in depth-first order, trees one after another.
 * Token i is visible to token q exactly when i <= q and q < subtreeEnd[i].
 */
export interface MicroBatch {
  /** i32[T] token ids. */
  readonly tokens: Int32Array;
  /** i32[T] depth of each token in its tree (its rotary position). */
  readonly position: Int32Array;
  /** i32[T] one past the last token of the subtree that starts here. */
  readonly subtreeEnd: Int32Array;
  /** i32[R] token whose next-token distribution is scored, ascending. */
  readonly row: Int32Array;
  /** i32[R] the next token whose log-probability is wanted. */
  readonly target: Int32Array;
}

export interface ScoredRows {
  /** f32[R] natural-log probability of target[r] after token row[r]. */
  readonly logProb: Float32Array;
  /** i32[R] 1 where the target is the most likely token. */
  readonly isArgmax: Int32Array;
}

export interface Scorer {
  /** Largest micro-batch it accepts. */
  readonly maxTokens: number;
  readonly maxRows: number;
  /** Longest tree path (context) the model accepts, tokens. */
  readonly maxLength: number;
  /**
   * Micro-batches to ask of it at a time: those that are computed, and those that wait beside them so that no device
   * does. Asked before every micro-batch: devices may join and drop out.
   */
  readonly inFlight: number;
  /** Devices, or pipelines of devices, that each compute whole micro-batches beside the others. Asked likewise. */
  readonly replicas: number;
  /** Devices of all replicas together. Asked likewise. */
  readonly devices: number;
  /** What a user may try where a value is NaN or infinite. */
  readonly nonFiniteAdvice?: string | undefined;
  /** Estimated seconds for a micro-batch: measured cost of its bucket where tuned, a model of it otherwise. */
  cost(tokens: number, rows: number, longest: number): number;
  /** Scores one micro-batch. Rejects with a NonFinite error where a value is NaN or infinite. */
  score(batch: MicroBatch): Promise<ScoredRows>;
}

/** What score() rejects with where a value is NaN or infinite. Recognised by its name: errors cross processes. */
export interface NonFinite extends Error {
  readonly name: 'NonFiniteError';
  /** What produced it, by its model path (`layers.3.attention.qkv`), where known. */
  readonly where: string | undefined;
  /** Scored rows of the micro-batch that it reached, as indices into row and target; empty where unknown. */
  readonly rows: readonly number[];
}
