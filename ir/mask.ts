/** Which keys the queries of an attention kernel see. */
import { defined } from '../system/defined.js';
import type { Reach } from './reach.js';

/**
 * Which keys a query sees.
 * - `column`: key k is visible to query q exactly when k <= q and q < subtreeEnd[k] (tokens in depth-first order).
 * - `path`: the keys of a path are listed in order of position. Query q sees the rows key[begin[q] + i] of keys and
 *   values for i from 0 to position[q].
 * - `bias`: a materialized f32[keys, keys] bias is added to the scores.
 * With a window or chunks (ir/reach.ts), a query sees only those keys of its path that are not too far back. Trees say
 * positions by an input, where it matters.
 */
export type Mask =
  | (MaskReach & { readonly kind: 'column'; readonly subtreeEnd: string; readonly position?: string })
  | (MaskReach & { readonly kind: 'path'; readonly begin: string; readonly position: string; readonly key: string })
  | { readonly kind: 'bias'; readonly buffer: string };

interface MaskReach {
  readonly window?: number;
  readonly chunk?: number;
}

/** `mask` with every name of a buffer passed through `rename`, in a fixed order. */
export function renameMask(mask: Mask, rename: (name: string) => string): Mask {
  switch (mask.kind) {
    case 'column':
      return {
        ...mask,
        subtreeEnd: rename(mask.subtreeEnd),
        ...defined({ position: mask.position === undefined ? undefined : rename(mask.position) }),
      };
    case 'path':
      return { ...mask, begin: rename(mask.begin), position: rename(mask.position), key: rename(mask.key) };
    case 'bias':
      return { ...mask, buffer: rename(mask.buffer) };
    default:
      return mask satisfies never;
  }
}

/** How far back a mask lets queries see; a bias says it itself. */
export const reachOfMask = (mask: Mask): Reach => (mask.kind === 'bias' ? {} : mask);

/** The most keys that a query sees; undefined if all of its path. */
export function mostSeen(mask: Mask): number | undefined {
  const { window, chunk } = reachOfMask(mask);
  return window ?? chunk;
}
