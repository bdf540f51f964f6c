/** The interfaces that evaluate/ needs from a runtime. */
import type { ScoredToken, TreeSharing } from './tree.js';

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
  /** i32[R] the next token whose log-probability is computed. */
  readonly target: Int32Array;
}

export interface ScoredRows {
  /** f32[R] natural-log probability of target[r] after token row[r]. */
  readonly logProb: Float32Array;
  /** i32[R] 1 if the target is the most likely token, else 0. */
  readonly isArgmax: Int32Array;
}

export interface Scorer {
  /** Largest micro-batch it accepts. */
  readonly maxTokens: number;
  readonly maxRows: number;
  /** Most entries of the lists that name the keys of every branch; absent if it needs none. */
  readonly maxKeys?: number | undefined;
  /** Longest tree path (context) that the model accepts, in tokens. */
  readonly maxLength: number;
  /**
   * Number of micro-batches to have in flight: those being computed, and those queued so that no device waits. Read
   * before every micro-batch, because devices may join and drop out.
   */
  readonly inFlight: number;
  /** Devices, or pipelines of devices, that compute whole micro-batches in parallel. Read before every micro-batch. */
  readonly replicas: number;
  /** Devices of all replicas together. Read before every micro-batch. */
  readonly devices: number;
  /** What a user may try where a value is NaN or infinite. */
  readonly nonFiniteAdvice?: string | undefined;
  /** Estimated seconds for a micro-batch: the measured cost of its bucket if tuned, a model of it otherwise. */
  cost(tokens: number, rows: number, longest: number): number;
  /** Scores one micro-batch. Rejects with a NonFinite error where a value is NaN or infinite. */
  score(batch: MicroBatch): Promise<ScoredRows>;
}

/** Inputs of a call that continues paths (the function `step`), by name. */
export interface PathBatch {
  /** i32[T] token ids. */
  readonly tokens: Int32Array;
  /** i32[T] depth of each token on its path. */
  readonly position: Int32Array;
  /** i32[T] row of the cache that a token's key and value go to. */
  readonly slot: Int32Array;
  /** i32[T] where the list of a token's path begins in `key`. */
  readonly begin: Int32Array;
  /** i32[C] rows of the cache: paths in order of position, one behind another. */
  readonly key: Int32Array;
  /** i32[R] token whose next-token distribution is scored. */
  readonly row: Int32Array;
  /** i32[R] the next token whose log-probability is computed. */
  readonly target: Int32Array;
  /** Of a model with recurrent layers, and of no other. */
  readonly states?: StateTrees;
}

/**
 * How a call goes on from states of recurrent layers. Its tokens are trees, one behind another in depth-first order,
 * each of which goes on from a row of states. No row is read by one tree and written behind a token of another.
 */
export interface StateTrees {
  /** i32[T] the token of the call that each goes on from; −1: it begins a tree. */
  readonly parent: Int32Array;
  /** i32[T] the row that a tree goes on from, of its first token; −1: from zeros. */
  readonly from: Int32Array;
  /** i32[S] tokens, and the row that gets the states behind each. No row is written twice. */
  readonly token: Int32Array;
  readonly to: Int32Array;
}

export interface WalkedBatch {
  readonly batch: PathBatch;
  readonly scored: readonly ScoredToken[];
}

export interface WalkLimits {
  /** Most new tokens, keys and rows of a call. */
  readonly tokens: number;
  readonly keys: number;
  readonly rows: number;
  /** Rows of the cache: at least those of the longest path and one more. */
  readonly cacheRows: number;
  /** Rows of states of recurrent layers; absent: the model has no such layers. */
  readonly states?: number;
}

/** A model that keeps the keys and values of earlier calls. */
export interface PathScorer {
  readonly limits: WalkLimits;
  /** Devices, or pipelines of devices, each with a cache of its own. */
  readonly lanes: number;
  /** What a user may try where a value is NaN or infinite. */
  readonly nonFiniteAdvice?: string | undefined;
  /** Begins with an empty cache. Rejects where the device is lost for good. */
  open(lane: number): Promise<PathLane>;
}

export interface PathLane {
  /** Number of calls to have in flight, so that the device does not wait. */
  readonly inFlight: number;
  /**
   * Scores a call. Calls are computed in the order in which they are made. Rejects with a NonFinite error where a value
   * is NaN or infinite, and with a ProcessEnded error once what earlier calls left in the cache is gone.
   */
  score(batch: PathBatch): Promise<ScoredRows>;
}

/** The error of score() if a value is NaN or infinite. It is recognized by its name, because errors cross processes. */
export interface NonFinite extends Error {
  readonly name: 'NonFiniteError';
  /** Model path of the kernel that produced it (`layers.3.attention.qkv`), if known. */
  readonly where: string | undefined;
  /** Scored rows of the micro-batch that it reached, as indices into row and target; empty where unknown. */
  readonly rows: readonly number[];
}

/** How questions are computed: in micro-batches of trees, or by walks over kept keys and values. */

/** What the choices of a run share, as users name it. */

export const SHARING_MODES = ['none', 'context', 'kv', 'tree'] as const;
/**
 * What paths share: nothing, the context of their question, or every common beginning, even across questions. With `kv`
 * they share the context too, but in two phases: contexts first, then choices on what is cached of them.
 */
export type Sharing = (typeof SHARING_MODES)[number];

/** The trees that compute the same tokens. */
export const treeSharing = (sharing: Sharing): TreeSharing => (sharing === 'kv' ? 'context' : sharing);
