/**
 * Tokens before others on their paths. Tokens lie in depth-first order: all that lie below a token follow it, one
 * behind another. Two forms of inputs say which (ir/kernel, Mask): ends of subtrees, or lists of the rows of paths.
 */

/** Most tokens that anything goes back. */
export const MAX_BACK = 15;

/** What says which token is before another: names, values or numbers. */
export type TokenPaths<V> =
  | { readonly kind: 'column'; readonly subtreeEnd: V }
  | { readonly kind: 'path'; readonly begin: V; readonly position: V; readonly key: V };

/** What a kernel finds: rows of the tokens before those of a call on their paths, and where the rows below each end. */
export interface LinksParts {
  readonly paths: TokenPaths<string>;
  /** For each number of tokens back, i32[rows]. */
  readonly before: readonly { readonly back: number; readonly out: string }[];
  /** i32[rows]. Of paths by lists alone: ends of subtrees are an input otherwise. */
  readonly end?: string;
}

/** The names of what says which tokens come before others. */
export const pathBuffers = (paths: TokenPaths<string>): readonly string[] =>
  paths.kind === 'column' ? [paths.subtreeEnd] : [paths.begin, paths.position, paths.key];

/**
 * For each row, the row `back` tokens before it on its path, or the row itself if the path is not that long. Results
 * never lie behind their row, whatever the inputs are.
 */
export function tokensBefore(paths: TokenPaths<Float64Array>, back: number): Float64Array {
  if (paths.kind === 'path') {
    const { begin, position, key } = paths;
    return position.map((depth, row) => {
      if (depth < back) return row;
      const found = key[Math.min(begin[row]! + depth - back, key.length - 1)]!;
      return Math.min(found, row);
    });
  }
  const { subtreeEnd } = paths;
  const parents = subtreeEnd.map((_, row) => {
    let parent = row - 1;
    while (parent >= 0 && subtreeEnd[parent]! <= row) parent--;
    return parent;
  });
  return parents.map((_, row) => {
    let at = row;
    for (let i = 0; i < back; i++) {
      at = parents[at]!;
      if (at < 0) return row;
    }
    return at;
  });
}

/** Of each row the first one behind it whose position is not larger; the number of rows where there is none. */
export const subtreeEnds = (position: Float64Array): Float64Array =>
  position.map((depth, row) => {
    let end = row + 1;
    while (end < position.length && position[end]! > depth) end++;
    return end;
  });
