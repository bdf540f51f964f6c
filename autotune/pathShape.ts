/** Paths as they are measured and estimated: how many keys they have, and how many of them are new. */
import { KEYS, NEW_TOKENS } from '../ir/stepping.js';
import { extentIn } from '../ir/extents.js';
import type { Bucket } from '../ir/plan.js';
import { roundUp } from '../ir/types.js';

export interface PathShape {
  /** Keys of each path. */
  readonly length: number;
  /** New tokens at the end of each path, at least 1. */
  readonly fresh: number;
  readonly paths: number;
}

/**
 * Fewer new tokens than a path is long continue a path each, as decoding does, and so do those of a class with a `run`.
 * More of them are whole prompts. No tokens are no paths.
 */
export function pathShape({ extents, longest, run }: Bucket): PathShape {
  const tokens = extentIn(NEW_TOKENS, extents);
  if (tokens === 0) return { length: longest, fresh: 1, paths: 0 };
  if (tokens >= longest && run === undefined)
    return { length: longest, fresh: longest, paths: Math.ceil(tokens / longest) };
  return {
    length: Math.max(1, Math.min(longest, Math.floor(extentIn(KEYS, extents) / tokens))),
    fresh: 1,
    paths: tokens,
  };
}

/** Rows of a cache that lie next to each other, because they belong to one page. */
export const PAGE_ROWS = 16;

/** Rows of a cache that hold the paths, each in pages of its own. */
export const pathRows = ({ length, paths }: PathShape): number => paths * roundUp(length, PAGE_ROWS);

/** Of each new token: where its path begins in the list of keys, and its position. */
export function pathTokens(shape: PathShape, tokens: number): { begin: Int32Array; position: Int32Array } {
  const { length, fresh } = shape;
  return {
    begin: Int32Array.from({ length: tokens }, (_, t) => Math.floor(t / fresh) * length),
    position: Int32Array.from({ length: tokens }, (_, t) => length - fresh + (t % fresh)),
  };
}
