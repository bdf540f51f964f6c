/**
 * Scoring in terms of packed tokens, scored rows and lists of keys. This is the one place that maps them to the extents
 * of the function `score`, for code that speaks of micro-batches rather than of functions.
 */
import { extentIn, type Extents } from './extents.js';
import { sizeNames, type FunctionInterface } from './function.js';
import type { Bucket } from './plan.js';

export const TOKENS = 'T';
/** Only a function that takes paths as lists of keys has this extent. */
export const LISTED_KEYS = 'C';
export const SCORED_ROWS = 'R';

export interface ScoringSize {
  readonly tokens: number;
  readonly rows: number;
}

/** Room in the lists of keys for each token of a micro-batch. HellaSwag's need 2.3 entries a token at most. */
export const KEYS_PER_TOKEN = 16;

interface Sized {
  readonly extents: Extents;
}

export const tokensIn = ({ extents }: Sized): number => extentIn(TOKENS, extents);
export const rowsIn = ({ extents }: Sized): number => extentIn(SCORED_ROWS, extents);
export const scoringSize = (size: Sized): ScoringSize => ({ tokens: tokensIn(size), rows: rowsIn(size) });
export const scoringExtents = ({ tokens, rows }: ScoringSize): Extents => ({ [TOKENS]: tokens, [SCORED_ROWS]: rows });

/** Entries of the lists of keys; undefined where there are none. */
export const keysIn = ({ extents }: Sized): number | undefined => extents[LISTED_KEYS];

/** `size` with room for lists of keys, if the function takes them, and the extents in the function's order. */
export function withKeyRoom<S extends Sized>(fn: Pick<FunctionInterface, 'extents'>, size: S): S {
  const known: Extents = { ...size.extents, [LISTED_KEYS]: KEYS_PER_TOKEN * tokensIn(size) };
  return { ...size, extents: Object.fromEntries(sizeNames(fn).map((name) => [name, extentIn(name, known)])) };
}

/** Micro-batches of at most the given numbers of tokens and scored rows, whose trees have at most `longest` tokens. */
export const scoringBucket = ({ longest, ...size }: ScoringSize & { readonly longest: number }): Bucket => ({
  extents: scoringExtents(size),
  longest,
});

/** Where the path of each token begins in the list of keys, and the tokens of all paths in order of position. */
export interface PathLists {
  /** i32[T] */
  readonly begin: Int32Array;
  /** i32[C] */
  readonly key: Int32Array;
}

/**
 * The keys of every token of trees in depth-first order, given the depth of each token in its tree: token t sees
 * key[begin[t]] … key[begin[t] + position[t]]. Tokens that follow each other share a list; a branch that turns off
 * earlier has one of its own, from the root on.
 */
export function listPaths(position: Int32Array): PathLists {
  const begin = new Int32Array(position.length);
  const key: number[] = [];
  /** The token at each depth of the current path. */
  const path: number[] = [];
  let from = 0;
  position.forEach((depth, token) => {
    if (depth !== path.length) {
      path.length = Math.min(depth, path.length);
      from = key.length;
      for (const each of path) key.push(each);
    }
    begin[token] = from;
    key.push(token);
    path.push(token);
  });
  return { begin, key: Int32Array.from(key) };
}
