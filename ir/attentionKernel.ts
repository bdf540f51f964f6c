/** The kernel of attention, and which keys its queries see. */
import type { KernelBase } from './kernelBase.js';

/**
 * Which keys a query sees.
 * - `column`: key k is visible to query q exactly when k <= q and q < subtreeEnd[k] (tokens in depth-first order).
 * - `path`: the keys of a path are listed in order of position. Query q sees the rows key[begin[q] + i] of keys and
 *   values for i from 0 to position[q].
 * - `bias`: a materialized f32[keys, keys] bias is added to the scores.
 * With a window, a query sees only the last `window` keys of its path, itself among them: those whose position is more
 * than its own minus the window. Trees say positions by an input.
 */
export type Mask =
  | { readonly kind: 'column'; readonly subtreeEnd: string; readonly window?: number; readonly position?: string }
  | {
      readonly kind: 'path';
      readonly begin: string;
      readonly position: string;
      readonly key: string;
      readonly window?: number;
    }
  | { readonly kind: 'bias'; readonly buffer: string };

/** `mask` with every name of a buffer passed through `rename`, in a fixed order. */
export function renameMask(mask: Mask, rename: (name: string) => string): Mask {
  switch (mask.kind) {
    case 'column':
      return {
        ...mask,
        subtreeEnd: rename(mask.subtreeEnd),
        ...(mask.position === undefined ? {} : { position: rename(mask.position) }),
      };
    case 'path':
      return { ...mask, begin: rename(mask.begin), position: rename(mask.position), key: rename(mask.key) };
    case 'bias':
      return { ...mask, buffer: rename(mask.buffer) };
    default:
      return mask satisfies never;
  }
}

/** The window of a mask, in keys; undefined if it has none, or has it in its bias. */
export const windowOfMask = (mask: Mask): number | undefined => (mask.kind === 'bias' ? undefined : mask.window);

/**
 * out[row, h·d + i] = Σ_k softmax_k(s + mask)·v[k, h', i] with s = scale·q[row, h]·k[k, h'] and h' = ⌊h·kvHeads/heads⌋.
 * With a cap, s is cap·tanh(s / cap). Queries are rows of `q`, read through `queryRow` if there is one. The row is also
 * the query's position in token order. With scales, keys and values are codes: row k of head h' is to be multiplied by
 * scales.k[k, h'] and scales.v[k, h'].
 */
export interface AttentionKernel extends KernelBase {
  readonly anchor: 'attention';
  readonly q: string;
  readonly k: string;
  readonly v: string;
  /** f32[rows of keys, kvHeads] each. */
  readonly scales?: { readonly k: string; readonly v: string };
  readonly out: string;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly scale: number;
  readonly cap?: number;
  readonly mask: Mask;
  /** i32[rows]: the row of each query among the keys. Absent if every key's row is a query. */
  readonly queryRow?: string;
}
