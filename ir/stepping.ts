/**
 * Steps in terms of new tokens, keys and rows. This is the one place that maps them to the extents of the function
 * `step`.
 */
import { extentIn, type Extents } from './extents.js';
import type { Bucket } from './plan.js';

export const NEW_TOKENS = 'T';
export const KEYS = 'C';
export const STEP_ROWS = 'R';

export interface StepSize {
  /** New tokens. */
  readonly tokens: number;
  /** Entries of the list of keys: the lengths of all paths. */
  readonly keys: number;
  /** Rows with a log-probability. */
  readonly rows: number;
}

export const stepExtents = ({ tokens, keys, rows }: StepSize): Extents => ({
  [NEW_TOKENS]: tokens,
  [KEYS]: keys,
  [STEP_ROWS]: rows,
});

export const stepSize = (extents: Extents): StepSize => ({
  tokens: extentIn(NEW_TOKENS, extents),
  keys: extentIn(KEYS, extents),
  rows: extentIn(STEP_ROWS, extents),
});

/** The state that keeps the tokens that the last call drew, and its rows. */
export const DRAWN = 'drawn';
export const DRAWN_ROWS = 1024;

/** Most entries of the list of keys in one call: 512 sequences of 1,024 tokens. */
export const MOST_KEYS = 1 << 19;

/** Most rows of a call that returns logits: 128,256 tokens of 64 rows are 33 MB. */
export const MOST_LOGIT_ROWS = 64;

/**
 * Steps of a few tokens, as decoding makes them, below the sizes of `larger`, which are those of prompts; none with
 * more than `mostRows` rows.
 */
export function stepBuckets(larger: readonly Bucket[], mostRows = Infinity): readonly Bucket[] {
  const prompts = larger.map(({ extents, longest }) => ({ tokens: extentIn(NEW_TOKENS, extents), longest }));
  const least = Math.min(...prompts.map(({ tokens }) => tokens));
  const few = [1, 2, 4, 8, 16, 32, 64].filter((tokens) => tokens < least).map((tokens) => ({ tokens, longest: 1024 }));
  return [...few, ...prompts].map(({ tokens, longest }) => ({
    extents: stepExtents({ tokens, keys: MOST_KEYS, rows: Math.min(tokens, mostRows) }),
    longest,
  }));
}
