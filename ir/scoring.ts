/**
 * Scoring in terms of packed tokens and scored rows. This is the one place that maps them to the extents of the
 * function `score`, for code that speaks of micro-batches rather than of functions.
 */
import { extentIn, type Extents } from './extents.js';
import type { Bucket } from './plan.js';

export const TOKENS = 'T';
export const SCORED_ROWS = 'R';

export interface ScoringSize {
  readonly tokens: number;
  readonly rows: number;
}

interface Sized {
  readonly extents: Extents;
}

export const tokensIn = ({ extents }: Sized): number => extentIn(TOKENS, extents);
export const rowsIn = ({ extents }: Sized): number => extentIn(SCORED_ROWS, extents);
export const scoringSize = (size: Sized): ScoringSize => ({ tokens: tokensIn(size), rows: rowsIn(size) });
export const scoringExtents = ({ tokens, rows }: ScoringSize): Extents => ({ [TOKENS]: tokens, [SCORED_ROWS]: rows });

/** Micro-batches of at most the given numbers of tokens and scored rows, whose trees have at most `longest` tokens. */
export const scoringBucket = ({ longest, ...size }: ScoringSize & { readonly longest: number }): Bucket => ({
  extents: scoringExtents(size),
  longest,
});
